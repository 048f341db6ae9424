import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
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
made_up = pytest.mark.filterwarnings(
    "ignore:.*is the ICD version right", "ignore:.*with a leading zero put back", "ignore:.*longer than any ICD-9 code"
)


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


def test_codes_of_the_other_version_and_lost_zeros_are_reported_not_guessed():
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
            "each admission needs a list of strings; codes must be text, since numbers lose leading zeros",
        ),
        (lambda: Combined.fit([["I509"]]), "some codes have no ICD version"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


# The command


def test_show_names_every_category_and_weight(mlci_cli):
    said = mlci_cli("indices", "--show", "charlson,elixhauser").stdout
    for category in rules().categories:
        assert category.column in said
        assert category.words.split(",")[0][:40] in said
    assert "swiss" in said
    assert "quan" in said
