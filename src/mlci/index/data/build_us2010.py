"""Build the ready-made indices from the National Hospital Discharge Survey 2010, and evaluate them.

    python src/mlci/index/data/build_us2010.py NHDS10.PU.txt.bz2 [--costs]

The input is the survey's public-use file. The script writes to its own folder:

- `us2010.safetensors`, and `us2010-early.safetensors` without codes that reveal the outcome;
- `us2010.csv`, their performance on the test split with 95 % intervals;
- `us2010.zip`, the weights, the model card and the report of `us2010` on the test split.

Both indices are tables. They are fitted to the training and validation splits (80 % of adult discharges) and to
shortened copies of each admission, and carried over to ICD-10-CM by the General Equivalence Mappings. Penalties are
chosen, and risks calibrated, by cross-validation over the regions of the country; the outcomes share as much as the
one-standard-error rule allows. Tokens of fewer than 10 training admissions are not learned. The same input gives
bit-for-bit identical files. `--costs` prints what the copies cost on admissions as recorded, and what they gain on
admissions shortened in ways that training did not see.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import mlci
from mlci.base.blas import single_thread
from mlci.codes.admissions import as_admissions
from mlci.codes.maps import counterparts
from mlci.cohort import Cohort
from mlci.config import PenaltyConfig, TableConfig
from mlci.index._carry import carry
from mlci.index._held_out import held_out
from mlci.index.estimator import MLCI
from mlci.index.model import Model, load_model
from mlci.index.modelcard import model_card
from mlci.index.ready import DOCUMENTS
from mlci.index.shift import makeup_of
from mlci.judging.evaluate import evaluate
from mlci.measures.discrimination import auroc

FOLDER = Path(__file__).parent
LEAST = 10  # training admissions of every token of a published table
PLAIN = TableConfig(tokens=replace(TableConfig().tokens, min_admissions=LEAST))
APART = "region"  # of the country, of which there are four: a fold leaves one out, to imitate other hospitals
STURDY = replace(
    PLAIN,
    copies=True,
    penalty=PenaltyConfig(folds=4, firm=True),
    curve=replace(PLAIN.curve, straight=0.1),
)
CONFIGS = {
    "us2010": STURDY,
    "us2010-early": replace(STURDY, tokens=replace(PLAIN.tokens, without_outcome_codes=True)),
}
SEED = 2010

Form = Callable[[list[str], np.random.Generator], list[str]]
FORMS: dict[str, Form] = {  # ways to shorten the test split; training saw only the first
    "as recorded": lambda codes, rng: codes,
    "codes cut to four characters": lambda codes, rng: [code[:4] for code in codes],
    "the first five codes": lambda codes, rng: codes[:5],
    "the first two codes, cut to three characters": lambda codes, rng: [code[:3] for code in codes[:2]],
    "a random 30 % of the codes": lambda codes, rng: [code for code in codes if rng.random() < 0.3],
    "the last three codes": lambda codes, rng: codes[-3:],
}


def learned_from(cohort: Cohort) -> Cohort:
    """Return the training and validation splits as one training split, as the table cross-validates within it."""
    known = cohort.split("train", "valid")
    place = known.table.column_names.index("split")
    return replace(known, table=known.table.set_column(place, "split", pa.array(["train"] * len(known))))


def figures(index: MLCI, test: Cohort) -> pd.DataFrame:
    """Return AUROC and dCorr of the score, and AUROC of each outcome's own risk, with intervals."""
    risks = index.risk(test)
    found = [evaluate({"score": index.score(test)}, test, kernel="energy")]
    found += [
        evaluate({"risk": risks[name].to_numpy()}, replace(test, outcomes={name: test.outcomes[name]}), kernel="energy")
        for name in test.outcomes
    ]
    table = pd.concat(found)
    table = table[
        table["metric"].isin(["auroc", "dcorr"]) & ~((table["model"] == "risk") & (table["metric"] == "dcorr"))
    ]
    return table[["model", "outcome", "metric", "value", "low", "high", "n", "positives"]]


