"""The plan of the house: few entries at the top, few layers, test files apart, private modules kept private."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT
from pages import syntax_tree

PACKAGE = ROOT / "src" / "mlci"
TESTS = ROOT / "tests"
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(syntax_tree(path)):
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


# Long or with many arguments for a reason; every other function has at most 60 lines and 8 arguments.
LONG: dict[str, str] = {}
# The options of a command, or of the function that does its work, are its arguments; a Triton kernel has no others.
WIDE = {
    "codes/comorbidity.py:indices",
    "codes/scoring.py:write_scores",
    "cohort.py:from_frame",
    "fitting/_engines/single.py:__init__",
    "fitting/_loop.py:train",
    "fitting/paper.py:fit_seeds",
    "index/estimator.py:fit",
    "index/learning.py:learn",
    "index/scoring.py:score_file",
    "judging/evaluate.py:_judge",
    "judging/evaluate.py:judge",
    "judging/theory/_setting.py:settle",
    "showing/report/_compute.py:compute",
    "sources/_hospital.py:draft",
    "sources/file.py:read",
    "spark.py:indices",
}


@cache
def functions() -> list[tuple[str, int, int]]:
    """Each function's place, its lines without the docstring, and its arguments without `self`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                signature = node.body[0].lineno - node.lineno
                names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                arguments = len([name for name in names if name not in ("self", "cls", "ctx")])
                found.append((f"{path.relative_to(PACKAGE)}:{node.name}", signature + lines, arguments))
    return found


def test_functions_have_at_most_sixty_lines():
    assert {place for place, lines, _ in functions() if lines > 60} <= set(LONG)


def test_functions_have_at_most_eight_arguments():
    free = ("cli/", "fitting/_engines/kernels/")
    wide = {place for place, _, arguments in functions() if arguments > 8 and not place.startswith(free)}
    assert wide <= WIDE


# What these test has no file of its own: a whole command, a page in a browser, a promise to another library.
ACROSS = {
    *("cli/test_bad_input.py", "cli/test_cli.py", "cli/test_exit.py", "cli/test_manners.py", "fuzz/test_campaign.py"),
    *("index/test_sklearn.py", "web/test_browser.py", "web/test_hostile.py"),
}


def test_test_files_mirror_source_files():
    """tests/room/test_file.py is about src/mlci/room/file.py, _file.py or the folder of that name."""
    homeless = set()
    for path in TESTS.glob("*/**/test_*.py"):
        room, name = PACKAGE / path.parent.relative_to(TESTS), path.stem.removeprefix("test_")
        if not any(source.stem.removeprefix("_") == name for source in room.rglob("*")):
            homeless.add(str(path.relative_to(TESTS)))
    assert homeless <= ACROSS


def test_examples_and_docs_use_public_modules_alone():
    programs = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    private = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in programs
        for name in imports(path)
        if name.startswith("mlci.") and any(part.startswith("_") for part in name.split("."))
    }
    assert not private


def test_every_recipe_is_a_row_of_the_configs_and_a_module_of_its_name():
    from mlci.base import names
    from mlci.config import RECIPES

    assert tuple(RECIPES) == names.RECIPES
    for name in RECIPES:
        body = syntax_tree(PACKAGE / "fitting" / f"{name}.py").body
        assert "fit_splits" in {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_a_public_class_name_stands_for_one_class():
    """Who reads a name knows what it is."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in syntax_tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_names_with_an_underscore_stay_in_their_file(path):
    modules = {f"mlci.{'.'.join(file.relative_to(PACKAGE).with_suffix('').parts)}" for file in PACKAGE.rglob("*.py")}
    modules |= {f"mlci.{'.'.join(file.relative_to(PACKAGE).parts)}" for file in PACKAGE.rglob("*") if file.is_dir()}
    named, leaks = set(), []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlci"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                named |= {alias.asname or alias.name} if whole in modules else set()
                leaks += [whole] if alias.name.startswith("_") and whole not in modules else []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
            leaks += [f"{node.value.id}.{node.attr}"] if node.attr[0] == "_" != node.attr[1] else []
    assert not leaks
