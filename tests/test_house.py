"""The plan of the house: few entries at the top, few layers, test files apart, private modules kept private."""

import ast
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "mlci"
TESTS = ROOT / "tests"
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_at_most_sixteen_entries_stand_at_the_top():
    rooms = sorted(
        path.name for path in PACKAGE.iterdir() if not path.name.startswith("__") and path.name != "py.typed"
    )
    assert len(rooms) <= 16, rooms


def test_the_contract_has_at_most_thirteen_layers_and_names_every_room():
    assert len(CONTRACT["layers"]) <= 13
    assert CONTRACT["exhaustive"] is True


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_test_files_import_nothing_from_each_other(path):
    assert not {name for name in imports(path) if name.rpartition(".")[2].startswith("test_")}


def test_examples_and_docs_use_public_modules_alone():
    programs = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    private = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in programs
        for name in imports(path)
        if name.startswith("mlci.") and any(part.startswith("_") for part in name.split("."))
    }
    assert not private


def test_no_class_has_the_name_of_another():
    """In the rooms that build on one another: who reads a name knows what it is."""
    names = [
        node.name
        for room in ("fitting", "index", "benchmark")
        for path in (PACKAGE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_every_recipe_is_a_row_of_the_configs_and_a_module_of_its_name():
    from mlci.config import RECIPES

    for name in RECIPES:
        tree = ast.parse((PACKAGE / "fitting" / f"{name}.py").read_text())
        assert "fit_splits" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
