import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from conftest import PATIENCE
from mlci.base.blas import single_thread
from mlci.index import _slabs
from mlci.index._slabs import ROWS, Slabs, slabs_for

SHAPES = ((256, 128), (128, 128), (128, 5), (128, 1))

# Scores of admissions in another order and in smaller groups must be bit-for-bit the same.
SCRIPT = """
import numpy as np
from mlci.index._deepsets import DeepSetsScorer
from mlci.tokens import Tokens, Vocabulary
from toys import random_state
rng = np.random.default_rng(0)
counts = rng.integers(0, 9, 5000)
tokens = Tokens(rng.integers(1, 40, counts.sum()).astype(np.int32), np.concatenate([[0], np.cumsum(counts)]))
scorer = DeepSetsScorer(random_state(40, width=128), "mean+max", Vocabulary((), ()))
together, order = scorer.read(tokens).score, rng.permutation(5000)
np.testing.assert_array_equal(scorer.read(tokens.take(order)).score, together[order])
for some in ([0], [4999], np.arange(40), order[:700]):
    np.testing.assert_array_equal(scorer.read(tokens.take(np.array(some))).score, together[some])
print(scorer._slabs.used)
"""


def chained(slabs: Slabs, rows: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """Return the product of rows and all matrices, as a scorer computes it."""
    number = slabs.number(len(rows))
    padded = np.zeros((slabs.rows(number), rows.shape[1]), np.float32)
    padded[slabs.start :][: len(rows)] = rows
    hidden = slabs.over(padded, number)
    for matrix in matrices:
        memory = np.empty(number * ROWS * matrix.shape[1], np.float32)
        hidden = np.matmul(hidden, matrix, out=slabs.product(memory, number, matrix.shape[1]))
    return slabs.flat(hidden)[: len(rows)]


@pytest.mark.parametrize("slabs", [Slabs(False, 0, ROWS), Slabs(False, 3, 40), Slabs(True, 8, 312)], ids=str)
@pytest.mark.parametrize("n", [1, 304, 305, 1000])
def test_slabs_give_the_plain_product(slabs, n):
    rng = np.random.default_rng(n)
    rows = rng.random((n, 256), dtype=np.float32) - 0.5
    matrices = [rng.random(shape, dtype=np.float32) - 0.5 for shape in SHAPES[:3]]
    expected = rows.astype(float) @ matrices[0].astype(float) @ matrices[1].astype(float) @ matrices[2].astype(float)
    np.testing.assert_allclose(chained(slabs, rows, matrices), expected, atol=1e-3)


def test_the_product_of_a_row_does_not_depend_on_its_place():
    rng = np.random.default_rng(5)
    rows = rng.random((2000, 256), dtype=np.float32) - 0.5
    matrices = [rng.random(shape, dtype=np.float32) - 0.5 for shape in SHAPES[:3]]
    with single_thread():
        slabs = slabs_for(SHAPES)
        together, order = chained(slabs, rows, matrices), rng.permutation(2000)
        np.testing.assert_array_equal(chained(slabs, rows[order], matrices), together[order])
        np.testing.assert_array_equal(chained(slabs, rows[:20], matrices), together[:20])


def test_places_that_differ_are_not_used(monkeypatch):
    """In this matmul, some rows differ: the first 8 and last 16 of a product by column, else every second one."""
    plain = np.matmul

    def matmul(left, right, out):
        plain(left, right, out=out)
        by_column = out.strides[1] < out.strides[2]
        odd = np.r_[:8, ROWS - 16 : ROWS] if by_column else np.arange(0, ROWS, 2)
        out[:, odd] *= np.float32(1 + 2**-20)
        return out

    monkeypatch.setattr(_slabs.np, "matmul", matmul)
    slabs_for.cache_clear()
    try:
        assert slabs_for(SHAPES) == Slabs(by_column=True, start=8, end=ROWS - 16)
    finally:
        slabs_for.cache_clear()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of OpenBLAS's kernels on x86")
@pytest.mark.parametrize("kernel", ["Haswell", "Sandybridge", "Nehalem"])
def test_scores_do_not_depend_on_the_place_with_each_openblas_kernel(kernel):
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > ROWS // 2
