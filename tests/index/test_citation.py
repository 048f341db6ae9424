"""A citation has the installed version, and a methods paragraph has the model's own numbers."""

import csv
import re
from dataclasses import replace
from importlib import resources

from click.testing import CliRunner

import mlci
from conftest import ROOT
from mlci.cli import cli
from mlci.index.citation import bibtex, methods
from toys import random_model


def test_entries_name_paper_and_version():
    assert re.findall(r"@(\w+)\{", bibtex()) == ["inproceedings", "software"]
    assert f"version = {{{mlci.__version__}}}" in bibtex()
    assert bibtex().count("{") == bibtex().count("}")


def test_citation_and_changelog_name_the_version():
    assert f"version: {mlci.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {mlci.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_methods_paragraph_has_the_models_own_numbers():
    model = random_model()
    card = {**model.card, "source": "Hospital X, 2019-2021", "admissions": {"train": 12345, "valid": 678}}
    text = methods(replace(model, card={**card, "positives": dict.fromkeys(model.outcomes, 321)}))
    for expected in ("12,345 admissions", "678 more", "Hospital X, 2019-2021", "321 events", f"seed {card['seed']}"):
        assert expected in text


def test_methods_paragraph_states_data_dates_and_auroc():
    text = methods(mlci.load("us2010").model_)
    assert "(US short-stay hospitals, National Hospital Discharge Survey 2010; discharges of 2010)" in text
    with (resources.files("mlci.index") / "data" / "us2010.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if (row["metric"], row["outcome"]) == ("auroc", "mortality"))
    value, low, high = (f"{float(row[name]):.3f}" for name in ("value", "low", "high"))
    reached = f"in-hospital mortality {value} (95% interval {low} to {high});"
    assert f"AUROC of the score on the test split: {reached}" in text
    assert "nan" not in text


def test_cite_prints_the_entries_and_the_methods_paragraph(tmp_path):
    random_model().save(tmp_path / "model.safetensors")
    done = CliRunner().invoke(cli, ["cite", str(tmp_path / "model.safetensors")], catch_exceptions=False)
    assert "Severity was scored with mlci" in done.output
    assert CliRunner().invoke(cli, ["cite"], catch_exceptions=False).output.strip() == bibtex()
