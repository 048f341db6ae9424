import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mlci.base.errors import InputError
from mlci.cohort import Cohort, read_cohort
from mlci.index.scoring import score_file
from mlci.judging import theory
from mlci.judging.scores import match, read_models, read_scores
from toys import random_model, toy_cohort


def make(folder, n: int = 400):
    """Write a cohort file, and a score file for it in another order."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=n).round(1)
    long_stay = score + rng.normal(size=n) > 0.5
    table = pa.table(
        {
            "admission_id": np.arange(n) + 1_000,
            "subject_id": np.arange(n),
            "icd_version": np.full(n, 10, dtype=np.int8),
            "codes": [["I509"]] * n,
            "mortality": score + rng.normal(size=n) > 1.5,
            "long_stay": pa.array(long_stay, mask=rng.random(n) < 0.1),
            "never": np.zeros(n, dtype=bool),
            "split": np.where(np.arange(n) < n // 2, "train", "test"),
        }
    )
    cohort = Cohort(table, "made up", {"mortality": "died", "long_stay": "stayed", "never": "never"})
    cohort.write(folder / "cohort.parquet")
    frame = pd.DataFrame({"admission_id": table["admission_id"].to_numpy(), "score": score, "other": -score})
    frame.sample(frac=1, random_state=0).to_csv(folder / "scores.csv", index=False)
    return cohort, frame


def test_matching_does_not_depend_on_order_or_type_of_identifiers(tmp_path):
    cohort, frame = make(tmp_path)
    read = read_scores(tmp_path / "scores.csv")
    assert list(read) == ["score"]  # the column of `mlci score` is preferred to other numbers
    values, found = match(read, cohort)
    np.testing.assert_array_equal(values["score"], frame["score"])
    as_text = read.set_axis(read.index.astype(str))
    np.testing.assert_array_equal(match(as_text, cohort)[0]["score"], frame["score"])
    values, found = match(read.iloc[:30], cohort)
    assert len(values) == len(found) == 30
    assert found.column("admission_id").tolist() == values.index.tolist()


def test_scores_are_read_from_what_score_and_spreadsheets_write(tmp_path):
    cohort, frame = make(tmp_path)
    frame.to_excel(tmp_path / "scores.xlsx", index=False)
    frame.assign(ward="B2", note=None).to_csv(tmp_path / "semicolon.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "packed.csv.gz", index=False)
    frame.astype({"admission_id": float}).to_parquet(tmp_path / "gaps.parquet")  # 17.0, as pandas may write 17
    frame.astype({"admission_id": float}).to_csv(tmp_path / "gaps.csv", index=False)
    for name in ("scores.xlsx", "semicolon.csv", "packed.csv.gz", "gaps.parquet", "gaps.csv"):
        np.testing.assert_array_equal(match(read_scores(tmp_path / name), cohort)[0]["score"], frame["score"])
    assert list(read_scores(tmp_path / "semicolon.csv", columns=["other"])) == ["other"]


def test_parquet_and_chosen_columns(tmp_path):
    _, frame = make(tmp_path)
    frame.drop(columns="score").assign(third=1).to_parquet(tmp_path / "scores.pq")
    assert list(read_scores(tmp_path / "scores.pq")) == ["other", "third"]
    assert list(read_scores(tmp_path / "scores.pq", columns=["third"])) == ["third"]


def test_files_of_one_name_are_all_evaluated(tmp_path, mlci_cli):
    """A benchmark writes each seed to `scores.parquet` in a folder of its own."""
    cohort, frame = make(tmp_path)
    for seed in (1, 2, 3):
        (tmp_path / str(seed)).mkdir()
        frame[["admission_id"]].assign(paper=seed * frame["score"]).to_csv(tmp_path / str(seed) / "s.csv", index=False)
    paths = [tmp_path / str(seed) / "s.csv" for seed in (1, 2, 3)]
    found, _ = read_models(paths, cohort)
    assert [*found] == ["s", "s:paper", f"{paths[2]}:paper"]
    np.testing.assert_array_equal(np.array([*found.values()]), np.outer([1, 2, 3], frame["score"]))
    files = [f"{seed}/s.csv" for seed in (1, 2, 3)]
    mlci_cli("evaluate", *files, "cohort.parquet", "-o", "m.csv", "--resamples", 0, "--no-rivals")
    assert [*pd.read_csv(tmp_path / "m.csv")["model"].unique()] == ["s", "s:paper", "3/s.csv:paper"]


def test_identifiers_keep_their_zeros_through_a_csv_file(tmp_path):
    cohort = toy_cohort(30)
    ids = pa.array([f"{i:05d}" for i in range(30)])
    cohort = replace(cohort, table=cohort.table.set_column(0, "admission_id", ids))
    cohort.write(tmp_path / "c.parquet")
    score_file(random_model(), tmp_path / "c.parquet", tmp_path / "s.csv")
    values, found = match(read_scores(tmp_path / "s.csv"), cohort)
    assert len(found) == 30
    assert values.index.tolist() == ids.to_pylist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("admission_id,score\n1,2\n2,a\n", "column score, row 3: text of 1 character is not a number"),
        ("admission_id,name\n1,a\n", "no numeric column other than admission_id"),
        ("id,score\n1,2\n", "lacks the column admission_id; it has id, score"),
        ("admission_id,score\n1,2\n1,3\n", "column admission_id, row 3: repeats an earlier row"),
        ("admission_id,score\n1,2\n\n2,\n", "column score, row 4: is empty or not a finite number"),
        ("admission_id,score,risk_died\n1,2,0.5\n2,3,1.5\n", "column risk_died, row 3: is not between 0 and 1"),
        ("admission_id,score\n1,2,3\n", "row 2: 3 cells where the header has 2"),
    ],
)
def test_a_bad_score_file_raises_one_sentence(tmp_path, text, message):
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        read_scores(tmp_path / "scores.csv", risks=True)
    assert "\n" not in str(raised.value)


def test_diagnose_prints_and_saves_the_results_of_the_library(tmp_path, mlci_cli):
    cohort, _ = make(tmp_path)
    done = mlci_cli("diagnose", "scores.csv", "cohort.parquet", "-o", "out", "--column", "score", "--column", "other")
    assert "200 of the cohort's 200 admissions (split: test) have scores" in done.stdout
    assert "never was left out: it is never present in 200 admissions." in done.stdout
    assert "other: outcomes are rarer above its best cut" in done.stdout
    saved = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    values, test = match(read_scores(tmp_path / "scores.csv"), read_cohort(tmp_path / "cohort.parquet").split("test"))
    expected = theory.diagnose(values["score"].to_numpy(), test.labels(), list(cohort.outcomes))
    assert saved["score"] == json.loads(json.dumps(expected.to_dict()))
    rank_one = pd.read_csv(tmp_path / "out" / "rank_one.csv").set_index("model")
    assert rank_one.loc["score", "J"] == pytest.approx(expected.objective)
    assert rank_one.loc["other", "gamma"] == pytest.approx(
        expected.retention
    )  # the negated score has the same alignment
    thresholds = pd.read_csv(tmp_path / "out" / "thresholds.csv")
    assert thresholds.loc[0, ["tail", "n"]].tolist() == [expected.shared.threshold.tail, expected.n]
    assert len(pd.read_csv(tmp_path / "out" / "outcomes.csv")) == 4


def test_diagnose_checks_the_laws_with_weights(tmp_path, mlci_cli):
    make(tmp_path)
    words = (
        "--column",
        "score",
        "--weights",
        "mortality=3,long_stay=0",
        "--noise",
        "0.01",
        "-o",
        "out",
        "--floor",
        "9999",
    )
    done = mlci_cli("diagnose", "scores.csv", "cohort.parquet", "--check", *words).stdout
    assert "mortality 3" in done
    assert "long_stay was left out: its weight is 0" in done
    assert "floored at 9999" in done
    laws = pd.read_csv(tmp_path / "out" / "checks.csv").set_index("law")["verdict"]
    assert laws["J(s) ≥ J1(s)"].startswith("holds by")
    assert "the floor 1e+04 is above ε⋆" in laws.filter(like="ε₀ ≤ ε⋆").iloc[0]
    assert "noise" in " ".join(laws.index)
    assert mlci_cli("diagnose", "scores.csv", "cohort.parquet", "-q").stdout == ""


def test_the_bandwidth_of_a_model_can_be_used(tmp_path, mlci_cli):
    make(tmp_path)
    model = random_model()
    model.save(tmp_path / "without.safetensors")
    replace(model, card={**model.card, "bandwidth": 0.75}).save(tmp_path / "model.safetensors")
    words = ("diagnose", "scores.csv", "cohort.parquet", "--column", "score", "-o", "out", "--sigma")
    mlci_cli(*words, "model.safetensors")
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text())["score"]["sigma"] == 0.75
    stderr = mlci_cli(*words, "without.safetensors", code=2).stderr
    assert "without.safetensors: has no trained bandwidth" in stderr
    assert "sigma: -1 is neither a number above 0" in mlci_cli(*words, "-1", code=2).stderr
    evaluated = ("evaluate", "scores.csv", "cohort.parquet", "--score", "score", "--resamples", "0", "--no-rivals")
    tables = []
    for number, sigma in enumerate(("model.safetensors", "0.75")):
        mlci_cli(*evaluated, "--sigma", sigma, "-o", f"{number}.csv", "-q")
        tables.append((tmp_path / f"{number}.csv").read_text())
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["scores.csv", "cohort.parquet", "--weights", "x=1"],
            "weights: 'x' is not an outcome here; allowed are mortality",
        ),
        (["scores.csv", "cohort.parquet", "--weights", "mortality=a"], "'mortality=a' is not OUTCOME=NUMBER"),
        (["other.csv", "cohort.parquet"], "none of its 1 admissions is among the 200 of the cohort"),
        (["same.csv", "cohort.parquet"], "all scores are equal"),
        (["scores.csv", "cohort.parquet", "--outcome", "never"], "never: it is never present in 200 admissions"),
        (["scores.csv", "cohort.parquet", "--outcome", "nought"], "has no outcome nought; allowed are mortality"),
        (["scores.csv", "cohort.parquet", "--split", "valid"], "no admission in the split valid"),
        (["scores.csv", "cohort.parquet", "--column", "x"], "has no numeric column x; allowed are score, other"),
        (["scores.csv", "scores.csv"], "is not a cohort file"),
        (["missing.csv", "cohort.parquet"], "no such file"),
        (["scores.csv", "cohort.parquet", "-o", "a/b"], "the folder a does not exist"),
        (["scores.csv", "cohort.parquet", "--protocol", "paper", "--sigma", "1"], "cannot be combined with"),
    ],
)
def test_diagnose_reports_bad_input(tmp_path, mlci_cli, words, message):
    make(tmp_path)
    (tmp_path / "other.csv").write_text("admission_id,score\n5,1.0\n")
    same = "".join(f"{i},1\n" for i in range(1_000, 1_400))
    (tmp_path / "same.csv").write_text("admission_id,score\n" + same)
    error = mlci_cli("diagnose", *words, code=2).stderr
    assert message in error
    assert not (tmp_path / "a").exists()
