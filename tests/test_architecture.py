"""Check docs/architecture.md and CONTRIBUTING.md against the code: functions, calls, packages and files exist."""

import inspect
import itertools
import re
import tomllib
from importlib import import_module

import pytest

from conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
CHAINS = [re.findall(r"`([\w.]+:[\w.]+)`", line) for line in PAGE.splitlines() if line.startswith("- `mlci")]


def find(name: str) -> object:
    """Return the function, class or registry that `module:name` names."""
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def source(found: object) -> str:
    return inspect.getsource(inspect.unwrap(getattr(found, "callback", found)))  # a click command wraps its function


def calls() -> list[tuple[str, str]]:
    return [pair for chain in CHAINS for pair in itertools.pairwise(chain)]


@pytest.mark.parametrize(("caller", "callee"), calls())
def test_source_of_the_caller_mentions_the_callee(caller, callee):
    find(callee)
    assert re.search(rf"\b{callee.rpartition(':')[2].rpartition('.')[2]}\b", source(find(caller)))


def test_page_describes_cohort_fit_score_and_report():
    assert len(CHAINS) >= 10
    assert all(len(chain) >= 3 for chain in CHAINS)
    for name in ("cohort", "fit", "score", "report"):
        assert any(chain[0] == f"mlci.cli.{name}:command" for chain in CHAINS), name


def test_table_of_packages_equals_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    packages = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == packages


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", GUIDE))))
def test_files_named_in_contributing_exist(path):
    assert (ROOT / path).exists()
