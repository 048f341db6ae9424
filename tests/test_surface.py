"""Public names: each can be imported, and the stub declares exactly these."""

import ast
from types import ModuleType

import pytest

import mlci
from conftest import ROOT

STUB = ROOT / "src" / "mlci" / "__init__.pyi"


def test_stub_declares_exactly_the_public_names():
    imported = {
        alias.asname
        for node in ast.walk(ast.parse(STUB.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(mlci.__all__)
    assert STUB.with_name("py.typed").exists()


@pytest.mark.parametrize("name", mlci.__all__)
def test_every_public_name_can_be_imported(name):
    found = getattr(mlci, name)
    assert isinstance(found, ModuleType) if name in ("plots", "report", "spark") else callable(found)


def test_modules_report_and_plots_are_attributes_of_the_package():
    assert callable(mlci.report.build)
    assert callable(mlci.plots.save)


def test_unknown_public_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="read_cohort"):
        mlci.charlsen  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]
