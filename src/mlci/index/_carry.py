"""Carry a table from ICD-9-CM to ICD-10-CM by the General Equivalence Mappings.

Turn a model with ICD-9-CM tokens into one that also knows ICD-10-CM. An ICD-10 code gets the weights of its ICD-9
counterparts. Counterparts that are equivalent only in combination add up; alternatives are averaged, weighted by how
often each was recorded. A category and a prefix get the weighted mean of the codes below them, so that WHO codes, codes
newer than the maps and truncated codes count too. A full code gets a row for the remainder, if that is large enough.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mlci.codes.admissions import Admissions
from mlci.codes.maps import counterparts, mapped_codes, younger_codes
from mlci.index._extend import extended
from mlci.index.model import Model
from mlci.tokens import UNK

RARE = 5  # admissions assumed for a counterpart without a row of its own
WORTH, OFTEN = 0.1, 1.0  # least difference in log-odds from its prefix, and admissions, for a row of a full code


@dataclass(frozen=True)
class _Carried:
    """The weights of one ICD-10 code."""

    weights: np.ndarray
    often: float  # estimated number of admissions, from its counterparts
    support: int


def carry(model: Model) -> Model:
    """Return the model with rows for ICD-10-CM in addition to those for ICD-9-CM."""
    codes = _codes(model)
    short, middle, _ = sorted(model.vocabulary.depths)
    rows: dict[str, tuple[np.ndarray, int]] = {}
    families: dict[str, list[str]] = {}
    for code in codes:
        families.setdefault(code[:short], []).append(code)
    for family, members in families.items():
        base = _mean(codes[code] for code in members)
        rows[family] = base, max(codes[code].support for code in members)
        for prefix in sorted({code[:middle] for code in members if len(code) > short}):
            below = [code for code in members if code.startswith(prefix)]
            mean = _mean(codes[code] for code in below)
            rows[prefix] = mean - base, max(codes[code].support for code in below)
            for code in below:
                own = codes[code].weights - mean
                if len(code) > middle and codes[code].often >= OFTEN and np.abs(own).max() > WORTH:
                    rows[code] = own, codes[code].support
    wider = extended(model, {(10, code): row for code, row in rows.items()})
    return replace(wider, icd_versions=tuple(sorted({*model.icd_versions, 10})))


def _codes(model: Model) -> dict[str, _Carried]:
    """Return the ICD-10 codes that the maps, forward or backward, connect to an ICD-9 code which the model knows."""
    ways = {code: [way.codes for way in counterparts(code, 10)] for code in mapped_codes(10)}
    back: dict[str, list[tuple[str, ...]]] = {}
    for code in mapped_codes(9):
        for way in counterparts(code, 9):
            if len(way.codes) == 1:
                back.setdefault(way.codes[0], []).append((code,))
    sharing = Counter(part for found in ways.values() for codes in found for part in set(codes))
    ways |= {code: [way.codes for way in counterparts(code, 10)] for code in younger_codes()}
    alone = sorted({codes for found in (*ways.values(), *back.values()) for codes in found})
    admissions = Admissions.from_lists(alone, icd_version=9)
    log_odds = model.read(admissions).log_odds
    assert log_odds is not None
    leaf = dict(zip(admissions.values, model.vocabulary.leaves(admissions).tolist()))
    support = dict(zip(zip(model.vocabulary.versions, model.vocabulary.tokens), model.vocabulary.support))
    recorded = {code: max(support.get((9, code), 0), RARE) / max(sharing[code], 1) for code in leaf}
    behind = (0, 0, *model.vocabulary.support)
    worth = {codes: row - model.state["intercepts"] for codes, row in zip(alone, log_odds)}
    carried = {}
    for code in sorted({*ways, *back}):
        forth = [codes for codes in ways.get(code, ()) if any(leaf[part] > UNK for part in codes)]
        known = forth or [codes for codes in back.get(code, ()) if leaf[codes[0]] > UNK]
        if known:
            often = [min(recorded[part] for part in codes) for codes in known]
            most = max(behind[leaf[part]] for codes in known for part in codes)
            mean = np.average([worth[codes] for codes in known], axis=0, weights=often)
            carried[code] = _Carried(mean, float(np.mean(often)), most)
    return carried


def _mean(codes: Iterable[_Carried]) -> np.ndarray:
    codes = list(codes)
    return np.average([code.weights for code in codes], axis=0, weights=[code.often for code in codes])
