"""Find ICD codes in text that people paste: lists, numbered lines, titles, prose.

`read` returns the codes in order, and the pieces that it did not understand. Each of these has suggestions: codes that
differ by one typing error, counterparts of a code of the other ICD version, or titles with the words. Nothing is
guessed: words never become codes, and the user decides about codes that no ICD table has.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from string import ascii_uppercase, digits
from typing import Literal

from mlci.codes import icd
from mlci.codes.maps import counterparts, is_mapped
from mlci.codes.search import is_title_word, search, words_of

SUGGESTIONS = 3  # the most suggestions for a piece
MOST_SUGGESTED = 30  # the most pieces of a text that get suggestions
# Characters that are easily confused when reading or typing.
ALIKE = [{"0", "O", "Q", "D"}, {"1", "I", "L"}, {"5", "S"}, {"8", "B"}, {"2", "Z"}, {"6", "G"}]
MARKER = re.compile(r"^\s*(?:[-*•·–#]\s*)?(?:\(?\d{1,2}(?:[.):]|\s*[-–])(?=\s|[A-Za-z]))?\s*")
TOKEN = re.compile(r"[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*")
BREAK = re.compile(r"[,:()\[\]{}|/–—•=>\"“”]+|\s-+\s|\.\s|\.$|\?|!")
NUMBER = re.compile(r"\s*\d{3,}\s*")
JOINT = re.compile(r"\b(?:and|with|or|plus|due to|as well as)\b|[&+]", re.IGNORECASE)
LETTER_FIRST = re.compile(r"[A-Z][A-Z0-9]{2,7}")
FURTHER = re.compile(r"\d{1,4}|[0-9X]{3}[ADS]")  # characters that WHO and later editions add to categories of ICD-10-CM


@dataclass(frozen=True)
class Understood:
    """A code that is in an ICD table, or whose category is (`exact` is false)."""

    code: str
    title: str | None
    exact: bool = True


@dataclass(frozen=True)
class Suggestion:
    """A suggestion: one code, or several that belong together."""

    codes: tuple[str, ...]
    title: str
    why: Literal["near miss", "other version", "title"]


@dataclass(frozen=True)
class Missed:
    """A piece of text that was not understood."""

    text: str
    suggestions: tuple[Suggestion, ...]
    other_version: int | None = None  # the other ICD version, if it has the text as a code
    code_like: bool = False

    @property
    def counts(self) -> bool:
        """Whether it seems to be a diagnosis rather than words of prose."""
        return self.code_like or bool(self.suggestions)


@dataclass(frozen=True)
class Parsed:
    """The result of `read`."""

    codes: tuple[Understood, ...]
    missed: tuple[Missed, ...]


def read(text: str, version: int, *, seen: Callable[[str], bool] = lambda code: False) -> Parsed:
    """Find the codes in a text.

    Args:
        text: the text that a person typed or pasted.
        version: 9 or 10, the ICD version of the codes.
        seen: returns whether a code is known outside the ICD tables, such as a hospital's own code in a model.

    Returns:
        The codes, and the pieces that were not understood.

    >>> reading = read("1. I50.9 - Heart failure, unspecified; sepsis", 10)
    >>> [piece.code for piece in reading.codes], [(piece.text, piece.suggestions[0].codes) for piece in reading.missed]
    (['I509'], [('sepsis', ('A419',))])
    """
    codes: list[Understood] = []
    pieces: list[str | Missed] = []
    text = re.sub(icd.DECIMAL_COMMA, icd.WITH_DOT, text.translate(icd.WIDE))
    for line in re.split(r"[\n\r;\t]+", text):
        line, end = MARKER.sub("", line), 0
        for token in TOKEN.finditer(line):
            code = icd.normalise(token[0])
            understood = understand(code, version) if _well_dotted(token[0], code, version) else None
            understood = understood or (Understood(code, None) if seen(code) else None)
            missed = None if understood else _unknown_code(token[0], code, version)
            if not (understood or missed):
                continue
            pieces += [line[end : token.start()], *([missed] if missed else [])]
            codes += [understood] if understood else []
            end = token.end()
        alone = NUMBER.fullmatch(line) and not end  # a number among words is no code, but one alone was meant as one
        pieces.append(Missed(line.strip(), ()) if alone else line[end:])
    return Parsed(tuple(codes), tuple(_missed(pieces, codes, version)))


def understand(code: str, version: int) -> Understood | None:
    """Look a code up in the ICD tables.

    ICD-10 codes of other editions (WHO, deleted, later) are understood by their category; headings count as codes.

    Args:
        code: a normalised code.
        version: 9 or 10.

    Returns:
        The code with its title; None if the tables have neither the code nor its category.

    >>> understand("I509", 10).title, understand("I5O9", 10)
    ('Heart failure, unspecified', None)
    """
    if not code:
        return None
    title = icd.title(code, version)
    if title is not None or is_mapped(code, version):
        return Understood(code, title)
    if version == 9:  # whose table has no headings
        return Understood(code, None) if code in _headings() else None
    category = icd.title(code[:3], 10)
    return Understood(code, category, exact=False) if category and FURTHER.fullmatch(code[3:]) else None


def near_misses(code: str, version: int) -> list[str]:
    """Find the codes that differ by one error: a similar character, two swapped ones, or any other single change.

    Args:
        code: a normalised text.
        version: 9 or 10.

    Returns:
        Codes of the table, the likeliest first.

    >>> near_misses("I5O9", 10)[0]  # the letter O for a zero
    'I509'
    """
    places = range(len(code) + 1)
    alike = _alike(code) | ({"0" + code, "00" + code} if code.isdigit() else set())  # spreadsheets drop zeros
    swapped = {code[:at] + code[at + 1] + code[at] + code[at + 2 :] for at in range(len(code) - 1)}
    other = {code[:at] + code[at + 1 :] for at in places}
    for character in ascii_uppercase + digits:
        other |= {code[:at] + character + code[at + skip :] for at in places for skip in (0, 1)}
    ranks = {found: rank for rank, group in ((2, other), (1, swapped), (0, alike)) for found in group}
    ranks[code] = -1  # the code itself, written with its dot in the wrong place
    known = [found for found in ranks if icd.title(found, version) is not None]
    shared = {found: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(found, code))) for found in known}
    return sorted(known, key=lambda found: (ranks[found], -shared[found], abs(len(found) - len(code)), found))


def _alike(code: str) -> set[str]:
    """Return the variants of a code with one character replaced by a similar one."""
    return {
        code[:at] + other + code[at + 1 :]
        for at, character in enumerate(code)
        for group in ALIKE
        if character in group
        for other in group
    }


def _well_dotted(text: str, code: str, version: int) -> bool:
    """Return whether a dot is in its place: 38.9 is not the ICD-9 heading 389."""
    return "." not in text or text.upper() == icd.dotted(code, version)


def _unknown_code(text: str, code: str, version: int) -> Missed | None:
    """Return a piece for a token that looks like a code but is none; None for words and numbers."""
    numeric = code.isdigit()
    if not (numeric and 3 <= len(code) <= 5) and not (
        LETTER_FIRST.fullmatch(code) and 3 * sum(map(str.isdigit, code)) >= len(code)
    ):
        return None
    other = icd.OTHER[version]
    elsewhere = understand(code, other) if _well_dotted(text, code, other) else None
    if elsewhere and not elsewhere.exact and "." not in text:
        elsewhere = None
    if not elsewhere and (is_title_word(text, version) or (numeric and version == 10)):
        return None
    found = []
    for way in counterparts(code, other) if elsewhere else ():
        titles = [icd.title(other, version) for other in way.codes]
        if all(titles):
            found.append(Suggestion(way.codes, " + ".join(map(str, titles)), "other version"))
    near = [other for other in near_misses(code, version) if not found or other in _alike(code)]
    found = [
        *found[: SUGGESTIONS - 1],
        *(Suggestion((other,), icd.title(other, version) or "", "near miss") for other in near),
    ]
    return Missed(text, tuple(found[:SUGGESTIONS]), other if elsewhere else None, code_like=True)


def _missed(pieces: list[str | Missed], codes: list[Understood], version: int) -> list[Missed]:
    """Return the pieces without codes, except words that only describe the codes of the text."""
    pieces = [piece for piece in pieces if isinstance(piece, Missed) or piece.strip()]
    if not pieces:  # codes and blanks alone
        return []
    described = [words_of(known.title or "") for known in codes]
    described += [
        words_of(suggestion.title) for piece in pieces if isinstance(piece, Missed) for suggestion in piece.suggestions
    ]
    described += [
        words_of(icd.title(piece.text, piece.other_version) or "")
        for piece in pieces
        if isinstance(piece, Missed) and piece.other_version
    ]
    categories, found = {known.code[:3] for known in codes}, []
    for piece in pieces:
        if isinstance(piece, Missed):
            found.append(piece)
            continue
        for phrase in BREAK.split(piece):
            found += _of_words(phrase.strip(" .-'*†"), described, categories, version, len(found) < MOST_SUGGESTED)
    return found


def _of_words(
    phrase: str, described: list[set[str]], categories: set[str], version: int, suggest: bool, *, whole: bool = True
) -> list[Missed]:
    words = list(re.finditer(r"[^\W_]+", phrase))
    content = [word for word in words if not (word[0].lower() in _filling() or word[0].isdigit() or len(word[0]) < 2)]
    named = [word[0].lower() for word in content]
    if not content or any(2 * sum(word in title for word in named) > len(named) for title in described):
        return []
    core = phrase[content[0].start() : content[-1].end()]  # without filling words at either end
    joint = whole and JOINT.search(core)
    query = " ".join(re.findall(r"[^\W_]+", core))
    hits = search(query, version, SUGGESTIONS, loose=not joint) if suggest and len(words) < 12 else []
    if joint and not hits:
        parts = (part.strip() for part in JOINT.split(phrase))
        return [
            piece for part in parts for piece in _of_words(part, described, categories, version, suggest, whole=False)
        ]
    if any(hit.code[:3] in categories for hit in hits):  # "CHF" in a text with I50.9
        return []
    return [Missed(core, tuple(Suggestion((hit.code,), hit.title, "title") for hit in hits))]


@cache
def _filling() -> frozenset[str]:
    """Return filling words; a phrase of these alone names no disease."""
    return frozenset((icd.DATA / "filling_words.txt").read_text(encoding="utf-8").split())


@cache
def _headings() -> set[str]:
    """Return the headings of ICD-9-CM: prefixes of its codes."""
    return {code[:length] for code in icd.all_codes(9).to_pylist() for length in range(3, len(code))}
