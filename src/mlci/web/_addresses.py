"""The addresses that the page of one admission links to: the same admission with a change."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from mlci.codes import icd
from mlci.codes.parse import Missed, Suggestion


@dataclass(frozen=True)
class CaseAddress:
    """An admission as given in an address: the typed text, the codes left out, and the codes added."""

    codes: str
    off: tuple[str, ...]
    plus: tuple[str, ...]
    version: int
    version_given: bool  # whether the version is in the address
    age: str = ""
    sex: str = ""

    def plain(self, codes: str, *, off: Sequence[str] = (), plus: Sequence[str] = ()) -> str:
        """Return the address of other codes, with some left out or added.

        >>> CaseAddress("I50.9", (), (), 10, version_given=False).plain("I10", off=["I10"])
        '/?codes=I10&off=I10'
        """
        fields = [("codes", codes), *(("off", code) for code in off), *(("plus", code) for code in plus if code)]
        person = [(name, value) for name, value in (("age", self.age), ("sex", self.sex)) if value]
        return "/?" + urlencode([*fields, *self._version(), *person])

    def compared(self, *texts: str) -> str:
        """Return the address that compares one or two texts of codes.

        >>> CaseAddress("486", (), (), 9, version_given=True).compared("486", "518.81")
        '/compare?a=486&b=518.81&icd=9'
        """
        return "/compare?" + urlencode([*zip("ab", texts), *self._version()])

    def _version(self) -> list[tuple[str, int]]:
        return [("icd", self.version)] if self.version_given else []

    def with_codes(self, codes: str) -> str:
        """Return the address of other codes, with the same ones left out and added."""
        return self.plain(codes, off=self.off, plus=self.plus)

    def offers(self, pieces: Sequence[Missed], *, added: bool = False) -> Callable[[int, Suggestion], str]:
        """Return a function for the address with one of all `pieces`, given by its number, replaced by a suggestion."""
        text = "\n".join(self.plus) if added else self.codes
        places = _places(text, pieces)

        def offered(number: int, suggestion: Suggestion) -> str:
            start, end = places[number]
            changed = text[:start] + self._written(suggestion) + text[end:]
            return self.plain(self.codes, off=self.off, plus=changed.split("\n")) if added else self.with_codes(changed)

        return offered

    def translated(self, pieces: Sequence[Missed]) -> str:
        """Return the address with every code of the other ICD version replaced by the first suggestion."""
        found, done = "", 0
        for missed, (start, end) in zip(pieces, _places(self.codes, pieces)):
            found, done = found + self.codes[done:start] + self._written(missed.suggestions[0]), end
        return self.with_codes(found + self.codes[done:])

    def _written(self, suggestion: Suggestion) -> str:
        return " ".join(icd.dotted(code, self.version) for code in suggestion.codes)


def _places(text: str, pieces: Sequence[Missed]) -> list[tuple[int, int]]:
    """Return where each of some pieces of a text begins and ends; they are in its order, and never part of a word.

    >>> _places("urosepsis, sepsis", [Missed("sepsis", ())])
    [(11, 17)]
    """
    text = re.sub(icd.DECIMAL_COMMA, icd.WITH_DOT, text)  # as pieces have it; it stays as long
    places, end = [], 0
    for missed in pieces:
        start = text.find(missed.text, end)
        while start >= 0 and _within_word(text, start, missed):
            start = text.find(missed.text, start + 1)
        start = start if start >= 0 else len(text)
        end = min(start + len(missed.text), len(text))
        places.append((start, end))
    return places


def _within_word(text: str, start: int, missed: Missed) -> bool:
    """Return whether a piece that is found at `start` is only a part of a word or code there."""
    end = start + len(missed.text)
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return any(character.isalnum() and (character.isascii() or not missed.code_like) for character in around)
