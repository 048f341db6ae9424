"""The page that compares two treatments: effects and balance in, HTML out."""

import pandas as pd

import mlci
from mlci.base.names import label, listing, words
from mlci.judging.balance import MEASURES, UNADJUSTED, Balance
from mlci.showing import plots
from mlci.showing._pages import Album, environment
from mlci.showing._words import number, percent, signed, spread

ALIKE = 0.1  # standardised difference below which groups are commonly regarded as balanced


def build(found: Balance, *, command: str) -> str:
    """Return the page as HTML; `command` is shown as what made it."""
    models = list(found.models["model"])
    table = found.differences
    album = Album()
    worst = [f"{model} {table[model].abs().max():.2f}" for model in models]
    album.add(
        "love",
        plots.love(table["covariate"].tolist(), table["before"].to_numpy(), {m: table[m].to_numpy() for m in models}),
        f"Standardised differences. The largest is {table['before'].abs().max():.2f} before weighting; after it: "
        f"{', '.join(worst)}.",
    )
    view = {
        "found": found,
        "title": f"{label(found.outcome)} and {words(found.treatment)}",
        "lead": _lead(found),
        "arms": _arms(found),
        "effects": _effects(found.effects),
        "measures": list(MEASURES.values()),
        "differences": [[row[0], *map(signed, row[1:])] for row in table.itertuples(index=False)],
        "models": found.models.to_dict("records"),
        "love": album.pictures["love"][0],
        "alike": ALIKE,
        "version": mlci.__version__,
        "command": command,
    }
    return environment("compare").get_template("balance.html.j2").render(view)


def _arms(found: Balance) -> list[dict[str, str]]:
    return [
        {"arm": row.arm, "n": f"{row.n:,}", "events": f"{row.events:,}", "rate": percent(row.rate)}
        for row in found.arms.itertuples()
    ]


def _effects(frame: pd.DataFrame) -> list[dict]:
    """Return a row per model and method, with a cell per measure."""
    rows = []
    for (model, method), part in frame.groupby(["model", "method"], sort=False):
        cells = {row.measure: (number(row.value, 3), spread(row.low, row.high, 3)) for row in part.itertuples()}
        shown = model if model == UNADJUSTED else f"{model}, by {method}"
        rows.append({"model": shown, "cells": [cells.get(measure, ("–", "")) for measure in MEASURES]})
    return rows


def _lead(found: Balance) -> str:
    """Return a sentence with the odds ratios, unadjusted and weighted by each index."""
    odds = found.effects[(found.effects["measure"] == "odds") & (found.effects["method"] != "regression")]
    ratios = [f"{row.value:.2f} ({row.low:.2f} to {row.high:.2f}) {_after(row.model)}" for row in odds.itertuples()]
    return (
        f"The odds ratio of {words(found.outcome)} for {words(found.treatment)} = {found.treated} is {listing(ratios)}."
    )


def _after(model: str) -> str:
    return model if model == UNADJUSTED else f"weighted by {model}"
