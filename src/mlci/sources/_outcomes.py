"""Parse the rule of an outcome, one line of text; files, frames and a hospital's tables use the same rules.

    expired                 a column of 0 and 1, true and false, Y and N, yes and no
    disposition:20,41       one of these values
    los > 7                 a number compared, also with >=, < and <=
    death within 30 days    and, where the tables have times, icu after 24 hours, readmission within 30 days

A `Rule` turns a column into true, false and null. An empty cell is "not known". Any other value that the rule does not
allow is null too, never false; callers find such values with `known`.
"""

import re
from dataclasses import dataclass
from typing import Any

import ibis

from mlci.base.errors import InputError
from mlci.base.tablefile import MISSING

TRUE, FALSE = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
UNKNOWN = tuple(sorted({word.lower() for word in MISSING}))
FLAG = "0 or 1, true or false, yes or no, Y or N; empty where not known"
FORMS = (
    "a column of 0 and 1 (or yes and no), 'column:VALUE,VALUE', 'column > 7' (also >=, <, <=), 'death within 30 days', "
    "'icu after 24 hours' or 'readmission within 30 days'"
)
TIMED = {
    "death": re.compile(r"death within (\d+) days?"),
    "icu": re.compile(r"icu after (\d+) hours?"),
    "readmission": re.compile(r"readmission within (\d+) days?"),
}
COMPARED = re.compile(r"([^<>=:]+?)\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)")
NAMED = re.compile(r"([^<>=:]+?)\s*:\s*(.+)")


@dataclass(frozen=True)
class Rule:
    """One outcome: `kind` is flag, value or compare (of a column), or death, icu or readmission (of times)."""

    kind: str
    column: str = ""
    values: tuple[str, ...] = ()
    sign: str = ""
    number: float = 0

    @property
    def words(self) -> str:
        """The rule in words, for the cohort file."""
        number = f"{self.number:g}"
        return {
            "flag": f"column {self.column} says yes",
            "value": f"column {self.column} is {' or '.join(self.values)}",
            "compare": f"column {self.column} is {self.sign} {number}",
            "death": f"death from 0 to {number} elapsed days after admission",
            "icu": f"first entry to intensive care more than {number} hours after admission",
            "readmission": f"the patient's next admission begins 0 to {number} elapsed days after the discharge",
        }[self.kind]

    @property
    def allowed(self) -> str:
        """The values that the column may hold, in words."""
        return {"flag": FLAG, "compare": "a number such as 3.5, or empty where not known"}.get(self.kind, "")

    def of(self, text: Any, number: Any) -> Any:
        """Return true, false or null, given the column as text and as number (Ibis expressions)."""
        plain = text.strip().lower()
        if self.kind == "flag":
            return ibis.cases((plain.isin(TRUE), True), (plain.isin(FALSE), False), else_=ibis.null("boolean"))
        if self.kind == "value":
            wanted = [value.lower() for value in self.values]
            wanted += [f"{value}.0" for value in wanted if value.isdigit()]  # a whole number in a column of floats
            return ibis.ifelse(text.notnull() & plain.notin(UNKNOWN), plain.isin(wanted), ibis.null("boolean"))
        signs = {">": number > self.number, ">=": number >= self.number}
        signs |= {"<": number < self.number, "<=": number <= self.number}
        not_a_number = number.cast("float64").isnan()  # which engines take for larger than any number
        return ibis.ifelse(not_a_number, ibis.null("boolean"), signs[self.sign])


def known(text: Any) -> Any:
    """Return whether a cell of text holds a value, other than "not known" (an Ibis expression)."""
    return text.notnull() & text.strip().lower().notin(UNKNOWN)


def parse(text: str, where: str) -> Rule:
    """Parse a rule; `where` names the outcome in messages.

    >>> parse("disposition:20, 41", "died")
    Rule(kind='value', column='disposition', values=('20', '41'), sign='', number=0)
    >>> parse("los >= 7", "long_stay").words
    'column los is >= 7'
    """
    text = text.strip()
    for kind, form in TIMED.items():
        if found := form.fullmatch(text):
            return Rule(kind, number=int(found[1]))
    if found := COMPARED.fullmatch(text):
        return Rule("compare", found[1].strip(), sign=found[2], number=float(found[3]))
    if (found := NAMED.fullmatch(text)) and (values := tuple(filter(None, map(str.strip, found[2].split(","))))):
        return Rule("value", found[1].strip(), values)
    if not text or re.search(r"[<>=:]", text):
        raise InputError(f"{where}: {text!r} is not a rule; allowed is {FORMS}.")
    return Rule("flag", text)
