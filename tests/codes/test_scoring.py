import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlci
from mlci.base.errors import InputError
from mlci.codes.family import CLASSIC, family
from mlci.codes.lookback import LookBack
from mlci.codes.scoring import write_scores


@pytest.fixture
def cohort(tmp_path):
    rng = np.random.default_rng(5)
    listed = [prefix for name in CLASSIC for item in family()[name].categories for prefix in item.codes[10]]
    codes = [*listed, "Z00", "I10"]
    lists = [[str(code) for code in rng.choice(codes, rng.integers(0, 6))] for _ in range(300)]
    split = [str(name) for name in rng.choice(["train", "valid", "test"], 300)]
    table = pa.table({"admission_id": np.arange(300), "icd_version": [10] * 300, "codes": lists, "split": split})
    pq.write_table(table, tmp_path / "cohort.parquet", row_group_size=70)
    return table


def test_command_on_a_cohort_fits_the_sum_on_its_training_split(mlci_cli, tmp_path, cohort):
    said = mlci_cli("indices", "cohort.parquet", "-o", "scores.parquet", "--flags").stdout
    found = pd.read_parquet(tmp_path / "scores.parquet")
    assert found.columns.tolist()[:4] == ["admission_id", "cci_charlson", "eci_vw", "cci_eci"]
    train = np.asarray(cohort["split"]) == "train"
    assert f"relative to the training split ({train.sum()} admissions;" in said
    both = found[["cci_charlson", "eci_vw"]]
    z = (both - both[train].mean()) / both[train].std(ddof=0)
    np.testing.assert_allclose(found.cci_eci, z.sum(axis=1), atol=1e-12)
    pd.testing.assert_frame_equal(
        found.drop(columns=["cci_eci"]),
        pd.concat(
            [
                mlci.charlson(cohort, flags=True).to_pandas(),
                mlci.elixhauser(cohort, flags=True).to_pandas().iloc[:, 1:],
            ],
            axis=1,
        )[[name for name in found.columns if name != "cci_eci"]],
    )


def test_command_on_rows_per_code_in_csv(mlci_cli, tmp_path, demos):
    codes = pd.read_parquet(demos / "vectors" / "icd9_codes.parquet").astype(str).sample(frac=1, random_state=0)
    codes.rename(columns={"id": "admission_id"}).to_csv(tmp_path / "rows.csv.gz", index=False)
    names = ["--weights", "quan", "--weights", "charlson", "--weights", "swiss"]
    done = mlci_cli("indices", "rows.csv.gz", "-o", "s.csv", "--icd-version", 9, "--no-hierarchy", *names)
    assert "all admissions of this file, which has no split (2,300 admissions;" in done.stdout
    assert "are in no ICD-9-CM table" in done.stdout
    found = pd.read_csv(tmp_path / "s.csv")
    assert found.columns.tolist() == ["admission_id", "cci_charlson", "cci_quan", "eci_swiss", "cci_eci"]
    assert found.admission_id.tolist() == codes.id.drop_duplicates().astype(int).tolist()
    expected = pd.read_parquet(demos / "vectors" / "icd9_expected.parquet").set_index("id").loc[found.admission_id]
    for name in ("cci_charlson", "cci_quan", "eci_swiss"):
        assert found[name].tolist() == expected[name].tolist()


def test_command_warns_of_the_other_version(mlci_cli, tmp_path):
    pd.DataFrame({"admission_id": [1, 1], "code": ["428.0", "250.00"]}).to_csv(tmp_path / "a.csv", index=False)
    done = mlci_cli("indices", "a.csv", "-o", "s.csv", "--icd-version", 10, "--quiet")
    assert done.stdout == ""
    assert "2 of 2 codes said to be ICD-10 are in the table of ICD-9 alone" in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("admission_id,DX1,DX2\n1,I509,4280\n", [], "cannot be told from them (50% fit ICD-9, 50% ICD-10)"),
        ("admission_id,code\n1,I509\n", ["--icd-version", "11"], "ICD version 11 is not known; allowed are 9 and 10"),
        (
            "admission_id,code,icd_version\n1,I509,7\n",
            [],
            "a.csv: column icd_version, row 2: a whole number is not an ICD version",
        ),
        ("admission_id,reason\n1,I509\n", [], "a.csv: lacks the column codes"),
        (
            "admission_id,code\n1,I509\n",
            ["--weights", "quam"],
            "weights 'quam' are not known; allowed are charlson, quan",
        ),
        ("admission_id,codes,split\n1,I509,test\n", ["--icd-version", "10"], "no admission is in 'train'"),
        (
            "admission_id,code\n1,I509\n",
            ["--icd-version", "10", "-o", "s.doc"],
            "s.doc: scores are written as .parquet, .csv or .xlsx",
        ),
    ],
)
def test_the_command_reports_what_it_cannot_use(mlci_cli, tmp_path, text, options, words):
    (tmp_path / "a.csv").write_text(text)
    done = mlci_cli("indices", "a.csv", "-o", "s.csv", *options, code=2)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "s.csv").exists()


