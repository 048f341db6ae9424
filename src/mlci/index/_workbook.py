"""Write a table as a workbook that computes risks and score from typed codes, by formulas that anyone can follow.

The .xlsx file has the sheets Score (for typing codes), Weights, Curves and About. Its formulas work in both Excel and
LibreOffice.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.extras import need
from mlci.base.names import label
from mlci.base.workbooks import new_workbook
from mlci.index.model import Model
from mlci.tokens import UNK

LINES = 40  # codes that can be typed
FIRST = 8  # row of the first typed code
FINAL = FIRST + LINES - 1


def write_workbook(
    model: Model,
    path: Path,
    table: pd.DataFrame,
    *,
    about: Sequence[str],
    typed: Sequence[tuple[int, str]] | None = None,
) -> None:
    """Write the workbook.

    Args:
        model: of the recipe `table`.
        path: of the file.
        table: the weights, from `export.weights`.
        about: notes for the reader, one per line.
        typed: ICD version and code of each field that is filled in; by default one example.
    """
    need("excel", to="write a workbook")
    with new_workbook(path, {"constant_memory": False}) as book:
        bold, field = book.add_format({"bold": True}), book.add_format({"bg_color": "#FFF2CC", "border": 1})
        percent, number = book.add_format({"num_format": "0.0%"}), book.add_format({"num_format": "0.00"})
        score, sheet, curves, text = (book.add_worksheet(name) for name in ("Score", "Weights", "Curves", "About"))
        _weights(sheet, table, bold)
        _curves(curves, model, bold)
        typed = list(table[["icd_version", "code"]].head(1).itertuples(index=False)) if typed is None else typed
        _score(
            score, model, len(table) + 1, typed, {"bold": bold, "field": field, "percent": percent, "number": number}
        )
        for row, line in enumerate([f"Outcomes: {', '.join(model.outcomes)}", *about]):
            text.write_string(row, 0, line)
        text.set_column(0, 0, 140)


def _weights(sheet: Any, table: pd.DataFrame, bold: Any) -> None:
    """Write key (ICD version and code), code, title, admissions and a weight per outcome, sorted by key for lookups."""
    learned = list(table.columns[4:])
    for column, name in enumerate(["key", "icd_version", "code", "title", "admissions", *learned]):
        sheet.write_string(0, column, name, bold)
    keys = table["icd_version"].astype(str) + ":" + table["code"]
    for row, (key, values) in enumerate(zip(keys, table.itertuples(index=False)), start=1):
        version, code, title, admissions, *numbers = values
        sheet.write_string(row, 0, key)
        sheet.write_number(row, 1, version)
        sheet.write_string(row, 2, code)
        sheet.write_string(row, 3, title)
        sheet.write_string(row, 4, admissions)
        for column, weight in enumerate(numbers, start=5):
            sheet.write_number(row, column, weight)
    sheet.set_column(3, 3, 60)
    sheet.freeze_panes(1, 0)


def _curves(sheet: Any, model: Model, bold: Any) -> None:
    """Write two columns per outcome, knots and the change of slope at each; then the points of the percentiles."""
    outcomes = list(model.outcomes)[: model.state["weights"].shape[1]]
    for place, name in enumerate(outcomes):
        knots, heights = model.state["knots"][place], model.state["heights"][place]
        slopes = np.diff(heights) / np.diff(knots)
        facts = [
            ("intercept", model.state["intercepts"][place]),
            ("unknown code", model.state["weights"][UNK, place]),
            ("risk: shift", model.state["calibration"][place, 0]),
            ("risk: slope", model.state["calibration"][place, 1]),
            ("score at the first knot", heights[0]),
            ("first knot", knots[0]),
            ("first slope", slopes[0]),
            *zip(knots[1:-1], np.diff(slopes)),
        ]
        sheet.write_string(0, 2 * place, label(name), bold)
        for row, (left, right) in enumerate(facts, start=1):
            sheet.write(row, 2 * place, left)
            sheet.write_number(row, 2 * place + 1, right)
    at = 2 * len(outcomes)
    sheet.write_string(0, at, "score", bold)
    sheet.write_string(0, at + 1, "percentile", bold)
    for row, (low, share) in enumerate(zip(model.quantiles, np.linspace(0, 100, len(model.quantiles))), start=1):
        sheet.write_number(row, at, low)
        sheet.write_number(row, at + 1, share)
    for row, rule in enumerate(["not counted", *model.vocabulary.ignored]):
        sheet.write_string(row, at + 2, rule)


def _score(sheet: Any, model: Model, last: int, typed: Sequence[tuple[int, str]], formats: dict[str, Any]) -> None:
    """Write the sheet Score: score and percentile at the top, then log-odds and risks, then one line per code.

    `last` is the last row of the sheet Weights.
    """
    outcomes, depths = list(model.outcomes)[: model.state["weights"].shape[1]], sorted(model.vocabulary.depths)
    sheet.write_string("A1", "Type ICD codes, one per line, with or without dots.", formats["bold"])
    heads = ["ICD version", "Code", "plain", *(f"first {depth}" for depth in depths), "known"]
    heads += [f"{label(name)} (log-odds)" for name in outcomes]
    for column, head in enumerate(heads):
        sheet.write_string(FIRST - 2, column, head, formats["bold"])
    version = max(model.vocabulary.versions, default=10)
    for row in range(FIRST, FIRST + LINES):
        own, code = typed[row - FIRST] if row - FIRST < len(typed) else (version, "")
        sheet.write_number(row - 1, 0, own, formats["field"])
        sheet.write_string(row - 1, 1, code, formats["field"])
        _line(sheet, model, row, last, depths, len(outcomes))
    _log_odds(sheet, model, depths, len(outcomes), formats)
    _summary(sheet, model, depths, len(outcomes), formats)
    sheet.set_column(0, 2, 14)
    sheet.set_column(4 + len(depths), 4 + len(depths) + len(outcomes), 24)
    sheet.freeze_panes(FIRST - 1, 0)


def _line(sheet: Any, model: Model, row: int, last: int, depths: Sequence[int], outcomes: int) -> None:
    """Write the formulas of one code: its normalised text, the row of each prefix, and what these add to log-odds."""
    plain = f'SUBSTITUTE(SUBSTITUTE(SUBSTITUTE(UPPER(B{row}),".",""),"-","")," ","")'
    if model.vocabulary.ignored:
        ignored = _letter(2 * outcomes + 2)
        rules = f"Curves!${ignored}$2:${ignored}${len(model.vocabulary.ignored) + 1}"
        plain = f'IF(SUMPRODUCT(--(LEFT(A{row}&":"&{plain},LEN({rules}))={rules}))>0,"",{plain})'
    sheet.write_formula(row - 1, 2, f"={plain}", None, "")
    places = []
    for place, (before, depth) in enumerate(zip([0, *depths], depths)):
        # The row of the prefix's weight; 0 if it has none.
        key = f'$A{row}&":"&LEFT($C{row},{depth})'
        match = f"IFERROR(MATCH({key},Weights!$A$2:$A${last},0),0)"
        sheet.write_formula(row - 1, 3 + place, f"=IF(LEN($C{row})>{before},{match},0)", None, 0)
        places.append(_letter(3 + place))
    matches = "+".join(f"{column}{row}" for column in places)
    sheet.write_formula(row - 1, 3 + len(depths), f'=IF($C{row}="","",IF({matches}>0,1,0))', None, "")
    for k in range(outcomes):
        weight, terms = _letter(5 + k), []
        for column in places:
            earlier = f"COUNTIF({column}${FIRST - 1}:{column}{row - 1},{column}{row})"
            value = f"INDEX(Weights!${weight}$2:${weight}${last},{column}{row})"
            terms.append(f"IF({column}{row}=0,0,IF({earlier}>0,0,{value}))")
        sheet.write_formula(row - 1, 4 + len(depths) + k, "=" + "+".join(terms), None, 0)


def _log_odds(sheet: Any, model: Model, depths: Sequence[int], outcomes: int, formats: dict[str, Any]) -> None:
    """Write for each outcome, in rows 3 to 5, the log-odds of all codes, the risk, and its part of the score."""
    points, known = len(model.state["knots"][0]) - 2, _known(depths)
    sheet.write_string("A3", "Log-odds")
    sheet.write_string("A4", "Risk")
    sheet.write_string("A5", "Part of the score")
    for k in range(outcomes):
        column, key, value = _letter(4 + len(depths) + k), _letter(2 * k), _letter(2 * k + 1)
        total = f"{column}3"
        unknown = f"IF(COUNTIF({known},0)>0,Curves!${value}$3,0)"
        sums = f"=Curves!${value}$2+{unknown}+SUM({column}{FIRST}:{column}{FINAL})"
        sheet.write_formula(f"{column}3", sums, formats["number"], 0)
        risk = f"=1/(1+EXP(-(Curves!${value}$4+Curves!${value}$5*{total})))"
        sheet.write_formula(f"{column}4", risk, formats["percent"], 0)
        knots, bends = (f"Curves!${name}$9:${name}${8 + points}" for name in (key, value))
        line = f"=Curves!${value}$6+Curves!${value}$8*({total}-Curves!${value}$7)"
        sheet.write_formula(
            f"{column}5", f"{line}+SUMPRODUCT(({total}>{knots})*({total}-{knots})*{bends})", formats["number"], 0
        )


def _summary(sheet: Any, model: Model, depths: Sequence[int], outcomes: int, formats: dict[str, Any]) -> None:
    """Write row 2: the score, its percentile, and the number of unknown codes."""
    sheet.write_string("D2", "Score", formats["bold"])
    parts = "+".join(f"{_letter(4 + len(depths) + k)}5" for k in range(outcomes))
    sheet.write_formula("E2", f"={parts}", formats["number"], 0)
    many = len(model.quantiles)
    low, share = _letter(2 * outcomes), _letter(2 * outcomes + 1)
    scores, shares = (f"Curves!${name}$2:${name}${many + 1}" for name in (low, share))
    at = f"MATCH(E2+1E-9,{scores},1)"
    inner = (
        f"INDEX({shares},{at})+(E2-INDEX({scores},{at}))*(INDEX({shares},{at}+1)-INDEX({shares},{at}))"
        f"/(INDEX({scores},{at}+1)-INDEX({scores},{at}))"
    )
    ends = f"IF(E2+1E-9>=INDEX({scores},{many}),100,IF(E2+1E-9<INDEX({scores},1),0,{inner}))"
    sheet.write_string("F2", "Percentile", formats["bold"])
    sheet.write_formula("G2", f"={ends}", formats["number"], 0)
    sheet.write_string("H2", "Unknown codes", formats["bold"])
    sheet.write_formula("I2", f"=COUNTIF({_known(depths)},0)", None, 0)


def _known(depths: Sequence[int]) -> str:
    """Return the range with a flag for each code: whether the model knows it."""
    column = _letter(3 + len(depths))
    return f"${column}${FIRST}:${column}${FINAL}"


def _letter(place: int) -> str:
    """Return the name of a column by its index from 0: A, B, ..., AA."""
    from xlsxwriter.utility import xl_col_to_name

    return xl_col_to_name(place)
