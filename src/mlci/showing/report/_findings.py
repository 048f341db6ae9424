"""The content of the report as data: frozen findings, from which sentences, figures and the page are made.

A part for which there are too few data is empty or None, never an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlci.judging import curves, theory
from mlci.measures.intervals import Interval

LEAST = 10  # admissions behind any figure of a code, and with and without the outcome behind any figure of a group
ALONG = "score_deviance"  # deviance explained by the curve over the score, if the risks are not read from it


@dataclass(frozen=True)
class Population:
    """The cohort that the report is about."""

    source: str
    rules: Mapping[str, str]  # outcome -> rule in words
    notes: tuple[str, ...]
    attrition: tuple
    table_one: Mapping[str, list[str]]
    held_out: bool  # whether a test split is judged, or else the whole cohort
    admissions: int  # judged
    patients: int | None  # None if each patient has one admission
    icd_versions: tuple[int, ...]
    codes: int  # recorded
    unknown: int  # codes that the model does not know
    foreign: Mapping[int, int]  # ICD version that is not the model's -> codes
    unscored: int  # admissions left out because fewer than half of their codes are understood
    shifts: tuple[str, ...] = ()  # how the admissions differ from the training admissions, and what they lack
    others: tuple[str, ...] = ()  # outcomes of the cohort for which the index has no risk


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
    figures: Mapping[str, Interval]  # those of `FIGURES` that exist
    medians: tuple[float, float]  # score without and with the outcome
    share: tuple[np.ndarray, np.ndarray, np.ndarray]  # edges of the score, shares without and with the outcome
    rate: float  # observed; weighted if the admissions are


@dataclass(frozen=True)
class Cut:
    """The model's cutoff, evaluated on the judged admissions."""

    cutoff: theory.Cutoff
    weights: Mapping[str, float]  # of the outcomes by which it was chosen
    share: float  # of the judged admissions, at or above it
    contrasts: tuple[theory.Contrast, ...]
    sensitivities: tuple[theory.Rate, ...]  # of those with the outcome, at or above; in the order of `contrasts`
    specificities: tuple[theory.Rate, ...]  # of those without it, below
    chosen_here: Interval | None  # the cut that the same rule chooses on these admissions, over resampled patients
    certificate: float | None  # of the model's cutoff on these admissions
    chosen_on: str  # which admissions the model's cutoff was chosen on


@dataclass(frozen=True)
class Codes:
    """The codes with the largest total influence on scores, sorted by their mean effect."""

    every: pd.DataFrame  # code (dotted), title, tells, admissions, share, mean_effect
    plain: pd.DataFrame  # the same without codes that reveal an outcome
    admissions: int  # averaged over


Part = OutcomeFigures | Codes | theory.Diagnosis | pd.DataFrame  # parts with figures; the frame is of `rivals.compare`


@dataclass(frozen=True)
class Judgement:
    """How good the index is; parts with too few data are None or empty."""

    outcomes: tuple[OutcomeFigures, ...]
    aurocs: pd.DataFrame  # of `rivals.compare`
    gains: pd.DataFrame  # of `rivals.increments`
    metrics: pd.DataFrame  # of `evaluate.judge`: the index, Elixhauser, Charlson
    groups: (
        pd.DataFrame
    )  # by, group, merged, outcome, n, positives, auroc (low, high), ratio (low, high) of observed to expected
    interactions: pd.DataFrame  # of `groups.interactions`
    cut: Cut
    diagnosis: theory.Diagnosis | None
    codes: Codes
    spread: float  # SD of the score


@dataclass(frozen=True)
class Findings:
    """The whole content of the report, as data."""

    people: Population
    made: Mapping  # the card of the model file: how it was made
    facts: Mapping[str, str]  # its model card, in words
    limits: tuple[str, ...]  # of the index, as its file says
    model_versions: tuple[int, ...]
    model_outcomes: tuple[str, ...]
    vocabulary: int
    ignored: int  # codes that the model leaves out because they reveal an outcome
    judgement: Judgement | None
    why_not: str  # the reason if there is no judgement
    resamples: int
    by: tuple[str, ...] = ()  # columns whose groups were asked for
    refits: int = 0  # on resampled training patients
    varied: pd.DataFrame | None = None  # of `vary.resample_training`, if there are refits
    refitted: str = ""  # what of the index was fitted to other admissions later, as a sentence
    survey: str = ""  # how the judged admissions were sampled, if they are a survey
