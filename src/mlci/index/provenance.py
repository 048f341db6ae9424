"""The provenance of a model: whose admissions it was trained on, how many, in which coding, and whether they are real.

Turn a model into the words that page, report and card show with every risk. A risk holds for the admissions that the
model was trained on, and for others only after it was validated there.
"""

from dataclasses import dataclass

from mlci.base.names import listing, words
from mlci.index.model import Model

SOURCES = {  # name of a source -> whose admissions they are
    "nhds": "US short-stay hospitals, National Hospital Discharge Survey 2010",
    "mimic3": "Beth Israel Deaconess Medical Center, Boston, 2001 to 2012, MIMIC-III",
    "mimic4": "Beth Israel Deaconess Medical Center, Boston, since 2008, MIMIC-IV",
    "synthetic": "a synthetic hospital (no real patients)",
}


@dataclass(frozen=True)
class Provenance:
    """Facts about the admissions that a model was trained on."""

    where: str
    admissions: int | None  # training and validation
    coding: str
    synthetic: bool
    recalibrated: str = ""  # whose admissions `mlci recalibrate` fitted the risks to
    unchanged: str = ""  # outcomes of a recalibrated model whose risks are still those of its training

    def __str__(self) -> str:
        many = f"{self.admissions:,} admissions, " if self.admissions else ""
        without = f", except {self.unchanged}" if self.unchanged else ""
        then = f", then recalibrated on {self.recalibrated}{without}" if self.recalibrated else ""
        return f"{self.where} ({many}{self.coding}){then}"


def provenance(model: Model) -> Provenance:
    """Return the provenance of a `model`, as far as its file states it.

    >>> from mlci.index.estimator import load
    >>> print(provenance(load("us2010").model_))
    US short-stay hospitals, National Hospital Discharge Survey 2010 (103,330 admissions, ICD-9 and ICD-10)
    """
    source, counts = str(model.card.get("source") or ""), model.card.get("admissions") or {}
    coded = [f"ICD-{version}" for version in model.icd_versions if version]
    again = model.card.get("recalibrated") or {}
    unchanged = [words(name) for name in model.outcomes if name not in again.get("positives", model.outcomes)]
    return Provenance(
        where=_where(source),
        admissions=sum(counts.values()) or None,
        coding=" and ".join(coded) or "ICD version not said",
        synthetic=any("synthetic" in name.lower() for name in (source, again.get("source", ""))),
        recalibrated=f"{again['admissions']:,} admissions of {_where(again['source'])}" if again else "",
        unchanged=listing(unchanged),
    )


def refitted(model: Model) -> str:
    """Return a sentence on what of a `model` was fitted to another hospital, and to which admissions; or nothing.

    >>> from mlci.index.estimator import load
    >>> refitted(load("us2010").model_)
    ''
    """
    origin = provenance(model)
    fitted = "weights, risks, percentiles and cutoff" if "updated" in model.card else "risks, percentiles and cutoff"
    without = f" The risks of {origin.unchanged} were not." if origin.unchanged else ""
    return f"Its {fitted} were then fitted to {origin.recalibrated}.{without}" if origin.recalibrated else ""


def _where(source: str) -> str:
    """Return whose admissions those of a `source` are."""
    unnamed = f"the data called “{source}”" if source else "admissions that the model file does not name"
    return SOURCES.get(source, unnamed)
