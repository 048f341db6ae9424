"""The theory's diagnostics of a score: rank-one alignment, objectives, best cuts and certificates."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from mlci.judging.theory._scan import Scan, Threshold, scan
from mlci.judging.theory._setting import Setting, settle
from mlci.judging.theory._spacing import mixture


@dataclass(frozen=True)
class Certificate:
    """The share of one direction (an outcome, or the shared v) that the best cut and the best spacing reach."""

    name: str
    threshold: Threshold
    monotone: float  # the share of the bound that the best spacing of this order reaches, at least threshold.rho2
    nhsic: float | None  # of the score as it is; None for v
    n: int
    positives: int | None


@dataclass(frozen=True)
class Diagnosis:
    """The theory's diagnostics of one score and several outcomes, on the admissions where all outcomes are known."""

    n: int
    outcomes: tuple[str, ...]
    left_out: dict[str, str]  # outcome -> reason
    weights: tuple[float, ...]
    protocol: str
    sigma: float
    floor: float
    singular_values: tuple[float, ...]
    loadings: tuple[float, ...]  # of the outcomes on the shared direction
    energy: float  # sigma_1^2 / ||W~||_F^2
    objective: float  # J, floored if `floor` is not 0
    projected: float  # J_1, floored in the same way
    retention: float  # gamma = J_1 / J
    best_objective: Threshold  # j_J; rho2 is its share of the bound of J
    shared: Certificate  # v; its threshold is j_v
    tasks: tuple[Certificate, ...]
    scan: Scan = field(repr=False)  # columns: v, then the outcomes

    @property
    def flooring(self) -> str:
        """A sentence on whether J and J1 are floored."""
        if self.floor:
            return f"J and J1 have the kernel's norm floored at {self.floor:g} (protocol {self.protocol})."
        return f"J and J1 are unfloored (protocol {self.protocol})."

    def tables(self) -> dict:
        """Return the paper's three diagnostic tables as pandas frames: rank_one, thresholds, outcomes."""
        import pandas as pd

        values = {f"sigma_{k}": value for k, value in enumerate(self.singular_values, start=1)}
        rank_one = {"n": self.n, **values, "energy": self.energy, "J": self.objective, "J1": self.projected}
        cuts = [("v", self.shared.threshold), ("J", self.best_objective)]
        return {
            "rank_one": pd.DataFrame(
                [rank_one | {"gamma": self.retention, "bandwidth": self.sigma, "floor": self.floor}]
            ),
            "thresholds": pd.DataFrame(
                {"objective": name, "j": cut.split, "tail": cut.tail, "n": cut.n, "share": cut.share}
                | {"score": cut.score, "rho2": cut.rho2, "rising": cut.rising}
                for name, cut in cuts
            ),
            "outcomes": pd.DataFrame(
                {"outcome": task.name, "n": task.n, "positives": task.positives, "nhsic": task.nhsic}
                | {"rho2": task.threshold.rho2, "monotone": task.monotone, "score": task.threshold.score}
                | {"tail": task.threshold.tail, "rising": task.threshold.rising}
                for task in self.tasks
            ),
        }

    def to_dict(self) -> dict:
        """Return everything except the scan, ready for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "scan"}


def diagnose(score, outcomes, names: Sequence[str], **options) -> Diagnosis:
    """Diagnose a score on the admissions where every outcome is known.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        **options: weights, sigma, floor, protocol, sample and seed, as in `settle`.

    Returns:
        The objectives, and the share of each bound that the best cut and the best monotone spacing reach.

    >>> diagnosis = diagnose([1, 2, 3, 4], [[0, 0], [0, 1], [1, 1], [1, 1]], ["mortality", "long_stay"])
    >>> [task.name for task in diagnosis.tasks], diagnosis.n
    (['mortality', 'long_stay'], 4)
    """
    setting = settle(score, outcomes, names, **options)
    cuts = scan(setting.score, setting.directions, ties="split" if setting.protocol == "paper" else "keep")
    forms, norm = setting.forms(setting.score, setting.directions)
    norm, values = max(norm, setting.floor), setting.values
    nhsic = forms[1:] / (setting.profiles**2).sum(axis=0) / norm
    objective, projected = float(setting.weights @ nhsic), float(values[0] ** 2 * forms[0] / norm)
    certificates = _certificates(setting, cuts, nhsic)
    return Diagnosis(
        n=setting.n,
        outcomes=setting.names,
        left_out=setting.left_out,
        weights=tuple(setting.weights.tolist()),
        protocol=setting.protocol,
        sigma=setting.sigma,
        floor=setting.floor,
        singular_values=tuple(values.tolist()),
        loadings=tuple(setting.u.tolist()),
        energy=float(values[0] ** 2 / (values**2).sum()),
        objective=objective,
        projected=projected,
        retention=projected / objective if objective > 0 else float("nan"),
        best_objective=_best_cut(cuts, setting.weights, values),
        shared=certificates[0],
        tasks=tuple(certificates[1:]),
        scan=cuts,
    )


def _certificates(setting: Setting, cuts: Scan, nhsic: np.ndarray) -> list[Certificate]:
    """Return the certificates of the shared direction, then of each outcome."""
    gains, positives = cuts.rho**2, setting.outcomes.sum(axis=0)
    return [
        Certificate(
            name=name,
            threshold=cuts.best(column),
            monotone=mixture(cuts.split, setting.n, gains[:, column])[0],
            nhsic=float(nhsic[column - 1]) if column else None,
            n=setting.n,
            positives=int(positives[column - 1]) if column else None,
        )
        for column, name in enumerate(("v", *setting.names))
    ]


def _best_cut(cuts: Scan, weights: np.ndarray, values: np.ndarray) -> Threshold:
    """Return the cut with the largest weighted sum of the outcomes' gains, as a share of the bound."""
    joint = (cuts.rho**2)[:, 1:] @ weights
    row = int(np.argmax(joint))
    return Threshold(
        split=int(cuts.split[row]),
        n=cuts.n,
        score=float(cuts.score[row]),
        rho2=float(joint[row] / np.sqrt((values**4).sum())),
        rising=bool(cuts.rho[row, 1:] @ weights > 0),
    )
