"""Render the page: findings and pictures in, one HTML text without script or outside request out."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import mlci
from mlci.base.names import label, words
from mlci.index.vary import FIGURES as VARIED
from mlci.index.vary import MOVED
from mlci.judging.groups import UNKNOWN
from mlci.judging.rivals import OWN
from mlci.measures.registry import METRICS, reported
from mlci.showing._pages import Picture, environment
from mlci.showing._words import number, percent, rounded, spread
from mlci.showing.report import _say as say
from mlci.showing.report._findings import ALONG, LEAST, Findings, Judgement
from mlci.showing.report._tripod import items

if TYPE_CHECKING:
    from jinja2 import Template

SKILLS = ("auroc", "risk_auroc", "deviance", "nagelkerke", "brier_skill")
PACKAGES = ("numpy", "pandas", "pyarrow", "scikit-learn", "matplotlib")


def render(
    findings: Findings, figures: Mapping[str, Sequence[Picture]], *, command: str, study: Mapping[str, str]
) -> str:
    """Return the page as text; it shows `command` as its origin, and `study`, the authors' answers to TRIPOD+AI."""
    judgement = findings.judgement
    view = {
        "findings": findings,
        "people": findings.people,
        "made": findings.made,
        "found": judgement,
        "figures": figures,
        "flags": say.flags(findings),
        "items": items(findings, study),
        "table_one": _table_one(findings),
        "version": mlci.__version__,
        "packages": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "command": command,
        "least": LEAST,
        "say": say,
        "isfinite": np.isfinite,
    }
    if judgement is not None:
        view |= {
            "headline": say.headline(judgement),
            "weak": say.weak(judgement.outcomes),
            "tiles": _tiles(findings, judgement),
            "auroc_table": _aurocs(judgement.aurocs),
            "gains": _gains(judgement.gains),
            "skills": _skills(judgement),
            "varied": _varied(findings),
            "metric_tables": _metrics(judgement.metrics),
            "group_tables": _groups(judgement),
            "ungrouped": [name for name in findings.by if name not in set(judgement.groups["by"])],
        }
    return template().render(view)


def template() -> "Template":
    """Return the template of the page; compiling it, the first time, takes a tenth of a second."""
    return environment("report").get_template("report.html.j2")


def _table_one(findings: Findings) -> dict[str, list[str]]:
    """Return the cohort's Table 1 with outcomes in words, without lines whose counts are all 0."""
    names = (*findings.people.rules, *findings.people.others)
    titles = {name: label(name) for name in names} | {
        f"{name}: not known": f"{label(name)}: not known" for name in names
    }
    lines = {titles.get(name, name[:1].upper() + name[1:]): cells for name, cells in findings.people.table_one.items()}
    if findings.people.patients is None:  # each patient has one admission
        lines.pop("Patients", None)
    return {name: cells for name, cells in lines.items() if set(cells) != {"0"}}


def _tiles(findings: Findings, judgement: Judgement) -> list[dict[str, str]]:
    cut = judgement.cut
    own = [row.value for row in judgement.aurocs.itertuples() if row.model == OWN]
    scored = findings.people.admissions - findings.people.unscored
    tiles = [{"name": "Admissions evaluated", "value": f"{scored:,}", "note": findings.people.source}]
    if len(own):
        reach = f"{min(own):.2f} to {max(own):.2f}" if len(own) > 1 else f"{own[0]:.2f}"
        tiles.append({"name": "AUROC", "value": reach, "note": f"over {len(own)} outcome{'s' * (len(own) > 1)}"})
    note = f"{percent(cut.share)} of admissions"
    tiles.append({"name": "High severity from", "value": rounded(cut.cutoff.score, 3), "note": note})
    if judgement.diagnosis is not None and len(judgement.diagnosis.outcomes) > 1:
        note = "of the outcomes' joint variation"
        tiles.append({"name": "Shared direction", "value": percent(judgement.diagnosis.energy), "note": note})
    return tiles


def _aurocs(frame: pd.DataFrame) -> dict | None:
    """Return a row per model with a cell per outcome: value, interval, and whether it is lower than the index."""
    if not len(frame):
        return None
    outcomes, models = list(frame["outcome"].unique()), list(frame["model"].unique())
    cells = {(row.model, row.outcome): row for row in frame.itertuples()}
    rows = []
    for model in models:
        shown = []
        for outcome in outcomes:
            row = cells.get((model, outcome))
            if row is None:
                shown.append(None)
                continue
            verdict = ""
            if model != OWN:
                above = say.side([(row.gap_low, row.gap_high)])
                verdict = {"better": "lower", "worse": "higher"}.get(above, "too close")
            shown.append({"value": row.value, "low": row.low, "high": row.high, "verdict": verdict})
        rows.append({"model": model, "cells": shown})
    return {"outcomes": [label(name) for name in outcomes], "rows": rows}


