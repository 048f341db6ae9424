"""Examples in docstrings are run, public functions that people import have one, and no pronoun is a name."""

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

from conftest import ROOT

SOURCE = ROOT / "src"
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
# Modules whose public functions all carry an example; the others carry what they have.
COMPLETE = (
    *("base/complaints", "base/errors", "base/files", "base/names", "base/parquet", "base/tensors"),
    *("base/extras", "base/plugins", "base/quotes", "base/shares", "base/shown", "base/spreadsheets"),
    *("measures/alignment", "measures/discrimination", "measures/information", "measures/registry"),
    *("measures/resample", "judging/curves", "judging/cutoffs", "judging/evaluate", "judging/rivals", "judging/scores"),
    *(
        "judging/theory/_cutoff",
        "judging/theory/_diagnosis",
        "judging/theory/_noise",
        "judging/theory/_setting",
        "judging/theory/_spacing",
        "judging/paper_tables",
        "codes/admissions",
        "codes/icd",
        "codes/layout",
        "codes/maps",
        "codes/parse",
        "codes/search",
        "codes/streams",
        "codes/zeros",
        "cohort",
    ),
    *("judging/balance", "judging/compare", "measures/ratios"),
    *("fitting/_collapse", "fitting/_copies", "fitting/encoders", "fitting/paper"),
    *(
        "index/citation",
        "index/estimator",
        "index/export",
        "index/recalibrate",
        "spark",
        "showing/plots",
        "showing/_words",
    ),
)
# Classes whose public methods carry one too.
CLASSES = ("Admissions", "Cohort", "Layout", "MLCI")
PRONOUNS = {"one", "both", "mine", "each", "what"}
# What these do needs no example to be understood, or a page of them.
INSIDE = {"energy", "rbf", "features", "coefficients"} | {"fit_splits", "fit_seeds", "judges"}


def modules() -> list[Path]:
    """Every module that has an example."""
    return sorted(path for path in (SOURCE / "mlci").rglob("*.py") if ">>>" in path.read_text())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE / "mlci")))
def test_examples_run(path):
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    failed, _ = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert not failed


@pytest.mark.parametrize("name", COMPLETE)
def test_public_functions_have_an_example(name):
    tree = ast.parse((SOURCE / "mlci" / f"{name}.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in CLASSES]
    nodes = [*tree.body, *(node for owner in classes for node in owner.body)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    without = {node.name for node in functions if ">>>" not in (ast.get_docstring(node) or "")}
    assert without <= INSIDE


def test_no_pronoun_is_a_name():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted((SOURCE / "mlci").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRONOUNS)
        or (isinstance(node, ast.arg) and node.arg in PRONOUNS)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in PRONOUNS)
    ]
    assert not found
