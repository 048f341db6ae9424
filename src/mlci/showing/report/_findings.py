"""What the report says, as data: frozen findings that sentences, pictures and the page are made from.

A part for which there is too little is empty or None, never an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlci.judging import curves, theory
from mlci.measures.intervals import Interval

LEAST = 10  # admissions behind any figure about a code, with and without the outcome behind any about a group
ALONG = "score_deviance"  # explained by the curve over the score, where risks are not read from it


@dataclass(frozen=True)
class Population:
    """Whom the report is about."""

    source: str
    rules: Mapping[str, str]  # outcome -> rule in words
    notes: tuple[str, ...]
    attrition: tuple
    table_one: Mapping[str, list[str]]
    held_out: bool  # whether a test split is judged, or else the whole cohort
    admissions: int  # judged
    patients: int | None  # None where every admission stands for itself
    icd_versions: tuple[int, ...]
    codes: int  # recorded
    unknown: int  # of them, to the model
    foreign: Mapping[int, int]  # ICD version that is not the model's -> codes
    unscored: int  # admissions left out because fewer than half of their codes are understood
    shifts: tuple[str, ...] = ()  # how they differ from the admissions that the index was made from
    others: tuple[str, ...] = ()  # outcomes of the cohort that the index has no risk of


@dataclass(frozen=True)
class OutcomeFigures:
    """One outcome along the score and along its predicted risk."""

    name: str
    n: int
    positives: int
    rates: curves.Rates
    fit: curves.Isotonic
    trend: curves.Trend
    groups: curves.Rates  # tenths of predicted risk
    smooth: curves.CalibrationCurve
    predicted: float  # mean risk
    figures: Mapping[str, Interval]  # of `FIGURES`, where there are risks
    medians: tuple[float, float]  # score without and with the outcome
    share: tuple[np.ndarray, np.ndarray, np.ndarray]  # edges of the score, shares without and with the outcome
    rate: float  # weighted where admissions are


@dataclass(frozen=True)
class Cut:
    """The model's cutoff, met again on held-out admissions."""

    cutoff: theory.Cutoff
    share: float  # at or above, of the judged admissions
    contrasts: tuple[theory.Contrast, ...]
    caught: tuple[theory.Rate, ...]  # of those with the outcome, at or above; in the same order
    spared: tuple[theory.Rate, ...]  # of those without it, below
    anew: Interval | None  # the cut that the same rule chooses here, over resampled patients
    certificate: float | None  # of the model's cutoff on these admissions
    chosen_on: str  # which admissions the model's cutoff was chosen on


@dataclass(frozen=True)
class Codes:
    """Which codes move the score, by their total influence, sorted by their mean effect."""

    every: pd.DataFrame  # code (dotted), title, tells, admissions, share, mean_effect
    plain: pd.DataFrame  # the same without codes that tell an outcome
    admissions: int  # averaged over


Part = OutcomeFigures | Codes | theory.Diagnosis | pd.DataFrame  # what pictures show; the frame is of `rivals.compare`


@dataclass(frozen=True)
class Judgement:
    """How good the index is; what has too little behind it is None or empty."""

    outcomes: tuple[OutcomeFigures, ...]
    aurocs: pd.DataFrame  # of `rivals.compare`
    gains: pd.DataFrame  # of `rivals.increments`
    metrics: pd.DataFrame  # of `evaluate.judge`: the index, Elixhauser, Charlson
    groups: (
        pd.DataFrame
    )  # by, group, outcome, n, positives, auroc (low, high), ratio (low, high) of observed to expected
    interactions: pd.DataFrame  # of `groups.interactions`
    weights: Mapping[str, float]  # of the outcomes, in every cutoff
    cut: Cut
    diagnosis: theory.Diagnosis | None
    codes: Codes
    spread: float  # SD of the score


@dataclass(frozen=True)
class Findings:
    """Everything that the report says, as data."""

    people: Population
    made: Mapping  # what the model file says about its own making
    facts: Mapping[str, str]  # its model card, in words
    limits: tuple[str, ...]  # of the index, as its file says
    model_versions: tuple[int, ...]
    vocabulary: int
    ignored: int  # codes that the model leaves out because they tell an outcome
    judgement: Judgement | None
    why_not: str  # where there is no judgement
    resamples: int
    refits: int = 0  # on resampled training patients
    varied: pd.DataFrame | None = None  # of `vary.resample_training`, where there are refits
    survey: str = ""  # how the judged admissions were drawn, where that counts
