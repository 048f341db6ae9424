"""The campaign of hostile inputs, short here and long by `make fuzz`: no case may be bad."""

import os
from pathlib import Path

import click
import pytest

import kills
from campaign import KINDS, supervise
from conftest import REQUIRE_ALL
from mlci.cli import cli

CASES = int(os.environ.get("MLCI_FUZZ", "48" if REQUIRE_ALL else "12"))


def test_no_hostile_input_is_taken_badly(tmp_path: Path):
    found = supervise(range(CASES), tmp_path, kinds=[kind for kind in KINDS if kind != "kill"])
    assert sum(found.counts.values()) == CASES
    assert not found.bad, "\n".join(found.bad)
    assert found.counts["clean"] > found.counts["accepted"]  # they are hostile, after all


@pytest.mark.slow
def test_no_command_that_is_killed_leaves_half_a_file_or_something_private(tmp_path: Path):
    found = supervise(range(3), tmp_path, kinds=["kill"])
    assert sum(found.counts.values()) == 3
    assert not found.bad, "\n".join(found.bad)


def test_every_command_is_among_those_that_are_killed():
    assert sorted(kills.CASES) == sorted(cli.list_commands(click.Context(cli)))


def test_a_crash_is_one_bad_case_and_not_the_end(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("campaign.__file__", str(tmp_path / "crash.py"))
    (tmp_path / "crash.py").write_text(
        "import json, os, sys\n"
        "first, last = map(int, sys.argv[5:7])\n"
        "for case in range(first, last):\n"
        "    print(json.dumps({'case': case, 'kind': 'table'}), flush=True)\n"
        "    if case == 1: os.abort()\n"
        "    print(json.dumps({'case': case, 'kind': 'table', 'verdict': 'clean', 'why': ''}), flush=True)\n"
    )
    found = supervise(range(3), tmp_path)
    assert dict(found.counts) == {"clean": 2, "bad": 1}
    assert found.bad == ["case 1 (table): the process ended with -6"]
