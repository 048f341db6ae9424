import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import mlci
from conftest import REQUIRE_ALL
from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.codes.comorbidity import Coder, Combined
from mlci.codes.family import CLASSIC, family
from mlci.codes.rules import rules
from oracles import comorbidity_flags

PREFIXES = [
    {"index": name, "version": str(version), "category": item.column[4:], "prefix": prefix}
    for name in CLASSIC
    for version in (9, 10)
    for item in family()[name].categories
    for prefix in item.codes[version]
]
ALL = {"charlson": ["charlson", "quan", "count"], "elixhauser": ["vw", "swiss", "count"]}
# Made-up codes look wrong, and are meant to.
made_up = pytest.mark.filterwarnings("ignore:.*is the ICD version right", "ignore:.*with a leading zero put back")


def names(bits: int) -> set[tuple[str, str]]:
    long = {family()[name].short: name for name in CLASSIC}
    columns = [category.column for i, category in enumerate(rules().categories) if bits >> i & 1]
    return {(long[column[:3]], column[4:]) for column in columns}


@made_up
@pytest.mark.parametrize("hierarchy", [True, False])
@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("index", ["charlson", "elixhauser"])
def test_reference_vectors_to_the_last_flag(demos, index, version, hierarchy):
    codes = pd.read_parquet(demos / "vectors" / f"icd{version}_codes.parquet")
    expected = pd.read_parquet(demos / "vectors" / f"icd{version}_expected.parquet").set_index("id")
    score = getattr(mlci, index)
    found = score(
        codes.rename(columns={"id": "admission_id"}),
        icd_version=version,
        weights=ALL[index],
        hierarchy=hierarchy,
        flags=True,
    ).set_index("admission_id")
    assert found.shape == (2300, {"charlson": 3 + 17, "elixhauser": 3 + 31}[index])
    suffix = "_a0" if hierarchy else ""
    wanted = expected.loc[found.index, [name + suffix for name in found.columns]]
    np.testing.assert_array_equal(found.to_numpy(dtype=int), wanted.to_numpy())


@pytest.mark.parametrize("version", [9, 10])
def test_vectors_exercise_every_entry_of_our_lists_and_ours_every_one_of_theirs(demos, version):
    meta = pd.read_parquet(demos / "vectors" / f"icd{version}_meta.parquet")
    ours = {row["prefix"] for row in PREFIXES if int(row["version"]) == version}
    assert ours == set(meta.ref[meta.kind == "exact_prefix"])


@pytest.mark.parametrize("version", [9, 10])
def test_every_entry_flags_and_every_near_miss_does_not(version):
    """Each prefix, longer codes, its stub and its neighbours, against a search of the lists by `startswith`."""
    listed = {row["prefix"] for row in PREFIXES if int(row["version"]) == version}
    tries = set(listed) | {""}
    for prefix in listed:
        tries |= {prefix[:length] for length in range(1, len(prefix))}
        tries |= {prefix[:-1] + last for last in "0123456789X"} | {prefix + more for more in ("0", "9", "X1")}
    found = dict(zip(tries, map(names, rules().code_bits(list(tries), version)[0].tolist())))
    for code in sorted(tries)[:: 1 if REQUIRE_ALL else 5]:  # the search takes its time
        assert found[code] == comorbidity_flags([code], version, PREFIXES), code
    for row in PREFIXES:
        if int(row["version"]) == version:
            assert (row["index"], row["category"]) in found[row["prefix"]]


def test_tables_are_whole():
    categories = rules().categories
    assert [c.column[:3] for c in categories] == ["cci"] * 17 + ["eci"] * 31
    assert all(
        set(c.weights) >= set(ALL["charlson" if c.column.startswith("cci") else "elixhauser"]) for c in categories
    )
    assert len({tuple(row.values()) for row in PREFIXES}) == len(PREFIXES)
    severer = {c.column: " ".join(c.yields_to) for c in categories if c.yields_to}
    assert severer == {
        "cci_diab": "cci_diabwc",
        "cci_mld": "cci_msld",
        "cci_canc": "cci_metacanc",
        "eci_diabunc": "eci_diabc",
        "eci_hypunc": "eci_hypc",
        "eci_solidtum": "eci_metacanc",
    }


CODES = st.sampled_from([*(row["prefix"] for row in PREFIXES[::7]), "I10", "Z00", "99999", "E860", "V450"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([9, 10]), st.lists(CODES, max_size=6)), max_size=10))
def test_mixed_versions_and_empty_admissions_against_the_slow_way(lists):
    table = pa.table(
        {
            "admission_id": pa.array(range(len(lists)), pa.int64()),
            "icd_version": pa.array([version for version, _ in lists], pa.int64()),
            "codes": pa.array([codes for _, codes in lists], pa.list_(pa.string())),
        }
    )
    bits = Coder()(as_admissions(table))
    assert [names(int(b)) for b in bits[0]] == [comorbidity_flags(codes, version, PREFIXES) for version, codes in lists]


def test_version_travels_with_the_code():
    """V42.0: a transplanted kidney in ICD-9, a car accident in ICD-10."""
    frame = pd.DataFrame({"admission_id": [1, 2], "code": ["V42.0", "V42.0"], "icd_version": [10, 9]})
    assert mlci.elixhauser(frame, weights="count").eci_count.tolist() == [0, 1]


