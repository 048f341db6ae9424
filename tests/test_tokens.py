import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.codes.admissions import Admissions
from mlci.tokens import UNK, Tokens, Vocabulary

CODES = st.lists(
    st.lists(st.sampled_from(["I509", "I5021", "N179", "E119", "E11", "Z515", "A4"]), max_size=6), max_size=8
)


def mixed(*codes: tuple[str, int]) -> Admissions:
    """Return one admission per code, with its ICD version."""
    values, versions = zip(*codes)
    return Admissions(
        ids=np.arange(len(codes)),
        values=np.array(values, dtype=object),
        versions=np.array(versions, dtype=np.int8),
        indices=np.arange(len(codes), dtype=np.int32),
        offsets=np.arange(len(codes) + 1),
    )


def texts(vocabulary: Vocabulary, tokens: Tokens) -> list[list[str]]:
    names = ["<PAD>", "<UNK>", *vocabulary.tokens]
    parts = np.split(tokens.ids, tokens.offsets[1:-1]) if len(tokens) else []
    return [[names[number] for number in part] for part in parts]


@given(CODES)
def test_tokens_are_prefixes_in_recorded_order(codes):
    vocabulary = Vocabulary.fit(Admissions.from_lists(codes))
    assert vocabulary.tokens == tuple(sorted({code[:4] for admission in codes for code in admission}))
    tokens = vocabulary.encode(Admissions.from_lists(codes))
    assert tokens.ids.dtype == np.int32
    assert texts(vocabulary, tokens) == [[code[:4] for code in admission] for admission in codes]


@given(CODES)
def test_three_depths_give_each_prefix_once(codes):
    vocabulary = Vocabulary.fit(Admissions.from_lists(codes), depths=(3, 4, 7))
    got = texts(vocabulary, vocabulary.encode(Admissions.from_lists(codes)))
    assert got == [
        [token for code in admission for token in dict.fromkeys([code[:3], code[:4], code])] for admission in codes
    ]


def test_unknown_code_keeps_its_known_prefixes():
    vocabulary = Vocabulary.fit(Admissions.from_lists([["I5021"]]), depths=(3, 4, 7))
    got = texts(vocabulary, vocabulary.encode(Admissions.from_lists([["I5022", "I519", "A419"]])))
    assert got == [["I50", "I502", "<UNK>", "<UNK>"]]


@given(CODES, st.integers(1, 4))
def test_tokens_of_too_few_admissions_are_dropped(codes, least):
    kept = Vocabulary.fit(Admissions.from_lists(codes), depths=(3, 4), min_admissions=least).tokens
    counts = {}
    for admission in codes:
        for token in {code[:depth] for code in admission for depth in (3, 4)}:
            counts[token] = counts.get(token, 0) + 1
    assert kept == tuple(sorted(token for token, count in counts.items() if count >= least))


def test_same_code_in_two_icd_versions_is_two_tokens():
    vocabulary = Vocabulary.fit(mixed(("E869", 9), ("E869", 10), ("V103", 9)))
    ids = vocabulary.encode(mixed(("E869", 9), ("E869", 10), ("V103", 10))).ids
    assert len(vocabulary) == 5
    assert len(set(ids)) == 3
    assert ids[2] == UNK


@pytest.mark.parametrize(("fitted", "given_", "known"), [(9, 9, True), (9, 10, False), (9, 0, True), (0, 10, True)])
def test_missing_version_is_read_as_the_only_version_of_the_vocabulary(fitted, given_, known):
    vocabulary = Vocabulary.fit(mixed(("4280", fitted)))
    assert (vocabulary.encode(mixed(("4280", given_))).ids[0] != UNK) == known


def test_missing_version_is_unknown_if_the_vocabulary_has_two():
    vocabulary = Vocabulary.fit(mixed(("4280", 9), ("I509", 10)))
    assert vocabulary.encode(mixed(("4280", 0))).ids[0] == UNK


def test_only_the_first_max_codes_of_an_admission_count():
    long = Admissions.from_lists([["A000"] * 3 + ["B000"] * 10_000, ["C000"]])
    vocabulary = Vocabulary.fit(long, max_codes=4)
    assert vocabulary.tokens == ("A000", "B000", "C000")
    assert vocabulary.encode(long).counts.tolist() == [4, 1]
    assert Vocabulary.fit(long, max_codes=3).tokens == ("A000", "C000")


def test_empty_data_give_an_empty_vocabulary():
    empty = Admissions.from_lists([])
    vocabulary = Vocabulary.fit(empty)
    assert len(vocabulary) == 2
    assert len(vocabulary.encode(empty)) == 0
    assert vocabulary.encode(Admissions.from_lists([[], ["I509"]])).ids.tolist() == [UNK]


@given(CODES, st.randoms())
def test_take_reorders_admissions(codes, random):
    admissions = Admissions.from_lists(codes)
    vocabulary = Vocabulary.fit(admissions)
    tokens = vocabulary.encode(admissions)
    rows = np.array([random.randrange(len(codes)) for _ in range(5)] if codes else [], dtype=np.int64)
    everything = texts(vocabulary, tokens)
    assert texts(vocabulary, tokens.take(rows)) == [everything[row] for row in rows]


@given(CODES, st.integers(1, 3))
def test_primary_adds_tokens_of_the_first_code(codes, least):
    admissions = Admissions.from_lists(codes)
    options = {"depths": (3, 4), "min_admissions": least}
    plain, marked = (Vocabulary.fit(admissions, primary=primary, **options) for primary in (False, True))
    firsts = Vocabulary.fit(Admissions.from_lists([admission[:1] for admission in codes]), **options)
    assert set(marked.tokens) == {*plain.tokens, *(f">{token}" for token in firsts.tokens)}
    before, after, alone = (
        texts(vocabulary, vocabulary.encode(Admissions.from_lists(lists)))
        for vocabulary, lists in ((plain, codes), (marked, codes), (firsts, [admission[:1] for admission in codes]))
    )
    for tokens, more, first in zip(before, after, alone):
        assert sorted(more) == sorted(tokens + [f">{token}" for token in first if token != "<UNK>"])
        assert len(more) <= marked.longest
