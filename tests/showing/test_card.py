"""The points card: integers, groups, and what it says about itself."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.index.estimator import MLCI
from mlci.showing.card import Card, fit_points, groups, make_card
from toys import random_model, toy_cohort


@pytest.fixture(scope="module")
def index() -> MLCI:
    index = MLCI()
    index.model_ = random_model()
    return index


@pytest.fixture(scope="module")
def card(index) -> Card:
    return make_card(index, toy_cohort(1500, names=("mortality", "long stay")), size=12)


def test_whole_points_are_found_again():
    """A score that is a card is given back, in the coarsest unit; groups that lower it or do nothing stay out."""
    rng = np.random.default_rng(0)
    present = (rng.random((4000, 8)) < 0.3).astype(np.int64)
    points = np.array([5, 2, 0, 1, 3, 0, 0, 4])
    score = 0.3 * present @ points - 0.4 * present[:, 5] + 7
    np.testing.assert_array_equal(fit_points(sparse.csr_array(present), score, size=8), points)


def test_a_short_card_takes_the_groups_that_explain_most():
    rng = np.random.default_rng(1)
    present = (rng.random((3000, 7)) < rng.uniform(0.1, 0.5, 7)).astype(np.int64)
    score = present @ np.array([3, 0.2, 1, 2, 0.5, 0.1, 1.5]) + rng.normal(0, 0.3, 3000)

    def error(chosen) -> float:
        design = np.column_stack([np.ones(3000), present[:, chosen]])
        return np.linalg.lstsq(design, score, rcond=None)[1][0]

    best = min(combinations(range(7), 3), key=lambda chosen: error(list(chosen)))
    found = np.flatnonzero(fit_points(sparse.csr_array(present), score, size=3))
    assert tuple(found) == best


def test_a_group_counts_once():
    admissions = Admissions.from_lists([["A001", "A002", "B021"], [], ["B021", "B021"]], icd_version=10)
    present, names = groups(admissions)
    assert names == [(10, "A00"), (10, "B02")]
    np.testing.assert_array_equal(present.todense(), [[1, 1], [0, 0], [0, 1]])


def test_the_card_follows_the_index(card, index):
    assert 1 <= len(card.lines) <= 12
    assert all(line.points >= 1 and line.admissions >= 50 for line in card.lines)
    loss = card.loss.set_index("model")
    assert loss.loc["index", "rank correlation"] == pytest.approx(1)
    assert loss.loc["card", "rank correlation"] > 0.3
    by_hand = sum(line.points for line in card.lines if line.category in ("A00", "B02"))
    admission = Admissions.from_lists([["A001", "A002", "B021"]], icd_version=10)
    assert card.points(admission).tolist() == [by_hand]
    assert card.meaning["admissions"].sum() == 1050
    assert (card.meaning["from"].to_numpy()[1:] > card.meaning["to"].to_numpy()[:-1]).all()
    for line, code in card.example:
        assert code.startswith(line.category)


def test_card_files(card, tmp_path):
    card.write(tmp_path / "card.csv")
    assert pd.read_csv(tmp_path / "card.csv")["points"].sum() == sum(line.points for line in card.lines)
    card.write(tmp_path / "card.html")
    text = (tmp_path / "card.html").read_text()
    assert text.count("<li>") == len(card.lines)
    assert "http" not in text
    assert "<script" not in text
    card.write(tmp_path / "card.pdf")
    page = (tmp_path / "card.pdf").read_bytes()
    assert page.startswith(b"%PDF")
    assert page.count(b"/Type /Page\n") == 1
    with pytest.raises(InputError, match=r"as .html, .pdf or .csv"):
        card.write(tmp_path / "card.docx")


def test_card_command(index, tmp_path, mlci_cli):
    index.model_.save(tmp_path / "m.safetensors")
    toy_cohort(1500, names=("mortality", "long stay")).write(tmp_path / "c.parquet")
    done = mlci_cli("card", "m.safetensors", "c.parquet", "-o", "card.csv", "--groups", 5)
    assert "Charlson" in done.stderr
    assert len(pd.read_csv(tmp_path / "card.csv")) <= 5
    assert (
        "no admission in the split future"
        in mlci_cli("card", "m.safetensors", "c.parquet", "-o", "card.csv", "--split", "future", code=2).stderr
    )
