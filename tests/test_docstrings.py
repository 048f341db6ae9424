"""Examples in docstrings are run; public functions tell parameters, returns and an example; no pronoun is a name."""

import ast
import doctest
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from conftest import ROOT
from pages import syntax_tree

SOURCE = ROOT / "src"
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
PRONOUNS = {"one", "both", "mine", "each", "what"}
THEIRS = {  # methods by which other libraries call ours
    "Module": ("forward",),
    "Dropout": ("forward",),
    "Function": ("forward", "backward"),
}
SILENT = ("None", "NoReturn", "Iterator[None]")  # annotations of functions that return nothing


def modules() -> list[Path]:
    """Every module that has an example; tests/test_spark.py runs those that need a cluster."""
    paths = sorted(path for path in (SOURCE / "mlci").rglob("*.py") if ">>>" in path.read_text())
    return [path for path in paths if path.name != "spark.py"]


def public() -> list[Path]:
    """Every module that people may import: no part of its path begins with an underscore."""
    paths = (SOURCE / "mlci").rglob("*.py")
    return sorted(
        path
        for path in paths
        if not any(re.match("_(?!_init__)", part) for part in path.relative_to(SOURCE).parts)
        and "data" not in path.parts
    )


def handed_on(path: Path) -> list[ast.FunctionDef]:
    """The functions of private modules that a package offers as its own (`import x as x`, or `__all__`)."""
    found, offered = [], re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.DOTALL | re.MULTILINE)
    for node in syntax_tree(path).body if path.name == "__init__.py" else ():
        if not isinstance(node, ast.ImportFrom) or "._" not in (node.module or ""):
            continue
        names = {alias.name for alias in node.names if alias.asname or (offered and f'"{alias.name}"' in offered[1])}
        home = syntax_tree((SOURCE / (node.module or "").replace(".", "/")).with_suffix(".py"))
        found += [own for own in home.body if isinstance(own, ast.FunctionDef) and own.name in names]
    return found


def marks(node: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(mark) for mark in node.decorator_list)


def functions(path: Path) -> list[ast.FunctionDef]:
    """The public functions of a module; a command's docstring is its help."""
    return [
        node
        for node in (*syntax_tree(path).body, *handed_on(path))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not re.search(r"click\.(command|group)", marks(node))
        and (path.parent.name, node.name) != ("cli", "main")  # the program itself
    ]


def methods(path: Path) -> list[tuple[ast.ClassDef, ast.FunctionDef]]:
    """The public methods of a module's public classes that no class below them told already; properties are nouns."""
    return [
        (owner, node)
        for owner in syntax_tree(path).body
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and "property" not in marks(node)
        and not inherits(path, owner, node.name)
    ]


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package, by name."""
    nodes = (node for path in (SOURCE / "mlci").rglob("*.py") for node in syntax_tree(path).body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def inherits(path: Path, owner: ast.ClassDef, name: str) -> bool:
    """Whether a class below has the method; of a class of another library, whether that calls it."""
    for base in (ast.unparse(base).rpartition(".")[2] for base in owner.bases):
        here = [node for node in syntax_tree(path).body if isinstance(node, ast.ClassDef) and node.name == base]
        below = here[0] if here else classes().get(base)
        own = {node.name for node in below.body if isinstance(node, ast.FunctionDef)} if below else THEIRS.get(base, ())
        if name in own or (below and inherits(path, below, name)):
            return True
    return False


def lacking(node: ast.FunctionDef) -> list[str]:
    """What a docstring leaves out: an example, parameters by name, what is returned."""
    text = ast.get_docstring(node) or ""
    prose, given = re.split(r"^>>> ", text, maxsplit=1, flags=re.MULTILINE)[0], node.args
    names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if arg]
    found = [name for name in names if name not in ("self", "cls") and not re.search(rf"\b{name}\b", prose)]
    silent = node.returns is None or ast.unparse(node.returns) in SILENT
    if not silent and not re.search(r"\b(returns?|yields?)\b", prose, re.IGNORECASE):
        found.append("Returns")
    return found if ">>>" in text and "+SKIP" not in text else [*found, ">>>"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE / "mlci")))
def test_examples_run(path):
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    failed, _ = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert not failed


def test_public_functions_tell_parameters_returns_and_an_example():
    found = {path: functions(path) for path in public()}
    assert sum(map(len, found.values())) > 350
    without = {
        f"{path.relative_to(SOURCE)}:{node.name}": lack
        for path, nodes in found.items()
        for node in nodes
        if (lack := lacking(node))
    }
    assert not without


def test_public_methods_tell_the_same_and_their_example_may_stand_with_their_class():
    without = {}
    for path in public():
        for owner, node in methods(path):
            shown = re.findall(r"^(?:>>>|\.\.\.).*", ast.get_docstring(owner) or "", re.MULTILINE)
            there = "abstractmethod" in marks(node) or any(f".{node.name}(" in line for line in shown)
            lack = [word for word in lacking(node) if not (there and word == ">>>")]
            without |= {f"{path.relative_to(SOURCE)}:{owner.name}.{node.name}": lack} if lack else {}
    assert not without


def test_no_pronoun_is_a_name():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted((SOURCE / "mlci").rglob("*.py"))
        for node in ast.walk(syntax_tree(path))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRONOUNS)
        or (isinstance(node, ast.arg) and node.arg in PRONOUNS)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in PRONOUNS)
    ]
    assert not found
