"""Outcomes read well in headings and sentences, registered ones and a user's own."""

import pytest

from mlci.base.names import OUTCOMES, label, outcome, phrase, words


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_registered_outcome_has_a_heading_and_a_phrase_that_follows_a_percentage(name):
    assert outcome(name).label[0].isupper() or outcome(name).label[0].isdigit()
    assert phrase(name).split()[0] in {"died", "stayed", "were", "needed"}


def test_the_outcomes_of_every_source_are_registered():
    wanted = {"mortality", "mortality_30d", "long_stay", "icu_transfer", "non_home_discharge", "critical_care"}
    assert wanted | {"readmission_30d"} <= set(OUTCOMES)


def test_words_of_an_unregistered_outcome_are_made_from_its_name():
    assert label("acute_kidney_injury") == "Acute kidney injury"
    assert words("acute_kidney_injury") == "acute kidney injury"
    assert phrase("acute_kidney_injury") == "had acute kidney injury"
    assert phrase("AKI") == "had AKI"
    assert label("AKI") == words("AKI") == "AKI"
    assert phrase("readmitted") == "were readmitted"
