"""Run what the README shows, and check that commands, options, files and links named in the docs exist."""

import csv
import os
import re
import shlex
import subprocess
import sys

import click
import pytest

from conftest import ROOT
from mlci.benchmark.models import discover
from pages import PAGES, blocks, command_blocks, prose

HEADLINE = ["AUROC", "deviance", "Nagelkerke", "Brier"]


def test_readme_commands_print_what_the_readme_shows(mlci_cli, tmp_path):
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("mlci ")]
    assert len(commands) >= 7
    [admissions] = blocks(ROOT / "README.md", "csv")
    (tmp_path / "admissions.csv").write_text(admissions)
    output = {words[0]: mlci_cli(*words).stdout for words in commands}
    assert blocks(ROOT / "README.md", "text") == [output["explain"]]
    assert (tmp_path / "report.html").stat().st_size > 100_000
    shown = re.findall(r"^\| `[A-Z0-9. ]+` .*$", (ROOT / "README.md").read_text(), flags=re.M)
    for line, row in zip(shown, csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()), strict=True):
        percentile, *risks, _ = line.split(" | ")[1:]
        assert percentile == f"**{float(row['percentile']):.0f}**".strip("" if row["high_severity"] == "true" else "*")
        assert risks == [f"{100 * float(value):.1f} %" for name, value in row.items() if name.startswith("risk_")]


def test_readme_python_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [block] = blocks(ROOT / "README.md", "python")
    exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "model.safetensors").exists()


def test_make_targets_named_in_the_docs_exist():
    named = {word for page in PAGES for word in re.findall(r"\bmake ([a-z]+)", page.read_text())}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert named & {"demo", "test", "lint", "bench"} <= targets  # prose also says "make the" and "make it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_scripts_of_a_page_exist_with_their_options(page):
    """In code blocks and inline code, each command exists and has the options given with it."""
    from mlci.cli import cli

    inline = [" ".join(text.split()) for text in re.findall(r"`((?:mlci|python|make)\s[^`]*)`", prose(page))]
    targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    lines = [line for block in command_blocks(page) for line in block] + inline
    for line in (part for text in lines for part in re.split(r"; | && | > ", text)):
        program, *words = shlex.split(line)
        if program == "mlci":
            known = cli.get_command(click.Context(cli), words[0])
            assert known, line
            options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
            named = {word.strip("[]") for word in words[1:] if word.startswith(("-", "[-"))} - {"-"}
            assert named <= options, line
        elif program == "python" and words[0].endswith(".py"):
            assert (ROOT / words[0]).exists(), line
        elif program == "make":
            assert words[0] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_existing_files(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http", "mailto")):
            assert (page.parent / target).exists(), target


def test_every_benchmark_model_has_the_headline_figures():
    """Each row has mean AUROC, deviance, Nagelkerke's R² and Brier skill; networks also the spread over seeds."""
    page, figure = (ROOT / "docs" / "benchmarks.md").read_text(), re.compile(r"\d+\.\d( \(\d+\.\d\))?")
    parts = [re.findall(rf"(?s)<!-- {name} -->(.*?)<!-- end", page)[0] for name in ("nhds", "synthetic")]
    for table in (page.split("### The headline")[1].split("###")[0], *parts):
        head, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line
        )
        assert [re.sub(r"mean |[,'].*", "", name).split()[0] for name in head[1:5]] == HEADLINE
        for name, *cells in rows:
            assert all(figure.fullmatch(cell) for cell in cells[:4]), name
    for table in parts:
        rows = {line.split("|")[1].strip(): line for line in table.splitlines() if "|" in line}
        for model in discover().values():
            assert ("(" in rows[model.title].split("|")[3]) == (model.seed is None), model.title


@pytest.mark.slow
def test_docs_site_builds_without_warnings(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in (tmp_path / "site").rglob("*.html")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} <= pages
    examples = (tmp_path / "site" / "api.html").read_text()
    assert "&gt;&gt;&gt;" in examples  # shown as code, not as a block quotation
    assert "<blockquote>" not in examples
    for page in (tmp_path / "site").glob("*.html"):
        linked = re.findall(r'<a href="([\w.-][\w./-]*\.(?:csv|json|html))["#]', page.read_text())
        assert not [name for name in linked if not (page.parent / name).exists()], page.name
    first = (tmp_path / "site" / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link rel="stylesheet")[^>]*(?:src|href)="([^"]+)"', first)
    assert loaded
    assert not [address for address in loaded if "//" in address]  # nothing is loaded from other sites
