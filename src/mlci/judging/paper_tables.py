"""The paper's Tables 3, 4, 5 and 8 for any scores: turn figures into formatted tables.

A row is a name (a seed, an index, the paper) with its figures by quantity and outcome, so computed rows and those
printed in the paper fit in one table. Locations of a maximum (j, tail) are shown for each seed and never averaged.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.base.grids import Grid, grid
from mlci.base.names import label
from mlci.judging.curves import Trend, verdict
from mlci.judging.theory import Diagnosis

Spread = tuple[float, float]  # mean, and standard deviation over seeds
Figures = Mapping[tuple[str, str], float | Spread]  # by quantity and outcome (empty for figures of all outcomes)
AVERAGED = ("energy_ratio", "J", "J1", "gamma", "nhsic", "rho2")  # quantities whose mean over seeds is meaningful
MISSING = "–"


def figures(diagnosis: Diagnosis) -> dict[tuple[str, str], float]:
    """Return the figures of a `diagnosis` that the paper's diagnostic tables show, by quantity and outcome.

    >>> from mlci.judging.theory import diagnose
    >>> found = figures(diagnose([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"]))
    >>> found["j_v", ""], found["tail_share", ""], round(found["rho2", "mortality"], 6)
    (2, 0.5, 1.0)
    """
    best, cut = diagnosis.best_objective, diagnosis.shared.threshold
    found = {(f"sigma_{k}", ""): value for k, value in enumerate(diagnosis.singular_values, start=1)}
    found |= {("energy_ratio", ""): diagnosis.energy, ("J", ""): diagnosis.objective, ("J1", ""): diagnosis.projected}
    found |= {("gamma", ""): diagnosis.retention, ("n", ""): diagnosis.n, ("j_J", ""): best.split}
    found |= {("j_v", ""): cut.split, ("tail", ""): cut.tail, ("tail_share", ""): cut.share, ("rho2_v", ""): cut.rho2}
    found |= {("nhsic", task.name): float(task.nhsic or 0.0) for task in diagnosis.tasks}
    return found | {("rho2", task.name): task.threshold.rho2 for task in diagnosis.tasks}


def averages(seeds: Sequence[Mapping[tuple[str, str], float]]) -> dict[tuple[str, str], Spread]:
    """Return mean and standard deviation (n - 1) over seeds of the figures in `AVERAGED`.

    >>> averages([{("J", ""): 0.5, ("j_v", ""): 10}, {("J", ""): 0.7, ("j_v", ""): 900}])
    {('J', ''): (0.6, 0.14142135623730948)}
    """
    found = {}
    for key in seeds[0]:
        if key[0] in AVERAGED:
            values = [figures[key] for figures in seeds if key in figures]
            found[key] = (float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan"))
    return found


def diagnostic_tables(rows: Mapping[str, Figures], *notes: str) -> list[Grid]:
    """Return Tables 3, 4 and 5, with retention and tail share in addition to the paper's columns.

    Args:
        rows: name of each row → its figures.
        *notes: sentences below each table.

    >>> from mlci.judging.theory import diagnose
    >>> made = diagnostic_tables({"seed 11": figures(diagnose([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"]))})
    >>> [table.name for table in made]
    ['table3_rank_one', 'table4_thresholds', 'table5_outcomes']
    """
    return [_rank_one(rows, notes), _thresholds(rows, notes), _outcomes(rows, notes)]


def _rank_one(rows: Mapping[str, Figures], notes: tuple[str, ...]) -> Grid:
    most = max(sum(name.startswith("sigma_") for name, _ in row) for row in rows.values())

    def cells(row: Figures) -> list[str]:
        values = [row.get((f"sigma_{k}", "")) for k in range(1, most + 1)]
        stacked = ", ".join(f"{value:.2f}" for value in values if value is not None)
        return [
            f"({stacked})" if stacked else MISSING,
            *(_number(row, name, 3) for name in ("energy_ratio", "J", "J1", "gamma")),
        ]

    title = "Table 3. Rank-one alignment and objective values on learned scores; γ is the retention J₁ / J"
    heads = ["data", f"σ₁ to σ{chr(0x2080 + most)} of W", "σ₁² share", "J", "J₁", "γ"]
    return grid("table3_rank_one", title, heads, [[name, *cells(row)] for name, row in rows.items()], *notes)


def _thresholds(rows: Mapping[str, Figures], notes: tuple[str, ...]) -> Grid:
    def cells(row: Figures) -> list[str]:
        tail = f"{row['tail', '']:,.0f} of {row['n', '']:,.0f}"
        cuts = [f"{row[name, '']:,.0f}" for name in ("j_J", "j_v")]
        return [*cuts, tail, f"{row['tail_share', '']:.2%}", _number(row, "rho2_v", 3)]

    rows = {name: row for name, row in rows.items() if ("j_v", "") in row}
    title = "Table 4. Two-level thresholds: best split for all outcomes (j_J) and for the shared direction v (j_v)"
    heads = ["data", "j_J", "j_v", "tail", "tail share", "ρ⋆²(v)"]
    return grid("table4_thresholds", title, heads, [[name, *cells(row)] for name, row in rows.items()], *notes)


def _outcomes(rows: Mapping[str, Figures], notes: tuple[str, ...]) -> Grid:
    outcomes = list(dict.fromkeys(outcome for row in rows.values() for _, outcome in row if outcome))
    quantities = {"nhsic": "nHSIC of the score", "rho2": "best threshold ρ⋆²"}
    lines = [
        [name, words, *(_number(row, quantity, 3, outcome) for outcome in outcomes)]
        for name, row in rows.items()
        for quantity, words in quantities.items()
    ]
    title = "Table 5. Each outcome: nHSIC of the learned score, and the certificate of its own best threshold"
    return grid("table5_outcomes", title, ["data", "figure", *map(label, outcomes)], lines, *notes)


def _number(row: Figures, quantity: str, digits: int, outcome: str = "") -> str:
    value = row.get((quantity, outcome), np.nan)
    mean, sd = value if isinstance(value, tuple) else (value, np.nan)
    return MISSING if np.isnan(mean) else f"{mean:.{digits}f}" + ("" if np.isnan(sd) else f" ± {sd:.{digits}f}")


def changes(trends: Sequence[Trend]) -> dict[str, Spread]:
    """Return the mean and SD of each outcome's change of risk from its `trends`, as input for `curve_table`.

    >>> changes([Trend("mortality", (0.2, 0.4), 100, 10)])
    {'mortality': (0.30000000000000004, 0.14142135623730953)}
    """
    return {trend.outcome: (trend.mean, trend.sd) for trend in trends}


def curve_table(rows: Mapping[str, Mapping[str, Spread]], *notes: str) -> Grid:
    """Return Table 8: the change of each risk along the score, and its classification.

    Args:
        rows: name of each row → outcome → the change and its SD over seeds (NaN for one seed).
        *notes: sentences below the table.

    >>> curve_table({"paper": {"mortality": (0.053, 0.009)}}).sections[0].rows[0][1][0].text
    'increasing (Δ = 0.053 ± 0.009)'
    """
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [
        [title, *(_change(*row[name]) if name in row else MISSING for name in names)] for title, row in rows.items()
    ]
    title = "Table 8. Change Δ of the isotonic risk along the score, 5% to 95% of the way (± SD over seeds)"
    return grid("table8_risk_curves", title, ["data", *map(label, names)], lines, *notes)


def _change(mean: float, sd: float) -> str:
    return f"{verdict(mean)} (Δ = {mean:.3f}{'' if np.isnan(sd) else f' ± {sd:.3f}'})"
