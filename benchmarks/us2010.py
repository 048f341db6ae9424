"""How the ready-made index travels, and what the maps between ICD versions lose: the tables of docs/us2010.md.

    python benchmarks/us2010.py NHDS10.PU.txt.bz2 MIMIC3_DEMO MIMIC4_DEMO

In come the NHDS file and the folders of both MIMIC demos; out come Markdown tables. Nothing is fitted.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import spearmanr

import mlci
from mlci.codes.comorbidity import Coder, scores
from mlci.codes.icd import DATA
from mlci.codes.maps import counterparts
from mlci.cohort import Cohort
from mlci.judging.evaluate import evaluate

RIVALS = {"Charlson": "cci_charlson", "Charlson (Quan 2011)": "cci_quan", "Elixhauser (van Walraven)": "eci_vw"}


def others(cohort: Cohort) -> dict[str, np.ndarray]:
    """Charlson and Elixhauser, by the version of each code."""
    return dict(zip(RIVALS, scores(Coder()(cohort.admissions()), list(RIVALS.values())).T.astype(float)))


def across(lists: list[list[str]], version: int) -> list[list[str]]:
    """Each code by its best counterpart in the other version; without one it is left out."""
    distinct = {code for codes in lists for code in codes}
    best = {code: next((way.codes for way in counterparts(code, version)), ()) for code in distinct}
    return [[other for code in codes for other in best[code]] for codes in lists]


def cell(table: pd.DataFrame, model: str, outcome: str, metric: str) -> str:
    row = table[(table["model"] == model) & (table["outcome"] == outcome) & (table["metric"] == metric)]
    if not len(row):
        return ""
    value, low, high = (100 * float(row[name].iloc[0]) for name in ("value", "low", "high"))
    return f"{value:.1f}" if np.isnan(low) else f"{value:.1f} ({low:.1f} to {high:.1f})"


def show(table: pd.DataFrame, models: list[str], outcomes: list[str], metric: str) -> None:
    print(f"| {metric} x 100 | " + " | ".join(outcomes) + " |")
    print("|---" * (len(outcomes) + 1) + "|")
    for model in models:
        print(f"| {model} | " + " | ".join(cell(table, model, outcome, metric) for outcome in outcomes) + " |")
    print(flush=True)


def coverage() -> None:
    model = mlci.load("us2010").model_
    have = {text for text, version in zip(model.vocabulary.tokens, model.vocabulary.versions) if version == 10}
    titles = pd.read_parquet(DATA / "titles.parquet")
    billable = titles.loc[(titles["version"] == 10) & titles["billable"], "code"]
    own, family = (np.mean([code[:depth] in have for code in billable]) for depth in (4, 3))
    print(f"Billable ICD-10-CM codes ({len(billable):,}) with a weight of their own four characters: {own:.1%}; ")
    print(f"by category at least: {family:.1%}.\n")


def lost(survey: str) -> None:
    test = mlci.build_cohort("nhds", survey, not_stated="null").split("test")
    index, lists = mlci.load("us2010"), test.table["codes"].to_pylist()
    there = across(lists, 9)
    back = across(there, 10)
    ways = {
        "ICD-9-CM as recorded": index.score(lists, icd_version=9),
        "mapped to ICD-10-CM": index.score(there, icd_version=10),
        "mapped there and back": index.score(back, icd_version=9),
    }
    table = evaluate({**ways, **others(test)}, test, kernel="energy", resamples=0)
    for metric in ("auroc", "dcorr"):
        show(table, [*ways, *RIVALS], list(test.outcomes), metric)
    first = next(iter(ways.values()))
    for name, score in list(ways.items())[1:]:
        print(f"Rank correlation of the scores, {name}: {spearmanr(first, score).statistic:.3f}.")
    print()


def travels(name: str, cohort: Cohort) -> None:
    version = "ICD-" + " and ICD-".join(map(str, sorted(set(cohort.table["icd_version"].to_pylist()))))
    print(f"### {name}: {len(cohort)} admissions, {version}\n")
    found = {each: mlci.load(each).score(cohort) for each in ("us2010", "us2010-early")} | others(cohort)
    deaths = mlci.load("us2010").risk(cohort)["mortality"].to_numpy()
    found = {"us2010": found.pop("us2010"), "us2010, risk of death": deaths, **found}
    table = evaluate(found, cohort, kernel="energy", resamples=1000)
    show(table, list(found), list(cohort.outcomes), "auroc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey")
    parser.add_argument("mimic3")
    parser.add_argument("mimic4")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    coverage()
    lost(words.survey)
    travels("MIMIC-III demo", mlci.build_cohort("mimic3", words.mimic3))
    both = [mlci.build_cohort("mimic4", words.mimic4, icd_version=version) for version in (9, 10)]
    table = pa.concat_tables([each.table for each in both], promote_options="default")
    travels("MIMIC-IV demo", Cohort(table, both[1].source, both[1].outcomes))


if __name__ == "__main__":
    main()
