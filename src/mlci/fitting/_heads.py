"""Risk heads of the recipe `deep`: log-odds per outcome from the encoder that gives the score, in the same pass.

The encoder is frozen. A head is a further output of its last layer, plus a weight for each token: the score alone does
not hold what raises one outcome and lowers another. The heads learn the ensemble's risks by cross-entropy
(distillation). Their calibration (shift and slope per outcome, applied to the log-odds) is fitted in three steps:

1. The members are calibrated to the outcomes of the training split, on their out-of-fold log-odds.
2. The heads are calibrated to the risks that the calibrated members give the validation split.
3. They are calibrated to the outcomes of the validation split, with a prior that lets few events change little.

Needs NumPy and torch.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from mlci.config import HeadsConfig
from mlci.fitting._calibrate import calibrate_all
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._engines import single, stacked
from mlci.fitting._loop import OnEpoch, Schedule, ValidationMetric, train
from mlci.fitting._objectives import MeanLosses, entropy
from mlci.fitting._result import TrainingLog
from mlci.fitting.encoders import DeepSets, RiskHeads

# `prior_events` of the second and third calibration: the number of events at which data and prior have equal weight.
TO_MEMBERS = 1.0  # expected risks are not noisy, so a weak prior does
TO_OUTCOMES = 300.0  # on NHDS 2010 heads and members differ by 0.06 in shift and slope, and 1 / 0.06² is nearly 300


@dataclass(frozen=True)
class EnsembleLogits:
    """Log-odds of the ensemble."""

    train: np.ndarray  # of the training admissions, as the heads learn them: admissions x outcomes
    out_of_fold: np.ndarray  # of the training admissions, by members that have not seen them
    valid: np.ndarray  # of the validation admissions, by each member: members x admissions x outcomes


@dataclass(frozen=True)
class LearnedHeads:
    """Arrays of the heads by name, and their quality on the validation split."""

    state: dict[str, np.ndarray]
    valid_risks: np.ndarray  # of the validation admissions, with calibrations fitted to the other half of the split
    entropy: tuple[float, ...]  # cross-entropy of each outcome on the validation split, before calibration


def fit_heads(
    encoder: DeepSets,
    ensemble: EnsembleLogits,
    splits: tuple[Split, Split],
    *,
    options: HeadsConfig,
    seed: tuple[int, ...],
    metric: ValidationMetric,
    on_epoch: OnEpoch,
    stack: bool = False,
) -> LearnedHeads:
    """Train an encoder's heads on an ensemble's log-odds, and calibrate them.

    Args:
        encoder: the encoder, which stays frozen.
        ensemble: the log-odds to learn.
        splits: the training and the validation split.
        options: settings of the heads.
        seed: seed of the order of admissions.
        metric: quality of log-odds on the validation split.
        on_epoch: called after each epoch.
        stack: use the engine for GPUs (`stacked`), which differs by rounding.

    Returns:
        The arrays of the heads and their calibration, and how good they are.
    """
    train_split, valid = splits
    soft = replace(train_split, outcomes=_risks(ensemble.train).astype(np.float32))
    start = torch.from_numpy(ensemble.train.mean(0)).to(next(encoder.parameters()))
    schedule = Schedule(
        options.batch, options.learning_rate, options.weight_decay, cycle=options.epochs, steps=options.steps
    )
    heads = RiskHeads(encoder, start)
    engine = (
        stacked.Stacked([heads], soft, schedule, [seed])
        if stack
        else single.autograd_engine(heads, soft, schedule, seed)
    )
    engine.set_objective(MeanLosses(entropy, torch.ones(1, len(start), device=start.device)))
    facts = {"epochs": options.epochs, "on_epoch": on_epoch, "rate_setting": "heads.learning_rate"}
    [log], _ = train(engine, [TrainingLog()], valid=valid, metric=metric, **facts)
    log_odds = engine.predict(valid)[0].cpu().numpy().astype(np.float64)
    arrays = {name: engine.state()[name][0].cpu().numpy().copy() for name in RiskHeads.LEARNED}
    members = calibrate_all(ensemble.out_of_fold, train_split.outcomes)
    expected = _risks(_apply(members, ensemble.valid)).mean(0)
    first = _compose(members, calibrate_all(_apply(members, log_odds), expected, prior_events=TO_MEMBERS))
    last = _compose(first, calibrate_all(_apply(first, log_odds), valid.outcomes, prior_events=TO_OUTCOMES))
    state = {f"heads.{name}": array for name, array in arrays.items()} | {"calibration": last}
    return LearnedHeads(state, _cross_fitted_risks(first, log_odds, valid), log.history[-1].validation)


def _cross_fitted_risks(first: np.ndarray, log_odds: np.ndarray, valid: Split) -> np.ndarray:
    """Return the risks of validation admissions, each half with the final calibration fitted to the other half."""
    folds, found = folds_by_subject(valid, 2, seed=0), np.empty_like(log_odds)
    for half in (folds == 0, folds == 1):
        lines = _compose(
            first, calibrate_all(_apply(first, log_odds[~half]), valid.outcomes[~half], prior_events=TO_OUTCOMES)
        )
        found[half] = _risks(_apply(lines, log_odds[half]))
    return found


def _apply(lines: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Return shift + slope * log-odds, with a row of `lines` per outcome."""
    return lines[:, 0] + lines[:, 1] * log_odds


def _compose(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the lines that apply `first`, then `second`."""
    return np.column_stack([second[:, 0] + second[:, 1] * first[:, 0], second[:, 1] * first[:, 1]])


def _risks(log_odds: np.ndarray) -> np.ndarray:
    """Return expit(log_odds)."""
    return 0.5 + 0.5 * np.tanh(log_odds.astype(np.float64) / 2)
