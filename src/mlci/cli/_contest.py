"""What `mlci evaluate` shows beside the figures: rivals of the first score, bounds, and outcomes that are numbers."""

from pathlib import Path


def contest(cohort: Path, judged, scores, first, design, *, weights: str | None, risks):
    """Return the first score beside its rivals, and what it adds to age and sex: two tables, empty where none can be.

    `scores` are those of the first file; where they cover the split train, the score with age and sex is a rival too.
    Rivals are fitted with the column `weights`, and judged by the `design` of the judged admissions. Where these are
    the training admissions as well, a patient is judged by rivals that other patients taught. Deviance explained is
    that of `risks`, of the rivals' own, and of a published index by a curve over its points that the split train gave.
    """
    from scipy.special import expit

    from mlci.base.errors import InputError
    from mlci.cohort import read_cohort
    from mlci.judging.rivals import classic, compare, cross_refitted, curved, increments, refitted
    from mlci.judging.scores import match

    name, values = first
    column = "score" if "score" in scores else str(scores.columns[0])
    train = read_cohort(cohort).split("train")

    def scored(part):
        return values if part is judged else match(scores, part)[0][column].to_numpy()

    try:
        index = scored if len(match(scores, train)[1]) == len(train) else None
    except InputError:  # the file has no score of a training admission
        index = None
    outcomes = dict(zip(judged.outcomes, judged.labels().T))
    published = {rival: dict.fromkeys(outcomes, points) for rival, points in classic(judged).items()}
    common = {"index": index, "name": name, "weights": weights}
    crossed = learned_from(judged)
    learned = (
        cross_refitted(judged, list(outcomes), **common)
        if crossed
        else refitted(train, judged, list(outcomes), **common)
    )
    told = {name: risks} | {
        rival: {key: expit(odds) for key, odds in found.items()} for rival, found in learned.items()
    }
    told |= {} if crossed else curved(train, judged, list(outcomes), weights=weights)
    others = published | learned
    return (
        explained(compare(values, others, outcomes, patients=design, name=name), told, outcomes, design.weight),
        increments(others, outcomes, patients=design, name=name),
    )


def explained(table, risks, outcomes, weight):
    """Return the table with a column of the deviance that each model's risk explains; NaN where it has none."""
    from mlci.measures.discrimination import calibration

    def share(row) -> float:
        risk = risks.get(row.model, {}).get(row.outcome)
        return float("nan") if risk is None else calibration(risk, outcomes[row.outcome], weight=weight).deviance

    table.insert(5, "deviance", [share(row) for row in table.itertuples()])
    return table


def learned_from(judged) -> bool:
    """Return whether training admissions are among the judged ones."""
    return "train" in judged.column("split")


def show_contest(table, gains, *, crossed: bool, who: str) -> None:
    """Print the two tables; `crossed` says that rivals were learned from the judged admissions, crosswise by `who`."""
    from mlci.cli._tables import figure, show

    if len(table):
        own = table["model"].iloc[0]
        body = [
            [
                *(row.outcome, row.model, figure(row.value, row.low, row.high)),
                "" if row.deviance != row.deviance else f"{row.deviance:.4f}",
                "" if row.model == own else figure(row.gap, row.gap_low, row.gap_high, sign="+"),
            ]
            for row in table.itertuples()
        ]
        how = f", which other {who} taught (a score that these admissions taught is flattered)" if crossed else ""
        heads = ["outcome", "model", "AUROC", "deviance explained", f"{own} is higher by (AUROC)"]
        show(f"{own} beside rivals{how}", heads, body, left=2)
    if len(gains):
        body = [
            [row.outcome, row.base, figure(row.gain, row.gain_low, row.gain_high, sign="+"), _shares(row)]
            for row in gains.itertuples()
        ]
        show("What the score adds, with age and sex", ["outcome", "to", "AUROC", "deviance explained"], body, left=2)


def missing(models, risks, judged, design):
    """Return the figures with missing outcomes left out, taken as absent, and taken as present."""
    from mlci.judging.bounds import bounds

    return bounds(models, dict(zip(judged.outcomes, judged.labels().T)), risks=risks, patients=design)


def show_missing(table) -> None:
    """Print the figures with missing outcomes left out, taken as absent and taken as present."""
    from mlci.cli._tables import show
    from mlci.measures.registry import METRICS

    labels = {"share": "Share with the outcome", **{name: metric.label for name, metric in METRICS.items()}}
    body = [
        [
            *(row.outcome, row.model, labels[row.figure], f"{row.missing:,}"),
            *("–" if value != value else f"{value:.4f}" for value in (row.known, row.all_absent, row.all_present)),
        ]
        for row in table.itertuples()
    ]
    heads = ["outcome", "model", "figure", "missing", "known ones", "all absent", "all present"]
    show("If every missing outcome were absent, or present", heads, body, left=3)


def numbers(models, names, judged, design, expected):
    """Return the scores and expected values against numeric columns of the cohort."""
    from mlci.judging.numbers import judge_numbers, numeric_column

    columns = {name: numeric_column(judged, name) for name in names}
    return judge_numbers(models, columns, patients=design, expected=expected)


def show_numbers(table) -> None:
    """Print them; what a row does not have stays empty."""
    from mlci.cli._tables import show

    heads = {
        "r2": "variance explained",
        "dcorr": "dCorr",
        "dcorr_corrected": "dCorr, corrected",
        "independence": "p of independence",
        "nhsic": "nHSIC",
        "mi": "MI (nats)",
    }
    intervals = {"spearman": "Spearman", "c_index": "concordance", "observed_expected": "observed / expected"}
    told = {name: head for name, head in (intervals | heads).items() if table[name].notna().any()}
    body = [
        [row["outcome"], row["model"], f"{row['n']:,}", *(_number(row, name) for name in told)]
        for row in table.to_dict("records")
    ]
    show("Outcomes that are numbers", ["outcome", "model", "admissions", *told.values()], body, left=2)


def _number(row, name: str) -> str:
    from mlci.cli._tables import figure, p_value

    value, nothing = row[name], float("nan")
    if value != value:
        return ""
    if name == "independence":
        return p_value(value)
    return figure(value, row.get(f"{name}_low", nothing), row.get(f"{name}_high", nothing))


def _shares(row) -> str:
    return f"{row.deviance:.3f} → {row.deviance_with:.3f}"
