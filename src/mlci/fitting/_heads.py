"""The risks that an ensemble learned, told by one encoder: log-odds per outcome from the pass that gives its score.

In come an encoder, which stays as it is, and the ensemble's log-odds; out come further outputs of the encoder's last
layer, to which each token adds a weight of its own (a score leaves out what raises one outcome and lowers another), and
shift and slope by which log-odds become risks. The heads follow the ensemble's risks by cross-entropy. Members are
calibrated on admissions that they have not seen, heads to what members so calibrated expect of validation admissions,
and then, as far as events speak for it, to what happened to these. Needs NumPy and torch.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from mlci.config import HeadsConfig
from mlci.fitting._calibrate import calibrate_all
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._engines import single, stacked
from mlci.fitting._loop import Judge, Pace, Tell, train
from mlci.fitting._objectives import MeanLosses, entropy
from mlci.fitting._result import Trained
from mlci.fitting.encoders import DeepSets, RiskHeads

SURE = 1.0  # what members expect is no chance: next to nothing is needed to follow it
# Events of the validation split that must speak for another calibration than the members' before half of it is made:
# on NHDS 2010 heads and members differ by 0.06 in shift and slope (1 / 0.06² is nearly 300).
ALIKE = 300.0


@dataclass(frozen=True)
class Said:
    """Log-odds by an ensemble."""

    train: np.ndarray  # of training admissions, by all members
    honest: np.ndarray  # of the same, by members that have not seen them
    valid: np.ndarray  # of validation admissions, by each member


@dataclass(frozen=True)
class LearnedHeads:
    """Arrays of the heads by name, and what they reached."""

    state: dict[str, np.ndarray]
    held_out: np.ndarray  # risks of validation admissions, by calibrations that have not seen them
    entropy: tuple[float, ...]  # of each outcome on the validation split, not yet calibrated


def learn(
    encoder: DeepSets,
    said: Said,
    splits: tuple[Split, Split],
    *,
    options: HeadsConfig,
    seed: tuple[int, ...],
    judge: Judge,
    tell: Tell,
    stack: bool = False,
) -> LearnedHeads:
    """Teach an encoder's heads an ensemble's log-odds of training admissions, and calibrate them.

    Args:
        encoder: what the heads see through; its weights stay.
        said: by the ensemble.
        splits: training and validation.
        options: every constant.
        seed: of the order of admissions.
        judge: of log-odds of the validation split.
        tell: hears of each epoch.
        stack: train by recorded steps, which differ by rounding.
    """
    known, valid = splits
    wanted = replace(known, outcomes=_risks(said.train).astype(np.float32))
    start = torch.from_numpy(said.train.mean(0)).to(next(encoder.parameters()))
    pace = Pace(options.batch, options.learning_rate, options.weight_decay, cycle=options.epochs, steps=options.steps)
    heads = RiskHeads(encoder, start)
    engine = stacked.Stacked([heads], wanted, pace, [seed]) if stack else single.of_tokens(heads, wanted, pace, seed)
    engine.aim(MeanLosses(entropy, torch.ones(1, len(start), device=start.device)))
    facts = {"epochs": options.epochs, "tell": tell, "rate": "heads.learning_rate"}
    [done], _ = train(engine, [Trained()], held_out=valid, judge=judge, **facts)
    told = engine.predict(valid)[0].cpu().numpy().astype(np.float64)
    arrays = {name: engine.state()[name][0].cpu().numpy().copy() for name in RiskHeads.LEARNED}
    members = calibrate_all(said.honest, known.outcomes)
    expected = _risks(_moved(members, said.valid)).mean(0)
    first = _after(members, calibrate_all(_moved(members, told), expected, undecided=SURE))
    last = _after(first, calibrate_all(_moved(first, told), valid.outcomes, undecided=ALIKE))
    state = {f"heads.{name}": array for name, array in arrays.items()} | {"calibration": last}
    return LearnedHeads(state, _crosswise(first, told, valid), done.history[-1].validation)


def _crosswise(first: np.ndarray, told: np.ndarray, valid: Split) -> np.ndarray:
    """Return the risks of validation admissions, those of each half by shift and slope of the other."""
    folds, found = folds_by_subject(valid, 2, seed=0), np.empty_like(told)
    for half in (folds == 0, folds == 1):
        lines = _after(first, calibrate_all(_moved(first, told[~half]), valid.outcomes[~half], undecided=ALIKE))
        found[half] = _risks(_moved(lines, told[half]))
    return found


def _moved(lines: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    return lines[:, 0] + lines[:, 1] * log_odds


def _after(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the line that applies one line after the other."""
    return np.column_stack([second[:, 0] + second[:, 1] * first[:, 0], second[:, 1] * first[:, 1]])


def _risks(log_odds: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(log_odds.astype(np.float64) / 2)
