"""The index as a card: a short list of code groups with whole points to be added up by hand, in Charlson's manner.

In come a fitted index and a cohort; out come the points, how far the card falls behind the index beside Charlson and
Elixhauser, what a number of points meant for the training admissions, and a worked example of made-up codes. A code
group is a three-character category of one ICD version and counts once, however many of its codes an admission has.
Points are fitted to the score of the training split, none negative.
"""

from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.stats import spearmanr

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.codes.admissions import Admissions
from mlci.codes.comorbidity import charlson, elixhauser
from mlci.codes.icd import VERSIONS, title
from mlci.cohort import Cohort
from mlci.index.estimator import MLCI
from mlci.judging.evaluate import evaluate
from mlci.tokens import without

DEPTH = 3
LEAST = 50  # training admissions that a group must occur in
TOP = range(3, 21)  # points of the weightiest group that are tried
WORTH = 0.002  # of the squared correlation with the score: what finer points must bring
BANDS = (0.5, 0.75, 0.9, 0.95, 0.99)  # of training admissions, between bands of points
CELL = 10  # admissions behind every rate
RULE = (
    "Add the points of every group that the admission has a code of; a group counts once. "
    "More points mean a graver admission."
)


@dataclass(frozen=True)
class Line:
    """One group of codes."""

    version: int
    category: str
    title: str
    points: int
    admissions: int  # of the training split


@dataclass(frozen=True)
class Card:
    """The points, heaviest first, and what they are worth."""

    lines: tuple[Line, ...]
    outcomes: tuple[str, ...]
    loss: pd.DataFrame  # model, rank correlation with the score, dCorr and AUROC of each outcome
    meaning: pd.DataFrame  # points from, to, admissions, rate of each outcome; training split
    example: tuple[tuple[Line, str], ...]  # a line and one of its codes
    split: str

    def points(self, admissions: Admissions) -> np.ndarray:
        """The card's points of each admission."""
        present, names = groups(admissions)
        worth = {(line.version, line.category): line.points for line in self.lines}
        return np.asarray(present @ np.array([worth.get(name, 0) for name in names], dtype=np.int64)).ravel()

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.lines)

    def example_text(self) -> str:
        parts = " + ".join(f"{code} ({line.category}): {line.points}" for line, code in self.example)
        return f"{parts} = {sum(line.points for line, _ in self.example)} points"

    def tables(self) -> dict[str, list[list[str]]]:
        """Heading -> rows of text, heads first: what the points meant, and what the card loses."""
        words = [name.replace("_", " ") for name in self.outcomes]
        meaning = [["points", "admissions", *words]]
        for row in self.meaning.to_dict("records"):
            band = f"{row['from']}" if row["to"] == row["from"] else f"{row['from']} to {row['to']}"
            rates = ["few" if row[name] != row[name] else f"{row[name]:.1%}" for name in self.outcomes]
            meaning.append([band, f"{row['admissions']:,}", *rates])
        loss = [["", "rank correlation with the index", *(f"{name}: dCorr, AUROC" for name in words)]]
        for row in self.loss.to_dict("records"):
            cells = [f"{row[f'dcorr {name}']:.3f}, {row[f'auroc {name}']:.3f}" for name in self.outcomes]
            loss.append([str(row["model"]), f"{row['rank correlation']:.2f}", *cells])
        return {
            "What the points meant in the training admissions": meaning,
            f"What the card loses ({self.split} split)": loss,
        }

    def group_text(self) -> list[tuple[str, str, str]]:
        """Points, category and title of each line; with its ICD version where there are several."""
        several = len({line.version for line in self.lines}) > 1
        return [
            (str(line.points), line.category, f"{line.title} (ICD-{line.version})" if several else line.title)
            for line in self.lines
        ]

    def html(self) -> bytes:
        from jinja2 import Environment

        template = (files("mlci.showing") / "card.html.j2").read_text(encoding="utf-8")
        page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
        return page.render(card=self, rule=RULE).encode()

    def csv(self) -> bytes:
        return self.frame().to_csv(index=False).encode()

    def pdf(self) -> bytes:
        """One A4 page."""
        from mlci.showing._card_pdf import draw

        return draw(RULE, self.group_text(), self.example_text(), self.tables())

    def write(self, path: str | Path) -> None:
        """As .html, .pdf or .csv, by the name."""
        write = {".html": self.html, ".pdf": self.pdf, ".csv": self.csv}.get(Path(path).suffix.lower())
        if write is None:
            raise InputError(f"{path}: a card is written as .html, .pdf or .csv.")
        content = write()
        with atomic(path) as temporary:
            temporary.write_bytes(content)


def make_card(index: MLCI, cohort: Cohort, *, size: int = 40, split: str = "test") -> Card:
    """Fit a card of at most `size` groups on the training split and judge it on another."""
    model = index.model_
    train, judged = cohort.split("train"), cohort.split(split)
    for name, part in (("train", train), (split, judged)):
        if not len(part):
            raise InputError(f"the cohort has no admission in the split {name}; a card needs it.")
    admissions = without(train.admissions(), model.vocabulary.ignored)
    score = model.score(admissions)
    present, names = groups(admissions)
    counts = np.asarray(present.sum(axis=0)).ravel()
    common = np.flatnonzero(counts >= min(LEAST, len(train) / 10))
    points = fit_points(present[:, common], score, size=size)
    codes = Counter(admissions.indices.tolist())
    lines = []
    for column, worth in zip(common, points):
        if worth:
            version, category = names[column]
            words = _title(admissions, codes, names[column])
            lines.append(Line(version, category, words, int(worth), int(counts[column])))
    lines.sort(key=lambda line: (-line.points, line.version, line.category))
    outcomes = tuple(name for name in model.outcomes if name in cohort.outcomes)
    card = Card(tuple(lines), outcomes, pd.DataFrame(), pd.DataFrame(), (), split)
    chosen = [lines[round(share * (len(lines) - 1))] for share in (0.1, 0.5, 0.9)]
    example = [(line, _commonest(admissions, codes, (line.version, line.category))) for line in dict.fromkeys(chosen)]
    return Card(
        card.lines,
        outcomes,
        _loss(index, card, judged, outcomes),
        _meaning(card.points(admissions), train, outcomes),
        tuple(example),
        split,
    )


