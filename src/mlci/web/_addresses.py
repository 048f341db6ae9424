"""The addresses that the page of one admission links to: the same admission with a change."""

from collections.abc import Sequence
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
        return "/?" + urlencode([*fields, *([("icd", self.version)] if self.version_given else []), *person])

    def with_codes(self, codes: str) -> str:
        """Return the address of other codes, with the same ones left out and added."""
        return self.plain(codes, off=self.off, plus=self.plus)

    def offered(self, missed: Missed, suggestion: Suggestion, *, added: bool = False) -> str:
        """Return the address with a piece of text replaced by a suggestion."""
        instead = self._written(suggestion)
        if added:
            plus = [text.replace(missed.text, instead, 1) for text in self.plus]
            return self.plain(self.codes, off=self.off, plus=plus)
        return self.with_codes(self.codes.replace(missed.text, instead, 1))

    def translated(self, pieces: Sequence[Missed]) -> str:
        """Return the address with every code of the other ICD version replaced by the first suggestion."""
        text = self.codes
        for missed in pieces:
            text = text.replace(missed.text, self._written(missed.suggestions[0]), 1)
        return self.with_codes(text)

    def _written(self, suggestion: Suggestion) -> str:
        return " ".join(icd.dotted(code, self.version) for code in suggestion.codes)
