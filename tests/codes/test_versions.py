"""The ICD version is guessed if nearly all codes are of one version, and reported; else the user must state it."""

import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.versions import Guess, guess_version


@pytest.mark.parametrize(
    ("counts", "version"),
    [
        ({"I509": 1, "E119": 1}, 10),
        ({"4280": 9, "0389": 1}, 9),
        ({"38": 2, "4280": 1}, 9),  # 038 without its zero
        ({"V10": 1, "4280": 5, "I509": 0}, 9),
        ({"I50": 1}, 10),  # a heading
        ({"I509G": 1, "N179V": 1, "I10Z": 1, "E11A": 1}, 10),  # with the letters of German certainty
        ({"V10": 5, "4280": 5}, 9),  # V is no certainty in front
    ],
)
def test_the_version_is_guessed(counts, version):
    found, said = guess_version(counts, "a.csv")
    assert found == version
    assert f"taken for ICD-{version}" in said


@pytest.mark.parametrize("counts", [{"I509": 5, "4280": 5}, {"QQQ": 1}, {"I50QG": 1}, {}])
def test_what_does_not_tell_is_refused(counts):
    with pytest.raises(InputError, match=r"a.csv: the ICD version .* cannot be told .*--icd-version 9 or 10"):
        guess_version(counts, "a.csv")


def test_the_first_batch_with_codes_decides_the_version_once():
    said: list[str] = []
    guess = Guess("a.csv", said.append)
    batches = [Admissions.from_lists([[]]), Admissions.from_lists([["I509"]]), Admissions.from_lists([["QQQ"]])]
    assert [guess(batch).versions.tolist() for batch in batches] == [[], [10], [10]]
    assert len(said) == 1
    with pytest.raises(InputError, match=r"a.csv: the first codes are ICD-10, later ones of the other .*COLUMN"):
        guess(Admissions.from_lists([["4280"]]))
    stated = Admissions.from_lists([["4280"]], icd_version=9)
    assert guess(stated) is stated
    mixed = Admissions(np.arange(1), np.array(["A", "B"]), np.array([0, 9], np.int8), np.arange(2), np.array([0, 2]))
    assert guess(mixed) is mixed  # a file that says some versions is asked for the others
