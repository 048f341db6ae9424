"""A page on a recalibrated index: predicted against observed risk before and after, on patients kept apart."""

from html import escape

import numpy as np

from mlci.base.names import label
from mlci.cohort import Cohort
from mlci.index.model import Model
from mlci.index.recalibrate import Recalibrated, moved_words
from mlci.judging.curves import binned, calibration_curve
from mlci.showing import plots

STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "figure{display:inline-block;margin:0 1.5em 1em 0}"
)


def render(before: Model, done: Recalibrated, cohort: Cohort) -> str:
    """Return a self-contained HTML page about a recalibrated index.

    Args:
        before: the index as it was.
        done: the recalibrated one.
        cohort: whose test split is shown.

    >>> import mlci
    >>> from mlci.index.recalibrate import recalibrate
    >>> before, cohort = mlci.load("us2010").model_, mlci.build_cohort("synthetic", 300, seed=1)
    >>> "not know this outcome before" in render(before, recalibrate(before, cohort), cohort)
    True
    """
    test = before.of_cohort(cohort).split("test")
    parts = [f"<h1>Recalibrated for {escape(cohort.source)}</h1>"]
    parts.append(f"<p>{len(test):,} admissions of the test split, which no risk was fitted on.</p>")
    if "updated" in done.model.card:
        parts.append(f"<p>{escape(moved_words(done.model.card['updated']))}</p>")
    areas = done.table.set_index("outcome")
    risks = [model.risks(model.read(test.admissions())) for model in (before, done.model)]
    for name in cohort.outcomes:
        observed = test.labels(name)[:, 0]
        known = ~np.isnan(observed)
        parts.append(f"<h2>{escape(label(name))}</h2>")
        if min(observed[known].sum(), (1 - observed[known]).sum()) < 10:
            parts.append("<p>Fewer than 10 admissions with it, or without: nothing to show.</p>")
            continue
        for when, found in zip(("before", "after"), risks):
            if name not in found:
                parts.append("<p>The model did not know this outcome before.</p>")
                continue
            groups = binned(found[name], observed, bins=10)
            figure = plots.calibration(name, groups, calibration_curve(found[name], observed))
            text = f"{label(name)}, {when}: predicted against observed risk"
            drawn = plots.svg(figure, prefix=f"{when}-{list(cohort.outcomes).index(name)}", alternative=text)
            expected, share = float(found[name][known].mean()), float(observed[known].mean())
            area = areas.loc[name, f"auroc_{when}"]
            caption = f"{when.capitalize()}: expected {expected:.1%}, observed {share:.1%}; AUROC {area:.3f}."
            parts.append(f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>")
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Recalibration</title><style>{STYLE}</style>"
    return f"{head}<body>{''.join(parts)}</body></html>"