def test_order_repetition_and_writing_of_codes_do_not_matter():
    one = mlci.elixhauser([["I50.9", "C78.0", "C34.1"]], flags=True)
    two = mlci.elixhauser([["c341", " I509", "C780", "I50.9", None, ""]], flags=True)
    pd.testing.assert_frame_equal(one, two)


def test_frames_come_back_as_they_went_in():
    long = {"admission_id": ["b", "b", "a"], "code": ["I50.9", "E11.9", "K70.4"]}
    wide = {"admission_id": ["b", "a"], "codes": [["I50.9", "E11.9"], ["K70.4"]]}
    for columns in (long, wide):
        for kind in (pd.DataFrame, pl.DataFrame, pa.table):
            found = mlci.charlson(kind(columns))
            assert type(found) is type(kind(columns))
            rows = (
                found.to_pylist()
                if kind is pa.table
                else pd.DataFrame(dict(found.items() if kind is pd.DataFrame else found.to_dict())).to_dict("records")
            )
            assert rows == [{"admission_id": "b", "cci_charlson": 2}, {"admission_id": "a", "cci_charlson": 3}]
    lists = mlci.charlson([["I50.9", "E11.9"], [], ["K70.4"]], weights=["quan", "charlson"])
    assert lists.to_dict("list") == {"admission_id": [0, 1, 2], "cci_charlson": [2, 0, 3], "cci_quan": [2, 0, 4]}


def test_combined_is_the_sum_of_z_scores_of_the_training_admissions():
    train = [["I509"], ["E119", "C780"], [], ["N189", "K704"], ["I10"]]
    test = [["B20"], [], ["I509", "I480"]]
    fitted = Combined.fit(train, icd_version=10)

    def both(codes):
        return np.column_stack([mlci.charlson(codes).cci_charlson, mlci.elixhauser(codes).eci_vw])

    scaler = StandardScaler().fit(both(train))
    for codes in (train, test):
        np.testing.assert_allclose(
            fitted.score(codes, icd_version=10), scaler.transform(both(codes)).sum(axis=1), atol=1e-12
        )
    constant = Combined.fit([["E11.9"], ["E11.9"]], icd_version=10)
    np.testing.assert_array_equal(constant.score(test, icd_version=10), [0, 0, 0])


def test_codes_of_the_other_version_and_eaten_zeros_are_reported_not_guessed():
    with pytest.warns(UserWarning, match=r"2 of 3 codes said to be ICD-10 are in the table of ICD-9 alone"):
        mlci.charlson([["428.0", "250.00"], ["I50.9"]])
    with pytest.warns(UserWarning, match=r"1 of 2 codes said to be ICD-9 are in the table of ICD-10 alone"):
        mlci.charlson([["428.0"], ["I50.9"]], icd_version=9)
    with pytest.warns(UserWarning, match=r"2 of 3 ICD-9 codes lack a leading zero"):
        found = mlci.charlson([["42", "70.54"], ["428.0"]], icd_version=9)
    assert found.cci_charlson.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: mlci.charlson([["I509"]], weights="vw"),
            "weights 'vw' are not known; allowed are charlson, quan, schneeweiss, count",
        ),
        (lambda: mlci.elixhauser([["I509"]], icd_version=8), "ICD version 8 is not known; allowed are 9 and 10"),
        (
            lambda: mlci.charlson([[4280]]),
            "each admission needs a list of texts; codes must be text, since numbers lose leading zeros",
        ),
        (lambda: Combined.fit([["I509"]]), "some codes have no ICD version"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


# The command


@pytest.fixture
def cohort(tmp_path):
    rng = np.random.default_rng(5)
    codes = [*(row["prefix"] for row in PREFIXES if row["version"] == "10"), "Z00", "I10"]
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
    assert f"by the training split ({train.sum()}:" in said
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
    assert "all admissions of this file, which has no split (2,300:" in done.stdout
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
            "a.csv: column icd_version, row 2: a whole number is no ICD version",
        ),
        ("admission_id,reason\n1,I509\n", [], "a.csv: lacks the column codes"),
        (
            "admission_id,code\n1,I509\n",
            ["--weights", "quam"],
            "weights 'quam' are not known; allowed are charlson, quan",
        ),
        ("admission_id,code\n", ["--icd-version", "10"], "a.csv: holds no admissions"),
        ("admission_id,codes,split\n1,I509,test\n", ["--icd-version", "10"], "no admission is in 'train'"),
        (
            "admission_id,code\n1,I509\n",
            ["--icd-version", "10", "-o", "s.doc"],
            "s.doc: scores are written as .parquet, .csv or .xlsx",
        ),
    ],
)
def test_command_tells_what_it_cannot_use(mlci_cli, tmp_path, text, options, words):
    (tmp_path / "a.csv").write_text(text)
    done = mlci_cli("indices", "a.csv", "-o", "s.csv", *options, code=2)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "s.csv").exists()


def test_command_says_that_numbers_lose_zeros(mlci_cli, tmp_path):
    pq.write_table(pa.table({"admission_id": [1], "code": [389]}), tmp_path / "a.parquet")
    done = mlci_cli("indices", "a.parquet", "-o", "s.csv", "--icd-version", 9, code=2)
    assert "numbers lose leading zeros" in done.stderr


def test_show_names_every_category_and_weight(mlci_cli):
    said = mlci_cli("indices", "--show", "charlson,elixhauser").stdout
    for category in rules().categories:
        assert category.column in said
        assert category.words.split(",")[0][:40] in said
    assert "swiss" in said
    assert "quan" in said
