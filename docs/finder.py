"""A hook of mkdocs: the rows of two pages to search in, made from the shipped index and from the published runs.

`weights.md` shows the whole table of us2010; `runs.md` has a row for each model and outcome of the open benchmarks. The
rows lie beside the page as a script, so that it works from a folder too, without a server and without a network.
"""

import json
from pathlib import Path

import pandas as pd
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import mlci
from mlci.base.names import label
from mlci.codes.categories import category_words
from mlci.codes.icd import dotted, title

DOCS = Path(__file__).parent
COLUMNS = {"dcorr": "dCorr", "rank_dcorr": "rank dCorr", "mi": "MI", "auroc": "AUROC"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, rows in (("weights", _weights()), ("runs", _runs())):
        content = f"window.FINDER = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"
        files.append(File.generated(config, f"{name}/rows.js", content=content))
    return files


def _weights() -> dict:
    """Version, code, title, a weight per outcome, and how many training admissions stand behind the row."""
    model = mlci.load("us2010").model_
    known, rows = model.vocabulary, []
    for version, code, own, many in zip(
        known.versions, known.tokens, model.state["weights"][2:].round(2).tolist(), known.support
    ):
        words = title(code, version) or category_words(code, version) or ""
        rows.append([f"ICD-{version}", dotted(code, version), words, *own, many])
    outcomes = [label(name) for name in model.outcomes]
    return {"columns": ["Version", "Code", "Title", *outcomes, "Admissions ≥"], "rows": rows}


def _runs() -> dict:
    rows = []
    for data in ("nhds", "synthetic"):
        runs = pd.read_csv(DOCS / data / "runs.csv")
        table = runs.groupby(["model", "outcome", "metric"], sort=False)["value"].mean().unstack("metric")
        for (model, outcome), values in table.iterrows():
            rows.append([data, model, label(outcome), *(round(100 * values[key], 1) for key in COLUMNS)])
    return {"columns": ["Data", "Model", "Outcome", *(f"{name} x 100" for name in COLUMNS.values())], "rows": rows}
