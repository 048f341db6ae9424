"""How us2010 does elsewhere, and what the maps between ICD versions lose: the tables of docs/us2010-evidence.md.

    python benchmarks/us2010.py NHDS10.PU.txt.bz2 MIMIC3_DEMO MIMIC4_DEMO [--seeds 5] [--fresh 10]

Reads the NHDS file and the folders of both MIMIC demos, and prints Markdown tables for these, for parts of the survey
that could be hospitals, and for synthetic hospitals of several seeds. Nothing is fitted.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import spearmanr

import mlci
from mlci.base.names import words
from mlci.codes.icd import DATA
from mlci.codes.maps import counterparts
from mlci.cohort import Cohort
from mlci.judging.evaluate import evaluate
from mlci.judging.rivals import compare
from mlci.measures.discrimination import auroc

CHAPTERS = {  # of ICD-9-CM, by the first and the last category
    "infection": ("001", "139"),
    "neoplasm": ("140", "239"),
    "mental disorder": ("290", "319"),
    "circulation": ("390", "459"),
    "respiration": ("460", "519"),
    "digestion": ("520", "579"),
    "kidney or genitals": ("580", "629"),
    "pregnancy": ("630", "679"),
    "bones or joints": ("710", "739"),
    "injury": ("800", "999"),
}
FEWEST = 20  # admissions with an outcome, and without it, in a part of the survey
RIVALS = {
    "Charlson": "cci_charlson",
    "Charlson (Quan 2011)": "cci_quan",
    "Elixhauser (van Walraven)": "eci_vw",
    "Gagne": "gagne_score",
    "Elixhauser Refined (AHRQ)": "ahrq_mortality",
    "HFRS": "hfrs_score",
}
OF_ANY_VERSION, OF_ICD10 = "charlson,elixhauser,gagne", "ahrq,hfrs"

# The risk that stands for an outcome of MIMIC.
OWN = {
    "mortality": "mortality",
    "mortality_30d": "mortality",
    "long_stay": "long_stay",
    "icu_transfer": "critical_care",
}


def others(cohort: Cohort) -> dict[str, np.ndarray]:
    """Published indices, by the version of each code; ICD-10-only indices where all codes are ICD-10."""
    names = [OF_ANY_VERSION, *([OF_ICD10] if set(cohort.table["icd_version"].to_pylist()) == {10} else [])]
    found = mlci.indices(cohort, ",".join(names), weights=["charlson", "quan", "vw"])
    return {name: np.asarray(found[column], float) for name, column in RIVALS.items() if column in found.columns}


def across(lists: list[list[str]], version: int) -> list[list[str]]:
    """Map each code to its best counterpart in the other version; leave out codes without one."""
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


def coverage(recorded: Cohort) -> None:
    """The share of ICD-10-CM codes with a weight: of all billable ones, and of those that a hospital recorded."""
    model = mlci.load("us2010").model_
    have = {text for text, version in zip(model.vocabulary.tokens, model.vocabulary.versions) if version == 10}
    titles = pd.read_parquet(DATA / "titles.parquet")
    billable = titles.loc[(titles["version"] == 10) & titles["billable"], "code"]
    met = {code for codes in recorded.table["codes"].to_pylist() for code in codes}
    for whose, codes in {"Billable ICD-10-CM codes": billable, "ICD-10 codes of the MIMIC-IV demo": met}.items():
        own, family = (np.mean([code[:depth] in have for code in codes]) for depth in (4, 3))
        print(f"{whose} ({len(codes):,}) with a weight of their own four characters: {own:.1%};")
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
        show(table, [*ways, *others(test)], list(test.outcomes), metric)
    first = next(iter(ways.values()))
    for name, score in list(ways.items())[1:]:
        print(f"Rank correlation of the scores, {name}: {spearmanr(first, score).statistic:.3f}.")
    print()


def parts_of(cohort: Cohort) -> dict[str, np.ndarray]:
    """Admissions that could be a hospital's: by region, size, owner, age, length of list, reason, critical care."""
    table, lists = cohort.table, cohort.table["codes"].to_pylist()
    many, age = np.array(list(map(len, lists))), np.asarray(table["age"])
    reason = np.array([codes[0][:3] if codes else "" for codes in lists])
    found = {"all": many >= 0, "critical care": cohort.labels("critical_care")[:, 0] == 1}
    for name in ("region", "beds", "ownership"):
        values = np.array(table[name].to_pylist())
        found |= {f"{name} {value}": values == value for value in np.unique(values)}
    for low, high in ((18, 44), (45, 64), (65, 79), (80, 120)):
        found[f"age {low} to {high}"] = (age >= low) & (age <= high)
    for low, high in ((1, 4), (5, 8), (9, 12), (13, 15)):
        found[f"{low} to {high} codes"] = (many >= low) & (many <= high)
    return found | {f"reason: {name}": (reason >= low) & (reason <= high) for name, (low, high) in CHAPTERS.items()}


