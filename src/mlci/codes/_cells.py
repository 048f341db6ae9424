"""Separate the codes that share a cell, and drop the titles behind them."""

import re
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from mlci.codes.certainty import APART, BARE, JOINED, JOINT
from mlci.codes.icd import DECIMAL_COMMA, WITH_DOT, narrowed

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = r"[\s,;|]+"
CODE_LIKE = rf"(?:[A-Za-z][0-9]|[0-9]{{2}})[0-9A-Za-z.]{{1,7}}[^0-9A-Za-z\s,;|]*(?:{JOINT}[A-Za-z])?"
SEVERAL = rf"(?:^|[\s,;|]){CODE_LIKE}[\s,;|](?:.*[\s,;|])?{CODE_LIKE}(?:[\s,;|]|$)"  # several codes in one cell
# Other signs that part two codes: a slash, + or & between them, and blanks and a comma that are not ASCII.
WHOLE = r"(?:[Ee][0-9]{3}\.[0-9]|[A-Za-z][0-9][0-9A-Za-z](?:\.?[0-9A-Za-z]{1,4})?|[0-9]{3}\.[0-9]{1,2})"
GLUED = rf"\b({WHOLE}[^0-9A-Za-z\s,;|/+&]*)\s*[/+&]\s*({WHOLE})\b"
FOREIGN = r"[\p{Z}\x{200b}\x{feff}\x{3001}]"
# A code followed by its title in one cell: "I50.9 Heart failure, unspecified".
TITLED = (
    r"^\s*([A-Za-z][0-9][0-9A-Za-z](?:\.?[0-9A-Za-z]{1,4})?|[0-9]{3}(?:\.?[0-9]{1,2})?|[Ee][0-9]{3}(?:\.[0-9])?)"
    r"(?:\s*[-:(,;|–—]\s*|\s+)(?:.*[^0-9A-Za-z])?[A-Za-z]{3,}(?:[^0-9A-Za-z].*)?$"
)


def split_texts(cells: "pa.Array", version: int = 0) -> "pa.ListArray":
    """Split texts that list the codes of an admission.

    Args:
        cells: the texts; a missing text gives a missing list.
        version: 9 if the codes are of ICD-9, which has no letters of certainty.

    Returns:
        A list of codes for each text. A German letter of certainty stays behind its code, or is an item of its own.

    >>> import pyarrow as pa
    >>> split_texts(pa.array(["I50.9, N17.9", "I50.9 Heart failure; E11.9 Diabetes", "I50,9/N17,9"])).to_pylist()
    [['I50.9', 'N17.9'], ['I50.9', 'E11.9'], ['I50.9', 'N17.9']]
    """
    import pyarrow.compute as pc

    # One match finds all: titles, letters of certainty, other signs between codes, and commas in place of dots.
    odd = rf"(?:{TITLED})|(?:{APART})|(?:{GLUED})|(?:{DECIMAL_COMMA})|[^[:ascii:]]"
    if pc.any(pc.match_substring_regex(cells, odd)).as_py():
        cells = _without_titles(_parted(cells))
        cells = cells if version == 9 else pc.replace_substring_regex(cells, APART, JOINED)
    return pc.split_pattern_regex(cells, SEPARATORS)


def split_cells(cells: "pa.Array") -> tuple["pa.Array", np.ndarray | None]:
    """Split cells that hold several codes; return all codes and how many each cell holds, None if each holds one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _without_titles(_parted(cells))
    several = pc.match_substring_regex(cells, SEVERAL).fill_null(False)
    if not pc.any(several).as_py():
        return cells, None
    lists = [
        [code for code in re.split(SEPARATORS, re.sub(APART, JOINED, text)) if not re.match(BARE, code)]
        if has_several
        else [text]
        for text, has_several in zip(cells.to_pylist(), several.to_pylist())
    ]
    times = np.array([len(codes) for codes in lists])
    return pa.array([code for codes in lists for code in codes], pa.string()), times


def _parted(cells: "pa.Array") -> "pa.Array":
    """Write a blank between two codes that other signs part, and a dot where a code has a comma.

    >>> import pyarrow as pa
    >>> _parted(pa.array(["I50.9/N17.9", "G30.0+F00.0*", "I50.9\\u00a0N17.9", "I50,9,N17,9"])).to_pylist()
    ['I50.9 N17.9', 'G30.0 F00.0*', 'I50.9 N17.9', 'I50.9,N17.9']
    """
    import pyarrow.compute as pc

    if not pc.all(pc.string_is_ascii(cells)).as_py():
        cells = pc.replace_substring_regex(narrowed(cells), FOREIGN, " ")
    cells = pc.replace_substring_regex(cells, DECIMAL_COMMA, WITH_DOT)
    if pc.any(pc.match_substring_regex(cells, GLUED)).as_py():
        for _ in range(2):  # in A/B/C, the second time parts B and C
            cells = pc.replace_substring_regex(cells, GLUED, r"\1 \2")
    return cells


def _without_titles(cells: "pa.Array") -> "pa.Array":
    """Drop the words that follow a code in a cell.

    The first code stays. Of the words behind it those stay that look like a code and are in the ICD table that has the
    first one or, behind a code with a letter, begin with a letter and have a dot.

    >>> import pyarrow as pa
    >>> cells = ["D51.0 Vitamin B12 deficiency", "I50.9 Heart failure; N17.9 Kidney failure", "428.0 CHF; V45.82 PTCA"]
    >>> _without_titles(pa.array(cells)).to_pylist()
    ['D51.0', 'I50.9 N17.9', '428.0 V45.82']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from mlci.codes import icd, zeros

    titled = pc.match_substring_regex(cells, TITLED).fill_null(False)
    if not pc.any(titled).as_py():
        return cells
    found = {}
    for cell in cells.filter(titled).to_pylist():
        (code,) = re.findall(TITLED, cell)
        letter, *rest = re.split(SEPARATORS, re.sub(APART, JOINED, cell).partition(code)[2])
        alike = [word for word in rest if re.fullmatch(CODE_LIKE, word)]
        found[cell] = [code + letter if letter.startswith(JOINT) else code, *alike]
    words = pa.array({word for codes in found.values() for word in codes}, pa.string())
    text = icd.normalise_array(pc.replace_substring_regex(words, f"{JOINT}.*", ""))
    listed = [icd.known(text, version) | zeros.heading(text, version) for version in icd.VERSIONS]
    tables = {word: {*compress(icd.VERSIONS, flags)} for word, *flags in zip(words.to_pylist(), *listed)}
    plain = {}
    for cell, (code, *rest) in found.items():
        lettered = code[0].isalpha()
        own = tables[code] or {10 if lettered else 9}
        kept = (word for word in rest if tables[word] & own or (lettered and word[0].isalpha() and "." in word[:-1]))
        plain[cell] = " ".join([code, *kept])
    return pa.array([plain.get(cell, cell) for cell in cells.to_pylist()], pa.string())
