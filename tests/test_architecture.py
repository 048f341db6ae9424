"""docs/architecture.md and CONTRIBUTING.md against the code: every function, call, room and file is there."""

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
    """The function, class or registry that `module:name` stands for."""
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
def test_the_caller_mentions_the_callee(caller, callee):
    find(callee)
    assert re.search(rf"\b{callee.rpartition(':')[2].rpartition('.')[2]}\b", source(find(caller)))


def test_each_of_the_four_ways_is_told():
    assert len(CHAINS) >= 10
    assert all(len(chain) >= 3 for chain in CHAINS)
    for way in ("cohort", "fit", "score", "report"):
        assert any(chain[0] == f"mlci.cli.{way}:command" for chain in CHAINS), way


def test_the_page_names_every_room():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    rooms = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == rooms


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", GUIDE))))
def test_files_that_the_guide_names_are_there(path):
    assert (ROOT / path).exists()