def sliced(survey: str) -> None:
    """In how many parts of the test split, and for which outcomes, score and own risk lead Charlson and Elixhauser."""
    test = mlci.build_cohort("nhds", survey, not_stated="null").split("test")
    index, rivals = mlci.load("us2010"), others(test)
    score, risks, rows = index.score(test), index.risk(test), []
    for part, here in parts_of(test).items():
        for outcome in test.outcomes:
            label = test.labels(outcome)[:, 0]
            known = here & ~np.isnan(label)
            events = int(label[known].sum())
            if min(events, known.sum() - events) >= FEWEST:
                found = {"score": score, "own risk": risks[outcome].to_numpy(), **rivals}
                figures = {name: 100 * auroc(values[known], label[known]) for name, values in found.items()}
                rows.append({"part": part, "outcome": outcome, "events": events, **figures})
    table = pd.DataFrame(rows)
    best = table[list(rivals)].max(axis=1)
    print(f"### Parts of the survey's test split: {len(table)} of at least {FEWEST} events\n")
    for name in ("score", "own risk"):
        ahead, lead = (table[name] > best).sum(), (table[name] - best).mean()
        print(f"The {name} leads every rival in {ahead}, on average by {lead:.1f} points.")
    behind = table[(table["score"] <= best) | (table["own risk"] <= best)]
    print("\nBehind, AUROC x 100:", behind.to_string(index=False, float_format="%.1f") if len(behind) else "nowhere")
    print(flush=True)


def gaps(cohort: Cohort, found: dict[str, np.ndarray], ours: dict[str, np.ndarray], words: str) -> None:
    """Differences between a score and the rivals for each outcome, paired over patients."""
    rivals = {name: found[name] for name in found if "us2010" not in name}
    print(f"| AUROC of the {words} less that of | " + " | ".join(cohort.outcomes) + " |")
    print("|---" * (len(cohort.outcomes) + 1) + "|")
    cells: dict[str, list[str]] = {name: [] for name in rivals}
    for name in cohort.outcomes:
        by_outcome = {rival: {name: score} for rival, score in rivals.items()}
        label, patients = {name: cohort.labels(name)[:, 0]}, cohort.column("subject_id")
        table = compare(ours[name], by_outcome, label, patients=patients)
        for row in table[table["model"].isin(list(rivals))].to_dict("records"):
            low, high = (100 * row[key] for key in ("gap_low", "gap_high"))
            cells[row["model"]].append(f"{100 * row['gap']:+.1f} ({low:+.1f} to {high:+.1f})")
    for rival, values in cells.items():
        print(f"| {rival} | {' | '.join(values)} |")
    print(flush=True)


def travels(name: str, cohort: Cohort) -> None:
    version = "ICD-" + " and ICD-".join(map(str, sorted(set(cohort.table["icd_version"].to_pylist()))))
    print(f"### {name}: {len(cohort)} admissions, {version}\n")
    risks = mlci.load("us2010").risk(cohort)
    found = {
        "us2010": mlci.load("us2010").score(cohort),
        **{f"us2010, risk of {words(outcome)}": risks[outcome].to_numpy() for outcome in dict.fromkeys(OWN.values())},
        "us2010-early": mlci.load("us2010-early").score(cohort),
        **others(cohort),
    }
    table = evaluate(found, cohort, kernel="energy", resamples=500)
    show(table, list(found), list(cohort.outcomes), "auroc")
    gaps(cohort, found, dict.fromkeys(cohort.outcomes, found["us2010"]), "score")
    gaps(cohort, found, {name: risks[OWN[name]].to_numpy() for name in cohort.outcomes}, "own risk")


def synthetic(many: int, seeds: range) -> None:
    """AUROC x 100 on synthetic hospitals: mean and SD over seeds, and in how many of them us2010 leads."""
    print(f"### Synthetic hospitals: seeds {seeds[0]} to {seeds[-1]}, {many:,} admissions each, ICD-10\n")
    rows = []
    for seed in seeds:
        cohort, index = mlci.build_cohort("synthetic", many, seed=seed), mlci.load("us2010")
        risks, score = index.risk(cohort), index.score(cohort)
        for name in cohort.outcomes:
            label = cohort.labels(name)[:, 0]
            found = {"us2010": score, "us2010, own risk": risks[OWN[name]].to_numpy(), **others(cohort)}
            rows += [
                {"seed": seed, "outcome": name, "model": model, "auroc": 100 * auroc(values, label)}
                for model, values in found.items()
            ]
    table = pd.DataFrame(rows).pivot(index=["model", "seed"], columns="outcome", values="auroc")
    table = table[list(OWN)]
    ours = ("us2010", "us2010, own risk")
    print("| AUROC x 100; seeds in which score and own risk lead | " + " | ".join(OWN) + " |")
    print("|---" * (1 + len(OWN)) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        own = table.loc[model]
        cells = [f"{own[name].mean():.1f} (SD {own[name].std():.1f})" for name in OWN]
        if "us2010" not in model:
            ahead = [[int((table.loc[best][name] > own[name]).sum()) for best in ours] for name in OWN]
            cells = [f"{text}; {score}, {risk}" for text, (score, risk) in zip(cells, ahead)]
        print(f"| {model} | " + " | ".join(cells) + " |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey")
    parser.add_argument("mimic3")
    parser.add_argument("mimic4")
    parser.add_argument("--seeds", type=int, default=5, help="synthetic hospitals")
    parser.add_argument("--fresh", type=int, default=10, help="more, from seed 101 on, not seen during development")
    parser.add_argument("--synthetic", type=int, default=10_000, help="admissions of each")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    both = [mlci.build_cohort("mimic4", given.mimic4, icd_version=version) for version in (9, 10)]
    coverage(both[1])
    lost(given.survey)
    sliced(given.survey)
    travels("MIMIC-III demo", mlci.build_cohort("mimic3", given.mimic3))
    table = pa.concat_tables([each.table for each in both], promote_options="default")
    travels("MIMIC-IV demo", Cohort(table, both[1].source, both[1].outcomes))
    travels("MIMIC-IV demo, ICD-10", both[1])
    for first, seeds in ((1, given.seeds), (101, given.fresh)):
        synthetic(given.synthetic, range(first, first + seeds))


if __name__ == "__main__":
    main()
