import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from mlci.base.errors import InputError
from mlci.base.tensors import digest, read_tensors, write_tensors
from mlci.codes.admissions import Admissions, as_admissions
from mlci.index import model as module
from mlci.index.model import load_model
from mlci.judging.kept import Smooth
from mlci.tokens import Vocabulary
from toys import CODES, code_lists, random_model, random_table

ADMISSIONS = as_admissions(code_lists(50), icd_version=10)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    random_model().save(path)
    return path


def test_a_saved_model_loads_unchanged(file, tmp_path):
    model, again = random_model(), load_model(file)
    for name, column in model.columns(ADMISSIONS).items():
        np.testing.assert_array_equal(again.columns(ADMISSIONS)[name], column)
    assert (again.vocabulary, again.icd_versions, again.outcomes, again.cutoff) == (
        model.vocabulary,
        model.icd_versions,
        model.outcomes,
        model.cutoff,
    )
    assert again.card == json.loads(json.dumps(model.card))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_a_damaged_file_is_refused_or_scores_the_same(file, tmp_path):
    whole, expected = file.read_bytes(), random_model().score(ADMISSIONS)
    rng = np.random.default_rng(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(8), *rng.integers(8, header, 150), *rng.integers(header, len(whole), 60)]
    damaged = [whole[:p] + bytes([whole[p] ^ int(rng.integers(1, 256))]) + whole[p + 1 :] for p in places]
    damaged += [whole[: rng.integers(0, len(whole))] for _ in range(30)] + [whole + b"x", b"", whole[::-1]]
    refused = 0
    for number, content in enumerate(damaged):
        path = tmp_path / f"damaged{number}"
        path.write_bytes(content)
        try:
            scores = load_model(path).score(ADMISSIONS)
        except InputError:
            refused += 1
        else:
            np.testing.assert_array_equal(scores, expected)
    assert refused > len(damaged) * 0.9  # a change of blanks in the header has no effect


def test_foreign_files_are_refused(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("admission_id,code\n1,I509\n")
    save_file({"x": np.zeros(3)}, other)
    with pytest.raises(InputError, match="not a whole model file"):
        load_model(text)
    with pytest.raises(InputError, match="another program"):
        load_model(other)


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": Vocabulary(("A000",), (10,))},
        {"state": {"embedding.weight": np.zeros((3, 4), dtype=np.float32)}},
        {"quantiles": np.array([])},
        {"outcomes": {}},
        {"card": {"config": {}}},
        {"state": {"weights": np.zeros(5)}},
        {"bands": {"mortality": Smooth(np.array([0.0, 1.0]), np.array([-2.0, 0.0]), np.array([0.1, 0.1]))}},
        {"state": {name: weights * 3e30 for name, weights in random_model().state.items()}},
    ],
)
def test_inconsistent_parts_are_refused(change, tmp_path):
    replace(random_model(), **change).save(tmp_path / "m")
    with pytest.raises(InputError, match="does not have the parts"):
        load_model(tmp_path / "m")


