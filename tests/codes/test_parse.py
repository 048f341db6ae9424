import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.codes import icd
from mlci.codes.parse import near_misses, read, understand


def codes(text: str, version: int = 10) -> list[str]:
    return [one.code for one in read(text, version).codes]


def missed(text: str, version: int = 10) -> dict[str, list[str]]:
    """What was not understood -> the codes offered."""
    return {one.text: ["+".join(each.codes) for each in one.suggestions] for one in read(text, version).missed}


@pytest.mark.parametrize(
    "text",
    [
        "I50.9 N17.9",
        "i509,n179",
        "I50.9/N17.9",
        "I50,9, N17,9",
        "1. I50.9 - Heart failure, unspecified\n2. N17.9 - Acute kidney failure, unspecified",
        "(1) I50.9: CHF; (2) N17.9: AKI",
        "Patient, 75 years old, admitted on 12.05.2010 with I50.9 and also N17.9.",
        "- I50.9 (heart failure)\n- N17.9 (acute renal failure)",
        "Dx: I50.9† Y, N17.9* N",
    ],
)
def test_codes_are_found_in_lists_titles_and_prose(text):
    assert codes(text) == ["I509", "N179"]
    assert missed(text) == {}


def test_words_are_never_codes_and_are_answered_with_titles():
    assert codes("sepsis") == codes("heart failure") == codes("SEP.SIS") == codes("zork") == []
    assert missed("sepsis")["sepsis"][0] == "A419"
    assert missed("I10, known heart failure")["heart failure"][0] == "I509"
    assert missed("J18.9 pneumonia and heart failure") == {"heart failure": missed("heart failure")["heart failure"]}
    (prose,) = read("flurble zork", 10).missed
    assert not prose.suggestions
    assert not prose.counts


def test_full_width_letters_and_digits_are_read():
    assert [piece.code for piece in read("Ｉ５０．９、Ｅ１１，６５ 心不全", 10).codes] == ["I509", "E1165"]


def test_a_number_alone_is_reported_and_one_among_words_is_not():
    reading = read("I50.9\n73211009\n99213; Patient, 75 years old", 10)
    assert [one.code for one in reading.codes] == ["I509"]
    assert [(one.text, one.suggestions, one.counts) for one in reading.missed][:2] == [
        ("73211009", (), False),
        ("99213", (), False),
    ]
    assert "75" not in {one.text for one in reading.missed}


@pytest.mark.parametrize(
    ("text", "version", "first"),
    [("I5O.9", 10, "I509"), ("I05.9x", 10, "I059"), ("I5.09", 10, "I509"), ("38.9", 9, "0389")],
)
def test_a_mistyped_code_is_not_read_but_offered_right(text, version, first):
    assert codes(text, version) == []
    assert missed(text, version)[text][0] == first


def test_codes_of_the_other_version_are_offered_as_their_counterparts():
    offered = missed("428.0 584.9 401.9")
    assert [suggestions[0] for suggestions in offered.values()] == ["I509", "N179", "I10"]
    assert {one.other_version for one in read("428.0 584.9 401.9", 10).missed} == {9}
    assert missed("I50.9", 9)["I50.9"][0] == "4280"
    assert missed("A02.1", 9)["A02.1"][0] == "0031+99591"  # two that belong together
    assert codes("V42.0", 9) == codes("V42.0", 10) == ["V420"]  # a code of both is the version's own


def test_other_editions_count_by_their_category():
    other = understand("E1199", 10)
    assert other.title == "Type 2 diabetes mellitus"
    assert not other.exact
    assert understand("I50O", 10) is None
    assert understand("E14", 10) is None  # a category that ICD-10-CM does not have
    assert understand("428", 9).exact  # a heading, of which the table has only what is below
    assert understand("", 9) is understand("", 10) is None


def test_codes_known_to_a_model_are_understood_without_the_tables():
    assert [one.code for one in read("LOC7 I10", 10, seen={"LOC7"}.__contains__).codes] == ["LOC7", "I10"]


def test_near_misses_rank_characters_that_look_alike_first():
    assert near_misses("I5O9", 10)[0] == "I509"
    assert near_misses("N197", 10)[0] == "N179"  # swapped
    assert all(icd.title(code, 10) for code in near_misses("QQ1", 10))


@settings(max_examples=25)
@given(st.text(max_size=60))
def test_any_text_is_read(text):
    for version in icd.VERSIONS:
        reading = read(text, version)
        assert all(understand(one.code, version) == one for one in reading.codes)
