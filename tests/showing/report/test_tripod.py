"""The appendix: 27 items, answered by the model and the cohort, by the authors, or marked as theirs."""

import re

import pytest

from mlci.base.errors import InputError
from mlci.showing.report import build, read_study
from mlci.showing.report._compute import compute
from mlci.showing.report._tripod import items
from toys import random_index, toy_cohort


@pytest.fixture(scope="module")
def made():
    cohort = toy_cohort(300)
    index = random_index(cohort)
    return index, cohort, compute(index.model_, cohort, resamples=20)


def test_every_item_is_answered_or_left_to_the_authors(made):
    found = items(made[2], {})
    assert [item.number for item in found] == list(range(1, 28))
    assert all(item.known or item.wanted for item in found)
    said = {item.key: item.known for item in found}
    assert "210 training and 30 tuning admissions" in said["data"]
    assert "rule of mortality" in said["outcomes"]
    events = made[2].judgement.outcomes[0]
    assert f"{events.positives:,} of {events.n:,}" in said["development"]
    assert said["ethics"] == ""


def test_answers_of_the_authors_take_their_place(made, tmp_path, empty_figures):
    (tmp_path / "study.toml").write_text('ethics = "Waived by <board> 12."\ndata = "Admissions of 2019."\n')
    study = read_study(tmp_path / "study.toml")
    found = {item.key: item for item in items(made[2], study)}
    assert found["ethics"].given == "Waived by <board> 12."
    assert found["ethics"].wanted == ""
    assert found["data"].known
    assert found["data"].given
    page = build(*made[:2], command="x", resamples=20, study=study)
    assert "Waived by &lt;board&gt; 12." in page
    appendix = page[page.index('id="tripod"') :]
    marked = re.findall(r"To be filled in by the authors \(<code>(\w+)</code>\)", appendix)
    assert "ethics" not in marked
    assert {"background", "openness", "involvement"} <= set(marked)
    assert len(re.findall("<dt>", appendix)) == 27


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ethics = ", "is not TOML"),
        ('ethic = "x"', "ethic is not an item; allowed are title"),
        ("ethics = 3", "ethics is not a text"),
        (b'ethics = "\xff"', "is not text in UTF-8"),
    ],
)
def test_a_study_that_cannot_be_used_is_reported(text, said, tmp_path):
    path = tmp_path / "study.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=re.escape(str(path)) + ".*" + said):
        read_study(path)