@single_thread()  # rounding depends on the number of threads
def with_test_figures(model: Model, test: Cohort) -> Model:
    """Return the model with its performance on the test split in its card, for the page to show."""
    reading, names = model.read(test.admissions()), list(test.outcomes)
    reached = held_out(reading.score, model.risks(reading), test.labels(), names, least=LEAST)
    return replace(model, card={**model.card, "validation": reached, "judged_on": "test"})


def in_both(model: Model, cohort: Cohort) -> Model:
    """Return the model with rows for ICD-10-CM, and with the make-up of the training admissions mapped to it."""
    lists = cohort.table["codes"].to_pylist()
    best = {
        code: next((way.codes for way in counterparts(code, 9)), ()) for code in {c for codes in lists for c in codes}
    }
    there = as_admissions([[other for code in codes for other in best[code]] for codes in lists], icd_version=10)
    makeup = {**model.card["makeup"], **makeup_of(there, model.vocabulary.ignored)}
    wider = carry(model)
    return replace(wider, card={**wider.card, "makeup": makeup})


def cut(test: Cohort, form: Form) -> list[list[str]]:
    rng = np.random.default_rng(SEED)
    return [form(codes, rng) for codes in test.table["codes"].to_pylist()]


def costs(cohort: Cohort, index: MLCI, test: Cohort) -> None:
    """Print AUROC x 100 of each outcome's risk for tables fitted without and with copies, for each form."""
    plain, labels = MLCI(recipe="table", config=PLAIN, seed=SEED).fit(cohort), test.labels()
    print("| the test split | " + " | ".join(f"{name}: plain, copies" for name in test.outcomes) + " |")
    print("|---" * (1 + len(test.outcomes)) + "|")
    for name, form in FORMS.items():
        lists = cut(test, form)
        risks = [compared.risk(lists, icd_version=9).to_numpy() for compared in (plain, index)]
        cells = []
        for column, label in enumerate(labels.T):
            known = ~np.isnan(label)
            found = [100 * auroc(risk[known, column], label[known]) for risk in risks]
            cells.append(f"{found[0]:.1f} {found[1]:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def documents(folder: Path, test: Cohort) -> None:
    """Write the documents that `mlci models us2010 -o FOLDER` unpacks: weights, model card, report.

    The commands run in the folder of their files, because the report shows the command that made it.
    """
    model = "us2010.safetensors"
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(folder / model, place)
        test.write(f"{place}/test.parquet")
        for words in (["export", model, "-o", "weights.csv"], ["report", model, "test.parquet", "-o", "report.html"]):
            subprocess.run([sys.executable, "-m", "mlci", *words], check=True, cwd=place)
        Path(place, "model_card.md").write_text(model_card(load_model(folder / model), "us2010"), "utf-8")
        with zipfile.ZipFile(folder / "us2010.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in DOCUMENTS:
                member = zipfile.ZipInfo(name)  # dated 1980, so that the same contents give the same bytes
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, Path(place, name).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey", help="NHDS10.PU.txt, or .bz2, .gz, .zip of it")
    parser.add_argument("--costs", action="store_true", help="print what the copies cost and gain")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="output folder  [default: that of this script]")
    options = parser.parse_args()
    whole = mlci.build_cohort("nhds", options.survey, not_stated="null")
    cohort, test, judged = learned_from(whole), whole.split("test"), []
    for name, config in CONFIGS.items():
        index = MLCI(recipe="table", config=config, seed=SEED).fit(cohort, cluster=APART)
        judged.append(figures(index, test).assign(index=name))
        with_test_figures(in_both(index.model_, cohort), test).save(options.folder / f"{name}.safetensors")
        if options.costs and not config.tokens.without_outcome_codes:
            costs(cohort, index, test)
    documents(options.folder, test)
    table = pd.concat(judged).set_index("index").reset_index()
    table.to_csv(options.folder / "us2010.csv", index=False, float_format="%.4f")
    print(table.to_string(index=False, float_format="%.3f"))


if __name__ == "__main__":
    main()
