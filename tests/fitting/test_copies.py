"""The tokens of copies equal the tokens of shortened codes."""

from dataclasses import replace

from mlci.codes.admissions import as_admissions
from mlci.fitting._copies import COUNT, copies
from mlci.tokens import Vocabulary
from toys import nested_code_lists

LISTS = nested_code_lists(60, seed=4)
VOCABULARY = Vocabulary.fit(as_admissions(LISTS, icd_version=10), depths=(3, 4, 8))


def encoded(lists: list[list[str]]) -> list[list[int]]:
    tokens = VOCABULARY.encode(as_admissions(lists, icd_version=10))
    return [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:])]


def forms(seed: int) -> list[list[list[int]]]:
    """Return each form without its own token, the last one of every copy."""
    tokens = copies(VOCABULARY.encode(as_admissions(LISTS, icd_version=10)), VOCABULARY.parents, seed=seed)
    rows = [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:])]
    assert len(rows) == COUNT * len(LISTS)
    found = [rows[start : start + len(LISTS)] for start in range(0, len(rows), len(LISTS))]
    for number, copied in enumerate(found[1:]):
        assert {row[-1] for row in copied} == {len(VOCABULARY) + number}
    return [found[0], *([row[:-1] for row in copied] for copied in found[1:])]


def test_copies_hold_the_tokens_of_shortened_codes_and_lists():
    whole, cut, few, both, one, some = forms(1)
    assert whole == encoded(LISTS)
    assert cut == encoded([[code[:3] for code in codes] for codes in LISTS])
    assert few == encoded([codes[:3] for codes in LISTS])
    assert both == encoded([[code[:3] for code in codes[:3]] for codes in LISTS])
    assert one == encoded([codes[:1] for codes in LISTS])
    for codes, kept in zip(LISTS, some):  # whole codes, in order
        each = iter([encoded([[code]])[0] for code in codes])
        while kept:
            kept = kept[len(next(own for own in each if kept[: len(own)] == own)) :]
    share = sum(map(len, some)) / sum(map(len, whole))
    assert 0.5 < share < 0.7


def test_the_codes_left_out_depend_on_the_seed_alone():
    assert forms(1) == forms(1)
    assert forms(1)[-1] != forms(2)[-1]


def test_an_unknown_code_counts_as_a_code():
    narrow = replace(VOCABULARY, tokens=VOCABULARY.tokens[:3], versions=VOCABULARY.versions[:3], support=())
    tokens = narrow.encode(as_admissions([["ZZZ1", "ZZZ2", "ZZZ3", "ZZZ4"]], icd_version=10))
    assert copies(tokens, narrow.parents, seed=1).offsets[:5].tolist() == [0, 4, 9, 13, 17]
