"""Run every command line and code block of the docs on small data.

`LEFT_OUT` and `BLOCKS` name what cannot be run here, with the reason. tests/test_docs.py runs README.md.
"""

import re
import shlex
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mlci
from conftest import ROOT
from mlci.benchmark.changes import read_changes
from mlci.config import read_config
from mlci.showing.report import read_study
from pages import PAGES, blocks, command_blocks

# Locations that a page uses -> the test data that replace them.
PLACES = {
    "physionet.org/files/mimiciv": "mimic4_demo",
    "FOLDER": "mimic4_demo",
    "postgresql://reader@host/omop": "mimic4_demo_omop",
    "NHDS10.PU.txt.bz2": "nhds2010/sample.txt.bz2",
    "NHDS10.PU.txt": "nhds2010/sample.txt.bz2",
}
# Beginnings of lines that are not run here, with the reason. Lines with options in brackets show usage only, too.
LEFT_OUT = {
    "mlci serve": "does not end; tests/web run it",
    "mlci cohort SOURCE": "shows usage only",
    "mlci cohort tables FOLDER-OR-URL": "shows usage only; the page's TOML is run below",
    "mlci reproduce mimic4 LOCATION": "shows usage only",
    "mlci benchmark nhds.parquet": "every model takes hours; tests/benchmark run each of them",
    "mlci curves runs/": "tests/benchmark draw the curves of runs",
    "torchrun": "needs a GPU; tests/fitting/test_processes.py runs it on processors",
    "PYSPARK_PYTHON": "needs a cluster; tests/test_spark.py scores on a local one",
    "python": "makes an environment, or takes hours on the whole survey",
    "pip": "tests/test_package.py installs",
    "make": "runs these tests itself",
    "docker": "no registry; tests/test_package.py runs the steps of the Dockerfile",
    "mlci-env": "tests/test_package.py runs the same steps",
    ".venv/bin/python": "runs these tests itself",
}
# Lines already run, with the command that made their cohort: a line on several pages is run once.
ALREADY_RUN: set[tuple[str, str]] = set()
# Replacements that save time: fewer admissions, models, seeds and epochs.
SHORTER = {
    "mlci cohort synthetic": lambda words: [*words[:3], "1500", *words[4:]],
    "mlci benchmark": lambda words: [*words, "--epochs", "1", "--seeds", "11"],
    "mlci reproduce": lambda words: [*words, "--models", "charlson,table", "--seeds", "11"],
    "mlci fit": lambda words: [*words, "--config", "deep.toml" if "deep" in words else "table.toml"],
}
CONFIGS = {
    "deep.toml": "[posterior]\nmembers = 2\nepochs = 1\n[collapse]\nepochs = 5\n",
    "table.toml": "[penalty]\ncommon = 0.02\nown = 0.02\n",  # not searched for
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory, demos) -> Path:
    """Return a folder with the files that the pages use: a spreadsheet, cohorts, scores, a model."""
    folder = tmp_path_factory.mktemp("desk")
    cohort = mlci.build_cohort("synthetic", 1_500, seed=1, hospitals=12)
    cost = pa.array(np.random.default_rng(1).gamma(2, 1_000, len(cohort)))
    cohort = replace(cohort, table=cohort.table.append_column("cost", cost).append_column("change", pc.ln(cost)))
    cohort.write(folder / "cohort.parquet")
    frame = cohort.table.to_pandas()
    codes = pd.DataFrame(frame["codes"].tolist()).iloc[:, :25].add_prefix("DX")
    visits = codes.assign(visit_id=range(len(codes)), expired=frame["mortality"].map({True: "Y", False: "N"}))
    visits = visits.assign(los=frame["long_stay"].astype(int) * 6 + 3, **frame[["age", "sex", "hospital"]])
    visits.to_csv(folder / "visits.csv", index=False)
    visits.to_excel(folder / "visits.xlsx", index=False)
    (folder / "admissions.csv").write_text(blocks(ROOT / "README.md", "csv")[0])
    for name, text in CONFIGS.items():
        (folder / name).write_text(text)
    index = mlci.MLCI(config=folder / "table.toml").fit(cohort)
    index.save(folder / "model.safetensors")
    scored = index.table(cohort).assign(model="mlci")
    scored.to_parquet(folder / "scores.parquet", index=False)
    scored.assign(model="classic", score=cohort.table["age"].to_pandas()).to_parquet(folder / "classic.parquet")
    survey = mlci.build_cohort("nhds", demos / "nhds2010" / "sample.txt.bz2")
    survey.write(folder / "nhds.parquet")
    mlci.load("us2010").table(survey).assign(model="us2010").to_parquet(folder / "survey.parquet", index=False)
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # small data cause many warnings
@pytest.mark.parametrize(
    "page", [page for page in PAGES if command_blocks(page) and page.parent.name == "docs"], ids=lambda page: page.stem
)
def test_commands_of_a_page_run(page, desk, demos, mlci_cli, tmp_path):
    for number, block in enumerate(command_blocks(page)):
        made = block[0] if block[0].startswith("mlci cohort") else ""
        lines = [
            line
            for line in block
            if not line.startswith(tuple(LEFT_OUT)) and " [" not in line and (line, made) not in ALREADY_RUN
        ]
        workdir = shutil.copytree(desk, tmp_path / str(number)) if lines else tmp_path
        if any("nhds.parquet" in line for line in lines):  # then scores.parquet must hold scores of the survey
            shutil.copy(workdir / "survey.parquet", workdir / "scores.parquet")
        for line in lines:
            ALREADY_RUN.add((line, made))
            words = [str(demos / PLACES[word]) if word in PLACES else word for word in shlex.split(line)]
            for beginning, shorten in SHORTER.items():
                words = shorten(words) if set(beginning.split()) <= set(words) else words
            forced = ["--force"] if words[1] == "cohort" and "-o" in words else []
            mlci_cli(*words[1:], *forced, cwd=workdir)