def groups(admissions: Admissions) -> tuple[sparse.csr_array, list[tuple[int, str]]]:
    """Which admissions have which groups (ICD version, category): a 0-1 matrix and its columns."""
    keys = [(int(version), value[:DEPTH]) for value, version in zip(admissions.values, admissions.versions)]
    names = sorted(set(keys))
    number = {key: place for place, key in enumerate(names)}
    column = np.array([number[key] for key in keys], dtype=np.int64)
    rows = np.repeat(np.arange(len(admissions)), np.diff(admissions.offsets))
    ones = np.ones(len(rows), dtype=np.int64)
    found = sparse.coo_array((ones, (rows, column[admissions.indices])), shape=(len(admissions), len(names))).tocsr()
    found.sum_duplicates()
    found.data[:] = 1
    return found, names


def fit_points(present: sparse.csr_array, score: np.ndarray, *, size: int) -> np.ndarray:
    """Whole points, none negative, of at most `size` columns, whose sum follows the score.

    Groups enter one by one, each time the one that most reduces the squared error, and all weights are then refitted
    (nonnegative least squares); at last they are rounded in the coarsest unit that loses next to nothing.
    """
    n, mean = len(score), np.asarray(present.mean(axis=0)).ravel()
    gram = np.asarray((present.T @ present).todense(), dtype=float) - n * np.outer(mean, mean)
    with_score = present.T @ (score - score.mean())
    variance = np.maximum(np.diag(gram), 1e-12)
    weights, active = np.zeros(len(mean)), []
    while len(active) < min(size, len(mean)):
        gain = np.maximum(with_score - gram @ weights, 0) ** 2 / variance
        gain[active] = 0
        if not gain.max() > 0:
            break
        active.append(int(gain.argmax()))
        root = cholesky(gram[np.ix_(active, active)] + 1e-9 * np.diag(variance[active]))
        weights[active] = nnls(root, solve_triangular(root, with_score[active], trans=1))[0]
    if not weights.any():
        raise InputError("no group of codes raises the score; a card cannot be made.")
    tried = [np.rint(weights / weights.max() * top).astype(np.int64) for top in TOP]
    fits = np.array([(each @ with_score) ** 2 / (each @ gram @ each) for each in tried])
    fits /= ((score - score.mean()) ** 2).sum()
    return tried[int(np.argmax(fits >= fits.max() - WORTH))]


def _title(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """The category's own title; else (the ICD-9-CM table has no headings) that of its commonest code, and others."""
    version, category = group
    if version not in VERSIONS:
        return ""
    words = title(_commonest(admissions, codes, group), version)
    return title(category, version) or (f"{words}, and others of {category}" if words else "")


def _commonest(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """The code of a group that is recorded most often."""
    version, category = group
    own = [
        place
        for place, (value, v) in enumerate(zip(admissions.values, admissions.versions))
        if v == version and value.startswith(category)
    ]
    return str(admissions.values[max(own, key=lambda place: (codes[place], -place))])


def _loss(index: MLCI, card: Card, judged: Cohort, outcomes: tuple[str, ...]) -> pd.DataFrame:
    admissions = judged.admissions()
    score = index.model_.score(admissions)
    scores = {
        "index": score,
        "card": card.points(admissions).astype(float),
        "Charlson": charlson(judged)["cci_charlson"].to_numpy(dtype=float),
        "Elixhauser": elixhauser(judged)["eci_vw"].to_numpy(dtype=float),
    }
    labels = dict(zip(outcomes, judged.labels(*outcomes).T))
    figures = evaluate(scores, labels, resamples=0).set_index(["model", "metric", "outcome"])["value"]
    wanted = [(metric, outcome) for metric in ("dcorr", "auroc") for outcome in outcomes]
    rows = [
        {"model": name, "rank correlation": float(np.asarray(spearmanr(values, score))[0])}
        | {f"{metric} {outcome}": figures[name, metric, outcome] for metric, outcome in wanted}
        for name, values in scores.items()
    ]
    return pd.DataFrame(rows)


def _meaning(points: np.ndarray, train: Cohort, outcomes: tuple[str, ...]) -> pd.DataFrame:
    """Rates of the outcomes by bands of points, none of few admissions."""
    starts = np.unique(np.concatenate([[0], np.quantile(points, BANDS, method="lower") + 1]))
    band = np.searchsorted(starts, points, side="right") - 1
    rows = []
    for number, start in enumerate(starts):
        inside = band == number
        if inside.sum() < CELL:
            continue
        rates = {}
        for name, column in zip(outcomes, train.labels(*outcomes).T):
            known = column[inside & ~np.isnan(column)]
            rates[name] = float(known.mean()) if len(known) >= CELL else float("nan")
        rows.append({"from": int(start), "to": int(points[inside].max()), "admissions": int(inside.sum())} | rates)
    return pd.DataFrame(rows)
