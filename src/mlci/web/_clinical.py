"""Charlson and Elixhauser of admissions: the points, and the comorbidities behind them.

The comorbidities of each ICD code are looked up once for all requests; otherwise a page of a dozen codes would spend a
fifth of its time on it.
"""

from functools import cache, reduce
from itertools import pairwise
from operator import or_

import numpy as np
from pydantic import BaseModel

from mlci.codes import icd
from mlci.codes.admissions import Admissions
from mlci.codes.rules import rules

INDICES = {"charlson": "cci_charlson", "elixhauser": "eci_vw"}  # with the weights of the paper


class Comorbidity(BaseModel):
    """A comorbidity, and the codes of the admission that belong to it."""

    words: str
    codes: list[str]


class Clinical(BaseModel):
    """A clinical index; a milder form of a disease is dropped if the severe form is present."""

    score: int
    categories: list[Comorbidity]


def clinical(admissions: Admissions) -> list[dict[str, Clinical]]:
    """Return both indices of each admission, by name.

    >>> [both] = clinical(Admissions.from_lists([["I509", "E119", "E112"]], icd_version=10))
    >>> {name: index.score for name, index in both.items()}
    {'charlson': 3, 'elixhauser': 7}
    """
    codes = [str(code) for code in admissions.values]
    of_code = [_bits(code, version) for code, version in zip(codes, admissions.versions.tolist())]
    starts, first = admissions.offsets.tolist(), ~int(rules().secondary_alone[0])  # 48 categories fit into one word
    recorded = [admissions.indices[start:end].tolist() for start, end in pairwise(starts)]
    words = [
        reduce(or_, (of_code[code] for code in row[1:]), of_code[row[0]] & first) if row else 0 for row in recorded
    ]
    bits = rules().settled(np.array([words], dtype=np.uint64))
    points = rules().scores(bits, list(INDICES.values()))
    return [
        {
            name: Clinical.model_construct(
                score=int(points[column][place]),
                categories=_categories(word, {codes[code]: of_code[code] for code in dict.fromkeys(row)}, column),
            )
            for name, column in INDICES.items()
        }
        for place, (row, word) in enumerate(zip(recorded, bits[0].tolist()))
    ]


def _categories(word: int, of_code: dict[str, int], column: str) -> list[Comorbidity]:
    """Return the categories of the index that are set in an admission's bits, each with its codes."""
    return [
        Comorbidity.model_construct(words=words, codes=[code for code, own in of_code.items() if own & bit])
        for bit, words in _of_index(column)
        if word & bit
    ]


@cache
def _of_index(column: str) -> list[tuple[int, str]]:
    """Return bit and words of each category of an index."""
    return [
        (1 << place, category.words)
        for place, category in enumerate(rules().categories)
        if category.column[:4] == column[:4]
    ]


def _bits(code: str, version: int) -> int:
    """Return the categories of a code as bits."""
    found = _listed(version).get(code)
    if found is None:  # of no category, or in no table: a heading, or of another edition
        found = 0 if icd.title(code, version) is not None else int(rules().code_bits([code], version)[0, 0])
    return found


@cache
def _listed(version: int) -> dict[str, int]:
    """Return the bits of every code of an ICD table that belongs to some category."""
    codes = icd.all_codes(version)
    bits = rules().code_bits(codes, version)[0]
    return {code: word for code, word in zip(codes.to_pylist(), bits.tolist()) if word}
