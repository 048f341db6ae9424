"""The model card: the facts of a model file, the same for page, report, points card and Markdown."""

from dataclasses import replace

import pytest

import mlci
from mlci.base.errors import InputError
from mlci.index.model import load_model
from mlci.index.modelcard import NOT_SAID, described, facts, limits, model_card
from toys import random_model, toy_cohort


@pytest.mark.parametrize(
    ("source", "dates", "licence"),
    [
        ("nhds", "discharges of 2010", "public domain, for statistical use only"),
        ("mimic3", "2001 to 2012, every patient's dates shifted", "PhysioNet Credentialed Health Data License 1.5.0"),
        ("mimic4", "2008 to 2019, from version 3.0 on to 2022", "Open Database License 1.0: which of them is not"),
        ("synthetic", "none: computed", "free of rights of others"),
        ("ward 3", NOT_SAID, NOT_SAID),
    ],
)
def test_dates_and_licence_are_those_of_the_source_or_not_stated(source, dates, licence):
    known = facts(
        replace(random_model(), card={**random_model().card, "source": source})
    )  # like a file of an earlier version
    assert dates in known["Dates"]
    assert licence in known["Licence of the data"]


def test_the_user_describes_the_data(mlci_cli, tmp_path):
    toy_cohort(400).write(tmp_path / "cohort.parquet")
    about = ["--about", "dates=2019 to 2023", "--about", "licence=of this hospital, not to be passed on"]
    mlci_cli("fit", "cohort.parquet", "-o", "own.safetensors", *about)
    model = load_model(tmp_path / "own.safetensors")
    assert facts(model)["Dates"] == "2019 to 2023"
    assert "- **Licence of the data**: of this hospital, not to be passed on.\n" in model_card(model)
    for wrong, reason in (
        ("when=2019", "allowed are data, dates"),
        ("data=", "1 to 1000"),
        (f"data={'x' * 1001}", "1 to 1000"),
    ):
        done = mlci_cli("fit", "cohort.parquet", "-o", "x.safetensors", "--about", wrong, code=2)
        assert reason in done.stderr
        assert "Learning" not in done.stderr  # refused before the fit
    mlci.load(tmp_path / "own.safetensors").save(tmp_path / "again.safetensors", about={"data": "Ward 3"})
    again = facts(load_model(tmp_path / "again.safetensors"))
    assert (again["Data"], again["Dates"]) == ("Ward 3; ICD-10", "2019 to 2023")
    with pytest.raises(InputError, match="is not allowed; allowed are data, dates, licence"):
        described(model, {"limits": "none"})


def test_limits_are_general_and_specific_to_the_model():
    found = limits(random_model())
    assert any("not for decisions about one patient" in limit for limit in found)
    few = replace(random_model(), card={**random_model().card, "positives": {"mortality": None, "long stay": 12}})
    assert limits(few)[-2:] == [
        "In-hospital mortality: fewer than 10 (or all but so few) events in training; its risks are imprecise.",
        "Long stay: 12 events in training; its risks are imprecise.",
    ]
    hidden = replace(few, card={**few.card, "positives": {"long stay": 12}, "weights": {"mortality": 1.0}})
    assert limits(hidden) == limits(few)  # a fit leaves out a count of fewer than ten
    assert "| In-hospital mortality | died | fewer than 10 (or all but so few) | not said |" in model_card(few)
