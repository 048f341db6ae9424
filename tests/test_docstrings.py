"""Run the examples in docstrings; check that public functions document parameters, returns and an example.

Also check that no name is a pronoun.
"""

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
CALLBACKS = {  # base classes of other libraries -> methods that the library calls
    "Module": ("forward",),
    "Dropout": ("forward",),
    "Function": ("forward", "backward"),
}
NO_VALUE = ("None", "NoReturn", "Iterator[None]")  # annotations of functions that return nothing


def modules() -> list[Path]:
    """Return every module that has an example; tests/test_spark.py runs the examples that need Spark."""
    paths = sorted(path for path in (SOURCE / "mlci").rglob("*.py") if ">>>" in path.read_text())
    return [path for path in paths if path.name != "spark.py"]


def public() -> list[Path]:
    """Return every module that users may import: no part of its path begins with an underscore, or is `data`."""
    return sorted(
        path
        for path in (SOURCE / "mlci").rglob("*.py")
        if not any(re.match("data$|_(?!_init__)", part) for part in path.relative_to(SOURCE).parts)
    )


def reexported(path: Path) -> list[ast.FunctionDef]:
    """Return the functions of private modules that a package re-exports (`import x as x`, or `__all__`)."""
    found, exported = [], re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.DOTALL | re.MULTILINE)
    for node in syntax_tree(path).body if path.name == "__init__.py" else ():
        if not isinstance(node, ast.ImportFrom) or "._" not in (node.module or ""):
            continue
        names = {alias.name for alias in node.names if alias.asname or (exported and f'"{alias.name}"' in exported[1])}
        module = syntax_tree((SOURCE / (node.module or "").replace(".", "/")).with_suffix(".py"))
        found += [member for member in module.body if isinstance(member, ast.FunctionDef) and member.name in names]
    return found


def decorators(node: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(decorator) for decorator in node.decorator_list)


def functions(path: Path) -> list[ast.FunctionDef]:
    """Return the public functions of a module, without commands, whose docstring is their help text."""
    return [
        node
        for node in (*syntax_tree(path).body, *reexported(path))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not re.search(r"click\.(command|group)", decorators(node))
        and (path.parent.name, node.name) != ("cli", "main")  # the program itself
    ]


def methods(path: Path) -> list[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Return the public methods of public classes, without properties and methods that a base class documents."""
    return [
        (owner, node)
        for owner in syntax_tree(path).body
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and "property" not in decorators(node)
        and not inherits(path, owner, node.name)
    ]


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Return every class of the package by name."""
    nodes = (node for path in (SOURCE / "mlci").rglob("*.py") for node in syntax_tree(path).body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def inherits(path: Path, owner: ast.ClassDef, name: str) -> bool:
    """Return whether a base class of ours has the method, or a base class of another library calls it."""
    for base in (ast.unparse(base).rpartition(".")[2] for base in owner.bases):
        same_file = [node for node in syntax_tree(path).body if isinstance(node, ast.ClassDef) and node.name == base]
        ours = same_file[0] if same_file else classes().get(base)
        if ours:
            names = [node.name for node in ours.body if isinstance(node, ast.FunctionDef)]
        else:
            names = CALLBACKS.get(base, ())
        if name in names or (ours and inherits(path, ours, name)):
            return True
    return False


def lacking(node: ast.FunctionDef) -> list[str]:
    """Return what a docstring lacks: names of parameters, the word "Returns", an example (">>>")."""
    text = ast.get_docstring(node) or ""
    prose, args = re.split(r"^>>> ", text, maxsplit=1, flags=re.MULTILINE)[0], node.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if arg]
    missing = [name for name in names if name not in ("self", "cls") and not re.search(rf"\b{name}\b", prose)]
    returns_value = node.returns is not None and ast.unparse(node.returns) not in NO_VALUE
    if returns_value and not re.search(r"\b(returns?|yields?)\b", prose, re.IGNORECASE):
        missing.append("Returns")
    return missing if ">>>" in text and "+SKIP" not in text else [*missing, ">>>"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE / "mlci")))
def test_examples_run(path):
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    failed, _ = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert not failed


def test_public_functions_document_parameters_returns_and_an_example():
    found = {path: functions(path) for path in public()}
    assert sum(map(len, found.values())) > 350
    incomplete = {
        f"{path.relative_to(SOURCE)}:{node.name}": missing
        for path, nodes in found.items()
        for node in nodes
        if (missing := lacking(node))
    }
    assert not incomplete


def test_public_methods_document_parameters_returns_and_an_example():
    """The example may be in the docstring of the class; abstract methods need none."""
    incomplete = {}
    for path in public():
        for owner, node in methods(path):
            examples = re.findall(r"^(?:>>>|\.\.\.).*", ast.get_docstring(owner) or "", re.MULTILINE)
            shown = "abstractmethod" in decorators(node) or any(f".{node.name}(" in line for line in examples)
            missing = [word for word in lacking(node) if not (shown and word == ">>>")]
            incomplete |= {f"{path.relative_to(SOURCE)}:{owner.name}.{node.name}": missing} if missing else {}
    assert not incomplete


def test_no_name_is_a_pronoun():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted((SOURCE / "mlci").rglob("*.py"))
        for node in ast.walk(syntax_tree(path))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRONOUNS)
        or (isinstance(node, ast.arg) and node.arg in PRONOUNS)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in PRONOUNS)
    ]
    assert not found
