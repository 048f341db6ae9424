"""A page about a recalibrated index: predicted and observed risks before and after, on held-out patients."""

from html import escape

import numpy as np

from mlci.base.names import label
from mlci.cohort import Cohort
from mlci.index._people import of_data
from mlci.index.model import Model
from mlci.index.recalibrate import Recalibrated, moved_words
from mlci.judging.curves import binned, calibration_curve
from mlci.showing import plots
from mlci.showing._pages import style
from mlci.showing._words import number, percent

FEWEST = 10  # admissions with an outcome, and without it, below which nothing is shown
HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<title>Recalibration</title><style>{style}</style></head><body><main>{body}</main></body></html>"
)


def render(before: Model, done: Recalibrated, cohort: Cohort) -> str:
    """Return a self-contained HTML page about a recalibrated index.

    Args:
        before: the index before recalibration.
        done: the result of the recalibration.
        cohort: the cohort whose test split is shown.

    >>> import mlci
    >>> from mlci.index.recalibrate import recalibrate
    >>> before, cohort = mlci.load("us2010").model_, mlci.build_cohort("synthetic", 300, seed=1)
    >>> "not know this outcome before" in render(before, recalibrate(before, cohort), cohort)
    True
    """
    test = before.of_cohort(cohort).split("test")
    parts = [f"<h1>Recalibration for “{escape(cohort.source)}”</h1>"]
    parts.append(
        f"<p>Predicted and observed risks of the {len(test):,} admissions of the test split, which were not used for "
        "fitting, before and after recalibration. Points are tenths of the admissions by predicted risk, with 95% "
        "intervals; the line is a local regression; on the dotted diagonal, predicted and observed risk are equal.</p>"
    )
    if "updated" in done.model.card:
        parts.append(f"<p>{escape(moved_words(done.model.card['updated']))}</p>")
    areas = done.table.set_index("outcome")
    people = of_data(test, before.people, len(test))
    risks = [model.risks(model.read(test.admissions(), people)) for model in (before, done.model)]
    for place, name in enumerate(cohort.outcomes):
        observed = test.labels(name)[:, 0]
        known = ~np.isnan(observed)
        parts.append(f"<h2>{escape(label(name))}</h2>")
        if min(observed[known].sum(), (1 - observed[known]).sum()) < FEWEST:
            parts.append(f"<p>Not shown: fewer than {FEWEST} admissions have this outcome, or do not have it.</p>")
            continue
        if name not in risks[1]:
            parts.append("<p>Not shown: the model has no risk of this outcome.</p>")
            continue
        figures = []
        for when, found in zip(("before", "after"), risks):
            if name not in found:
                parts.append("<p>The model did not know this outcome before.</p>")
                continue
            groups = binned(found[name], observed, bins=10)
            figure = plots.calibration(name, groups, calibration_curve(found[name], observed))
            text = f"{label(name)}, {when} recalibration: predicted and observed risk"
            drawn = plots.svg(figure, prefix=f"{when}-{place}", alternative=text)
            expected, share = float(found[name][known].mean()), float(observed[known].mean())
            caption = (
                f"{when.capitalize()}: mean predicted risk {percent(expected)}, observed {percent(share)}; "
                f"AUROC {number(areas.loc[name, f'auroc_{when}'])}."
            )
            figures.append(f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>")
        parts.append(f'<div class="figures">{"".join(figures)}</div>')
    return HEAD.format(style=style(), body="".join(parts))
