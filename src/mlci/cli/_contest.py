"""What `mlci evaluate` adds to its metrics: rivals of the first score, bounds, and numeric outcomes."""

from pathlib import Path


def contest(cohort: Path, judged, scores, first, design, *, weights: str | None, risks):
    """Return two tables: the first score compared with its rivals, and what it adds to age and sex.

    Either table is empty if it cannot be computed. `scores` is the table of the first file; if it covers the train
    split, the score with age and sex is a rival too. Rivals are fitted with the column `weights` and evaluated with the
    `design` of the judged admissions. If training admissions are judged, each patient is judged by rivals fitted on
    other patients. Deviance explained uses the `risks` of the score, the risks of each rival, and for a published index
    a curve over its points fitted on the train split.
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
    risks_of = {name: risks} | {
        rival: {key: expit(odds) for key, odds in found.items()} for rival, found in learned.items()
    }
    risks_of |= {} if crossed else curved(train, judged, list(outcomes), weights=weights)
    others = published | learned
    return (
        explained(compare(values, others, outcomes, patients=design, name=name), risks_of, outcomes, design.weight),
        increments(others, outcomes, patients=design, name=name),
    )


def explained(table, risks, outcomes, weight):
    """Return the table with a column of the deviance that each model's risk explains; NaN if it has no risk."""
    from mlci.measures.discrimination import calibration

    def share(row) -> float:
        risk = risks.get(row.model, {}).get(row.outcome)
        return float("nan") if risk is None else calibration(risk, outcomes[row.outcome], weight=weight).deviance

    table.insert(5, "deviance", [share(row) for row in table.itertuples()])
    return table


def learned_from(judged) -> bool:
    """Return whether training admissions are among the judged ones."""
    return "train" in judged.column("split")


def show_contest(table, gains, *, crossed: bool, unit: str) -> None:
    """Print the two tables of `contest`.

    `crossed` says that the rivals were cross-fitted on the judged admissions, in folds of `unit` (patients or
    admissions).
    """
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
        how = (
            f", cross-fitted on other {unit} (a score learned from these admissions looks too good)" if crossed else ""
        )
        heads = ["outcome", "model", "AUROC", "deviance explained", f"AUROC of {own} minus this"]
        show(f"{own} compared with rivals{how}", heads, body, left=2)
    if len(gains):
        body = [
            [row.outcome, row.base, figure(row.gain, row.gain_low, row.gain_high, sign="+"), _shares(row)]
            for row in gains.itertuples()
        ]
        heads = ["outcome", "compared with", "gain in AUROC", "deviance explained"]
        show("The score with age and sex, compared with other models", heads, body, left=2)


def missing(models, risks, judged, design):
    """Return the metrics with missing outcomes left out, treated as absent, and treated as present."""
    from mlci.judging.bounds import bounds

    return bounds(models, dict(zip(judged.outcomes, judged.labels().T)), risks=risks, patients=design)


def show_missing(table) -> None:
    """Print the table of `missing`."""
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
    heads = ["outcome", "model", "metric", "missing", "left out", "all absent", "all present"]
    show("Missing outcomes left out, all treated as absent, or all as present", heads, body, left=3)


def numbers(models, names, judged, design, expected):
    """Return the metrics of the scores and expected values against numeric columns of the cohort."""
    from mlci.judging.numbers import judge_numbers, numeric_column

    columns = {name: numeric_column(judged, name) for name in names}
    return judge_numbers(models, columns, patients=design, expected=expected)


def show_numbers(table) -> None:
    """Print the table of `numbers`; metrics that a row lacks stay empty."""
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
    shown = {name: head for name, head in (intervals | heads).items() if table[name].notna().any()}
    body = [
        [row["outcome"], row["model"], f"{row['n']:,}", *(_number(row, name) for name in shown)]
        for row in table.to_dict("records")
    ]
    show("Numeric outcomes", ["outcome", "model", "admissions", *shown.values()], body, left=2)


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
