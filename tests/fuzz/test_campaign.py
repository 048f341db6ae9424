"""Run a short campaign of hostile inputs (`make fuzz` runs a long one): no case may be bad."""

import os
from pathlib import Path

import click
import pytest

import kills
from campaign import KINDS, supervise
from conftest import REQUIRE_ALL
from mlci.cli import cli

CASES = int(os.environ.get("MLCI_FUZZ", "48" if REQUIRE_ALL else "12"))


def test_no_hostile_input_gives_a_bad_verdict(tmp_path: Path):
    found = supervise(range(CASES), tmp_path, kinds=[kind for kind in KINDS if kind != "kill"])
    assert sum(found.counts.values()) == CASES
    assert not found.bad, "\n".join(found.bad)
    assert found.counts["clean"] > found.counts["accepted"]  # most inputs are damaged enough to be refused


@pytest.mark.slow
def test_killed_commands_leave_no_incomplete_or_private_files(tmp_path: Path):
    found = supervise(range(3), tmp_path, kinds=["kill"])
    assert sum(found.counts.values()) == 3
    assert not found.bad, "\n".join(found.bad)


def test_the_kill_cases_cover_every_command():
    assert sorted(kills.CASES) == sorted(cli.list_commands(click.Context(cli)))


def test_a_crash_counts_as_one_bad_case_and_the_campaign_continues(tmp_path: Path, monkeypatch):
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