# Blocks in other languages: where they are run, or why they are not.
RUN = "by test_python_of_a_page_runs"
BLOCKS = {
    ("adding-a-baseline", "python"): "below",
    ("cluster", "python"): "needs a cluster; tests/test_spark.py scores on a local one",
    **{(name, "python"): RUN for name in ("guide", "compare", "measures", "spreadsheet", "synthetic", "us2010")},
    **{(name, "toml"): "below" for name in ("beyond", "method", "report", "own-tables")},
    ("export", "yaml"): "dbt's",
    ("export", "sql"): "dbt's; tests/index/test_export.py runs the view that it reads",
    ("us2010", "csv"): "scored as admissions.csv",
}


def test_every_block_is_run_or_left_out_with_a_reason():
    """A block without a language shows usage or the output of a command, and is not listed."""
    found = {
        (page.stem, language)
        for page in PAGES
        if page.parent.name == "docs"
        for language in re.findall(r"^```(\w*)\n.*?^```", page.read_text(), flags=re.S | re.M)
    }
    assert {block for block in found if block[1] not in ("", "console", "sh")} == set(BLOCKS)


def block_of(name: str, language: str, *, number: int = 0) -> str:
    return blocks(ROOT / "docs" / f"{name}.md", language)[number]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for (name, _), how in BLOCKS.items() if how == RUN])
def test_python_of_a_page_runs(name, desk, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(desk, tmp_path / "desk"))
    cohort = mlci.read_cohort("cohort.parquet")
    score, y = np.asarray(pd.read_parquet("scores.parquet")["score"]), cohort.labels("mortality")[:, 0]
    known = {"mlci": mlci, "cohort": cohort, "frame": pd.read_csv("visits.csv"), "points": score, "score": score}
    known |= {"y": y, "patient": cohort.column("subject_id")}
    monkeypatch.setattr(mlci, "MLCI", partial(mlci.MLCI, config="table.toml"))
    for text in blocks(ROOT / "docs" / f"{name}.md", "python"):
        exec(compile(text.replace("20_000", "500"), f"{name}.md", "exec"), known)


def test_baseline_of_the_docs_runs(tmp_path):
    named: dict = {"__name__": "page"}
    exec(compile(block_of("adding-a-baseline", "python"), "adding-a-baseline.md", "exec"), named)
    [model] = named["MODELS"]
    tokens = SimpleNamespace(counts=np.array([1, 4, 2]))
    part = SimpleNamespace(tokens=tokens)
    assert model.score(model.fit(part, part, seed=1), part).tolist() == [0.5, 1.0, 0.5**0.5]


def test_toml_of_the_docs_is_read(tmp_path):
    file = tmp_path / "page.toml"
    file.write_text(block_of("beyond", "toml"))
    assert read_config(file, recipe="deep").collapse.importance == {"mortality": 2.0}
    file.write_text(block_of("method", "toml"))
    assert set(read_changes(file)) == {"knn", "ablation", "paper"}
    file.write_text(block_of("report", "toml"))
    assert set(read_study(file)) == {"ethics", "data", "openness"}


def test_toml_for_own_tables_builds_the_expected_cohort(tmp_path, mlci_cli):
    """The tables hold three stays of two patients, with the names that the page's TOML uses."""
    (tmp_path / "stays.csv").write_text(
        "encounter,mrn,admit_time,discharge_time,death_date,years,ward,expired,disposition\n"
        "1,a,2020-01-01 08:00,2020-01-12 08:00,,81,A,0,HOME\n"
        "2,a,2020-01-20 08:00,2020-01-22 08:00,2020-02-01,81,A,0,OTHER\n"
        "3,b,2020-03-01 08:00,2020-03-02 08:00,2020-03-02,40,B,1,DIED\n"
    )
    rows = "1,I50.9,1,Y\n2,I50.9,1,Y\n2,N17.9,2,N\n3,A41.9,1,Y\n"
    (tmp_path / "dx.csv").write_text(f"encounter,icd,rank,present\n{rows}")
    (tmp_path / "icu_stays.csv").write_text("encounter,in_time\n3,2020-03-01 09:00\n2,2020-01-21 20:00\n")
    (tmp_path / "hospital.toml").write_text(block_of("own-tables", "toml"))
    mlci_cli("cohort", "tables", ".", "--config", "hospital.toml", "-o", "cohort.parquet")
    cohort = mlci.read_cohort(tmp_path / "cohort.parquet")
    order = np.argsort(cohort.column("admission_id"))
    found = {name: cohort.labels(name)[order, 0].tolist() for name in cohort.outcomes}
    assert found["mortality"] == [0, 0, 1]
    assert found["home"] == [1, 0, 0]
    assert found["old"] == [1, 1, 0]
    assert found["readmission"][0] == 1
    assert found["mortality_30d"] == [0, 1, 1]
    assert found["long_stay"] == [1, 0, 0]
    assert found["icu_transfer"][1:] == [1, 0]