def test_the_command_reports_that_numbers_lose_zeros(mlci_cli, tmp_path):
    pq.write_table(pa.table({"admission_id": [1], "code": [389]}), tmp_path / "a.parquet")
    done = mlci_cli("indices", "a.parquet", "-o", "s.csv", "--icd-version", 9, code=2)
    assert "numbers lose leading zeros" in done.stderr


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("admission_id,code", "1,I50.9"),
        ("admission_id,DX1,DX2", "1,I50.9,"),
        ("admission_id,codes,split,age", "1,I50.9,train,80"),
    ],
)
def test_nothing_to_score_gives_a_file_without_rows(mlci_cli, tmp_path, header, row):
    """As `mlci score` does: a ward without admissions in a month is no mistake."""
    (tmp_path / "none.csv").write_text(f"{header}\n")
    (tmp_path / "one.csv").write_text(f"{header}\n{row}\n")
    options = ["--icd-version", "10", "--flags", *(["--age", "age"] if "age" in header else [])]
    for name in ("none", "one"):
        said = mlci_cli("indices", f"{name}.csv", "-o", f"{name}.parquet", *options)
    assert "cci_eci: z-scores" in said.stdout
    none, one = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("none", "one"))
    assert (len(none), len(one)) == (0, 1)
    assert none.schema.equals(one.schema)
    said = mlci_cli("indices", "none.csv", "-o", "none.csv.csv", *options)
    assert "0 admissions" in said.stdout
    assert "z-scores" not in said.stdout


def test_a_repeated_identifier_is_reported(mlci_cli, tmp_path):
    (tmp_path / "wide.csv").write_text("admission_id,DX1,DX2\n7,I50.9,N17.9\n8,E11.9,\n7,I10,\n7,I10,\n")
    said = mlci_cli("indices", "wide.csv", "-o", "s.csv", "--icd-version", "10").stderr
    assert "2 of 4 rows have the identifier of an earlier row: each row counts as an admission of its own." in said
    (tmp_path / "long.csv").write_text("admission_id,code\n7,I50.9\n8,E11.9\n7,N17.9\n")  # its rows are codes
    assert "earlier row" not in mlci_cli("indices", "long.csv", "-o", "s.csv", "--icd-version", "10").stderr


def test_blanks_around_an_age_do_not_count(tmp_path):
    (tmp_path / "a.csv").write_text("visit_id, DX1, age\n1, I50.9, 71\n2, I50.9, \n")
    done = write_scores(tmp_path / "a.csv", tmp_path / "s.csv", index="charlson", icd_version=10, age="age")
    assert (tmp_path / "s.csv").read_text().split() == [
        '"admission_id","cci_charlson","cci_charlson_age"',
        "1,1,4",
        "2,1,1",
    ]
    assert done.of_file == ["column age: is empty for 1 of 2 admissions; no point is added."]


@pytest.mark.parametrize("look_back", [None, LookBack(365)])
def test_an_impossible_age_is_named_by_its_row(look_back, tmp_path):
    visits = tmp_path / "visits.csv"
    visits.write_text("visit_id,subject_id,admitted,DX1,age\n1,7,2020-01-01,I10,70\n2,7,2020-02-01,I10,999\n")
    with pytest.raises(InputError, match="column age, row 3: a number is not an age from 0 to 129"):
        write_scores(visits, tmp_path / "scores.csv", icd_version=10, age="age", look_back=look_back)
    visits.write_text(visits.read_text().replace("999", '"60,5"'))
    with pytest.raises(InputError, match="column age, row 3: a value is not a number"):
        write_scores(visits, tmp_path / "scores.csv", icd_version=10, age="age", look_back=look_back)
    visits.write_text("visit_id,subject_id,admitted,DX1,age\n")
    assert write_scores(visits, tmp_path / "scores.csv", icd_version=10, age="age", look_back=look_back).admissions == 0