def _gains(frame: pd.DataFrame) -> dict[str, list]:
    """Return a row per base with a cell per outcome: what the index with age and sex gains over it."""
    outcomes, cells = list(frame["outcome"].unique()), {(row.base, row.outcome): row for row in frame.itertuples()}
    rows = [
        {"base": base, "cells": [cells.get((base, outcome)) for outcome in outcomes]} for base in frame["base"].unique()
    ]
    return {"outcomes": [label(name) for name in outcomes], "rows": rows}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _skills(judgement: Judgement) -> dict[str, list]:
    """Return a row per outcome with AUROC of score and risk and what they explain, and the mean of each column."""
    shown = [outcome for outcome in judgement.outcomes if all(name in outcome.figures for name in SKILLS)]
    skills = (*SKILLS[:2], *[ALONG] * all(ALONG in outcome.figures for outcome in shown), *SKILLS[2:])
    rows = [{"outcome": label(outcome.name), "cells": [outcome.figures[name] for name in skills]} for outcome in shown]
    table = np.array([[at.value for at in row["cells"]] for row in rows])
    own = {"auroc": f"{METRICS['auroc'].short} of the score", ALONG: "Deviance explained by the score"}
    return {
        "names": [own.get(name) or METRICS[name].label for name in skills],
        "rows": rows,
        "means": table.mean(axis=0).tolist() if len(rows) > 1 else [],
    }


def _varied(findings: Findings) -> dict | None:
    """Return a row per outcome: how much indices refitted on resampled training patients vary."""
    if findings.varied is None:
        return None
    rows = [row for row in findings.varied.itertuples() if row.outcome != "score"]
    about = {row.figure: row.mean for row in findings.varied.itertuples() if row.outcome == "score"}
    outcomes = dict.fromkeys(row.outcome for row in rows)
    return {
        "times": findings.refits,
        "names": [METRICS["auroc"].short + " of the score", *(METRICS[name].label for name in VARIED[1:])],
        "rows": [
            {
                "outcome": label(name),
                "cells": [row for row in rows if row.outcome == name and row.figure != MOVED],
                "moved": next(row.mean for row in rows if row.outcome == name and row.figure == MOVED),
            }
            for name in outcomes
        ],
        "correlation": about["rank correlation"],
        "moved": about["moved by a tenth"],
    }


def _metrics(frame: pd.DataFrame) -> list[dict]:
    """Return one table per metric, with a row per model and a cell per outcome."""
    tables = []
    for metric in reported().values():
        if metric.name == "auroc":  # has a table of its own
            continue
        part = frame[(frame["metric"] == metric.name) & frame["value"].notna() & (frame["positives"] > 0)]
        part = part[part["positives"] < part["n"]]
        outcomes = list(part["outcome"].unique())
        if not outcomes:
            continue
        cells = {(row.model, row.outcome): row for row in part.itertuples()}
        rows = [
            {"model": model, "cells": [cells.get((model, outcome)) for outcome in outcomes]}
            for model in part["model"].unique()
        ]
        titles = [label(outcome) for outcome in outcomes]
        tables.append({"metric": f"{metric.heading} ({metric.depends})", "outcomes": titles, "rows": rows})
    return tables


def _groups(judgement: Judgement) -> list[dict]:
    """Return one table per column and figure, with a row per group, those of merged groups last.

    A cell without figures says “few”, but in a row of merged groups a dash: only other outcomes need that row.
    """
    tables, frame, tests = [], judgement.groups, judgement.interactions
    outcomes = [outcome.name for outcome in judgement.outcomes]
    for by in frame["by"].unique():
        part = frame[frame["by"] == by]
        cells = {(row.group, row.outcome): row for row in part.itertuples()}
        groups = {row.group: row.merged for row in part.itertuples()}
        found = {row.outcome: row for row in tests[tests["by"] == by].itertuples()}
        differ = [
            (words, [_p(getattr(found[name], column)) if name in found else "–" for name in outcomes])
            for words, column in (("p, level", "level"), ("p, slope", "slope"))
        ]
        for title, column, digits in (("AUROC", "auroc", 3), ("Observed / expected events", "ratio", 2)):
            rows = []
            for group in sorted(groups, key=lambda name: (groups[name], name == UNKNOWN, name)):
                present = [cells.get((group, outcome)) for outcome in outcomes]
                shown = [
                    {
                        "value": number(getattr(cell, column), digits),
                        "spread": spread(getattr(cell, f"{column}_low"), getattr(cell, f"{column}_high"), digits),
                        "events": f"{cell.positives:,} of {cell.n:,}",
                    }
                    if cell
                    else {"value": "–" if groups[group] else "few", "spread": "", "events": ""}
                    for cell in present
                ]
                rows.append({"group": group, "cells": shown})
            titles = [label(outcome) for outcome in outcomes]
            tables.append(
                {
                    "by": words(by),
                    "metric": title,
                    "outcomes": titles,
                    "rows": rows,
                    "differ": differ if column == "ratio" else [],
                }
            )
    return tables
