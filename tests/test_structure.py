"""Check the structure of the code: size, layers, test files that mirror source files, private names kept private."""

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
    """Return every module that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_package_has_at_most_sixteen_entries():
    entries = sorted(
        path.name for path in PACKAGE.iterdir() if not path.name.startswith("__") and path.name != "py.typed"
    )
    assert len(entries) <= 16, entries


def test_import_contract_has_at_most_thirteen_layers_and_is_exhaustive():
    assert len(CONTRACT["layers"]) <= 13
    assert CONTRACT["exhaustive"] is True


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_test_files_do_not_import_each_other(path):
    assert not {name for name in imports(path) if name.rpartition(".")[2].startswith("test_")}


# Functions that may have more than 60 lines.
LONG: set[str] = set()
# Functions that may have more than 8 arguments, for example because the options of a command are their arguments.
WIDE = {
    "codes/comorbidity.py:indices",
    "codes/scoring.py:write_scores",
    "cohort.py:from_frame",
    "fitting/_engines/single.py:__init__",
    "fitting/_loop.py:train",
    "fitting/paper.py:fit_seeds",
    "index/estimator.py:fit",
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
    """Return each function's place, its number of lines without the docstring, and of arguments without `self`."""
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
    assert {place for place, lines, _ in functions() if lines > 60} <= LONG


def test_functions_have_at_most_eight_arguments():
    exempt = ("cli/", "fitting/_engines/kernels/")  # a command's options, a Triton kernel's pointers and sizes
    wide = {place for place, _, arguments in functions() if arguments > 8 and not place.startswith(exempt)}
    assert wide <= WIDE


# Test files without a source file: they test a whole command, a page in a browser, or another library's contract.
ACROSS = {
    *("cli/test_bad_input.py", "cli/test_cli.py", "cli/test_exit.py", "cli/test_manners.py", "fuzz/test_campaign.py"),
    *("index/test_sklearn.py", "web/test_browser.py", "web/test_hostile.py"),
}


def test_test_files_mirror_source_files():
    """tests/package/test_file.py tests src/mlci/package/file.py, _file.py or the folder of that name."""
    without_source = set()
    for path in TESTS.glob("*/**/test_*.py"):
        package, name = PACKAGE / path.parent.relative_to(TESTS), path.stem.removeprefix("test_")
        if not any(source.stem.removeprefix("_") == name for source in package.rglob("*")):
            without_source.add(str(path.relative_to(TESTS)))
    assert without_source <= ACROSS


def test_examples_docs_and_benchmarks_use_only_public_modules():
    programs = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    private = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in programs
        for name in imports(path)
        if name.startswith("mlci.") and any(part.startswith("_") for part in name.split("."))
    }
    assert not private


def test_every_recipe_has_a_config_and_a_module_with_fit_splits():
    from mlci.base import names
    from mlci.config import RECIPES

    assert tuple(RECIPES) == names.RECIPES
    for name in RECIPES:
        body = syntax_tree(PACKAGE / "fitting" / f"{name}.py").body
        assert "fit_splits" in {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_public_class_names_are_unique():
    """A reader who knows a class by its name knows which class it is."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in syntax_tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_are_not_used_in_other_modules(path):
    modules = {f"mlci.{'.'.join(file.relative_to(PACKAGE).with_suffix('').parts)}" for file in PACKAGE.rglob("*.py")}
    modules |= {f"mlci.{'.'.join(file.relative_to(PACKAGE).parts)}" for file in PACKAGE.rglob("*") if file.is_dir()}
    aliases, leaks = set(), []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlci"):
            for alias in node.names:
                full_name = f"{node.module}.{alias.name}"
                aliases |= {alias.asname or alias.name} if full_name in modules else set()
                leaks += [full_name] if alias.name.startswith("_") and full_name not in modules else []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            leaks += [f"{node.value.id}.{node.attr}"] if node.attr[0] == "_" != node.attr[1] else []
    assert not leaks


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_text_files_are_read_and_written_as_utf8(path):
    """Without an encoding Python takes that of the user's locale, which may lack Greek letters, dashes and quotes."""
    without = []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            given = len(node.args) + any(keyword.arg == "encoding" for keyword in node.keywords)
            if given < {"read_text": 1, "write_text": 2}.get(name, 0):
                without.append(node.lineno)
    assert not without