FORGED = {
    "vocabulary.depths": ([4] * 10**6, [0], [], ["4"], [4, 4]),
    "vocabulary.max_codes": (0, 10**9, 2.5, "256", True),
    "vocabulary.versions": ([10], [10] * (len(CODES) - 1) + [11], "10"),
    "vocabulary.tokens": (["A" * 41] * len(CODES), [1] * len(CODES), ["A000"] * len(CODES)),
    "vocabulary.support": ([1], ["1"] * len(CODES), [-1] * len(CODES)),
    "icd_versions": ([8], ["10"], [10] * 4, None),
    "outcomes": ({"mortality": 1}, {"long stay": "x"}, []),
    "quantiles": ([1.0, 0.0], [0.0], [0.0, 1e300], ["a", "b"], [0.0] * 20_001),
    "curves.mortality": (
        *({"score": [0.0, 1.0], "risk": [0.0, 5.0]}, {"score": [1.0, 0.0], "risk": [0.0, 0.5]}, {}, []),
        *({"score": [0.0], "risk": [0.0, 0.5]}, {"score": [], "risk": []}, {"score": [0.0, 1.0], "risk": [0.5, 0.0]}),
    ),
    "cutoff.score": ("0.1", None, 1e300),
    "cutoff.n": (0, -1, 10),
    "cutoff.tail": (-1, 101, "3"),
    "cutoff.certificate": (2.0, -1.0),
    "cutoff.contrasts": ([{"outcome": "mortality"}], [{}], {}),
    "card": ([], {}, "paper"),
    "card.recipe": ("pickle", 1, None),
    "card.seed": ("1", 1.5, 10**30),
    "card.config": ([], "x", {"encoder": {"width": 0}}, {"encoder": {"pooling": "best"}}),
    "card.weights": ([], {"mortality": "much"}),
    "card.look_back": ("90", -1.0, [90.0]),
    "card.needed": ([], {"mortality": 3}, {"mortality": {"admissions": 3}}),
    "card.no_part_in_cutoff": ("mortality", {"mortality": None}),
    "card.masked": ([], {"known": 3}, {"other": 3}, {"known": 1, "of": 2, "missing": {}, "events": {"mortality": [1]}}),
    "card.survey": (None, {"worth": "much"}),
    "card.fitted_on": (3, ["train"]),
    "card.in_sample": ("mortality", [1]),
    "card.recalibrated": ({}, [], {"source": "x", "admissions": -1}),
    "card.updated": ({"shares": {"own": "1"}, "unexplained": {}}, {}),
}


@pytest.mark.parametrize("key", FORGED)
def test_forged_facts_are_refused(key, tmp_path, file):
    for value in FORGED[key]:
        header, state = read_tensors(file, key=module.KEY, kind="a model file")
        *parents, last = key.split(".")
        parent = header["facts"]
        for name in parents:
            parent = parent[name]
        parent[last] = value
        header["sha256"] = digest(header["facts"], state)
        write_tensors(tmp_path / "m", state, key=module.KEY, facts=header)
        with pytest.raises(InputError, match="does not have the parts of a model file"):
            load_model(tmp_path / "m")


def test_a_file_that_is_not_a_model_is_refused(tmp_path, file):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        load_model(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "absent")
    (tmp_path / "large").write_bytes((96 << 20).to_bytes(8, "little") + b"{" + b" " * 100)
    with pytest.raises(InputError, match="not a whole model file"):
        load_model(tmp_path / "large")
    state = read_tensors(file, key=module.KEY, kind="a model file")[1]
    deep = json.loads("[" * 900 + "]" * 900)
    for header in ("a", [], {"format": 1}, {"format": 1, "facts": [], "sha256": 1}, {"format": "\x07"}, deep):
        write_tensors(tmp_path / "m", state, key=module.KEY, facts=header)
        with pytest.raises(InputError):
            load_model(tmp_path / "m")


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FORMATS", (1, 2, 3))
    random_model().save(tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"its model format is 3; mlci .* reads formats 1 to 2"):
        load_model(tmp_path / "m")


def test_percentiles_and_risks_increase_with_the_score():
    model = random_model()
    columns = pd.DataFrame(model.columns(ADMISSIONS)).sort_values("score")
    assert columns["percentile"].is_monotonic_increasing
    assert columns["percentile"].between(0, 100).all()
    assert columns["risk_mortality"].is_monotonic_increasing
    assert (columns["high_severity"] == (columns["score"] >= model.cutoff.score)).all()


def test_ignored_codes_count_as_understood():
    model = random_table(ignored=("10:B01",))
    enough = model.understanding(as_admissions([["A000", "B010", "B011"], ["B010"]], icd_version=10)).enough
    assert enough.tolist() == [True, False]  # in the second, no code counts


def test_codes_beyond_the_first_256_do_not_count():
    model = random_model()
    scores = model.score(Admissions.from_lists([CODES * 50, (CODES * 50)[:256]], icd_version=10))
    assert scores[0] == scores[1]  # max_codes is 256
