"""Spark: results are bit-for-bit identical to those of a file on one machine."""

import doctest
import warnings
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlci.spark
from mlci.base.errors import InputError
from mlci.codes.scoring import write_scores
from mlci.cohort import build_cohort
from mlci.fitting._people import ROWS
from mlci.index.model import load_model
from mlci.index.scoring import score_file
from mlci.index.tally import Tally
from toys import nested_code_lists, random_index, random_table

pytestmark = [
    pytest.mark.xdist_group("spark"),
    # Spark leaves the sockets through which Arrow comes back to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def place(demos, tmp_path_factory):
    """A real cohort as Parquet, one row per admission and one row per code, and a model that knows its codes."""
    folder = tmp_path_factory.mktemp("spark")
    cohort = build_cohort("mimic4", demos / "mimic4_demo")
    cohort.write(folder / "cohort.parquet")
    rows = [
        {"admission_id": row["admission_id"], "code": code, "icd_version": row["icd_version"]}
        for row in cohort.table.to_pylist()
        for code in row["codes"] or [None]
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "codes.parquet")
    random_index(cohort).save(folder / "model.safetensors")
    return folder


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by("admission_id").combine_chunks().replace_schema_metadata()


@pytest.mark.slow  # the same calls as below, in words
def test_examples_run(spark):
    failed, attempted = doctest.testmod(mlci.spark, extraglobs={"spark": spark})
    assert (failed, attempted > 0) == (0, True)


@pytest.mark.parametrize("name", ["cohort.parquet", pytest.param("codes.parquet", marks=pytest.mark.slow)])
def test_scores_equal_local_scores(name, place, spark, tmp_path):
    score_file(load_model(place / "model.safetensors"), place / name, tmp_path / "scores.parquet")
    frame = spark.read.parquet(str(place / name)).repartition(3)
    found = mlci.spark.score(frame, place / "model.safetensors").toArrow()
    assert in_order(found).equals(in_order(pq.read_table(tmp_path / "scores.parquet")))


def test_files_are_scored_as_locally(place, spark, tmp_path):
    """Parquet to Parquet, with Spark only as the scheduler; the counts of the parts add up."""
    model = load_model(place / "model.safetensors")
    token = next(token for token, icd in zip(model.vocabulary.tokens, model.vocabulary.versions) if icd == 10)
    whole = pq.read_table(place / "cohort.parquet")
    odd = whole[:2].to_pylist()  # a code that is too long, and one that may end in a letter of certainty
    odd = [
        {**row, "admission_id": n, "codes": codes, "icd_version": 10}
        for n, (row, codes) in enumerate(zip(odd, ([f"{token}12345678"], ["I48.9A"])))
    ]
    whole = pa.concat_tables([pa.Table.from_pylist(odd, whole.schema), whole])
    pq.write_table(whole, tmp_path / "whole.parquet")
    tally = score_file(model, tmp_path / "whole.parquet", tmp_path / "scores.parquet")
    assert tally.lengthy == 1
    assert tally.attached
    pq.write_table(whole, tmp_path / "many.parquet", row_group_size=50)
    found = mlci.spark.score_files(spark, model, str(tmp_path / "many.parquet"), str(tmp_path / "scores"))
    assert (tmp_path / "scores" / "_SUCCESS").exists()
    assert pq.read_table(tmp_path / "scores").equals(pq.read_table(tmp_path / "scores.parquet"))
    for name in (*mlci.spark.NUMBERS, *mlci.spark.COUNTERS, "missing"):
        assert getattr(found, name) == getattr(tally, name), name
    assert found.problems() == tally.problems()
    with pytest.raises(InputError, match="exists already"):
        mlci.spark.score_files(spark, model, str(tmp_path / "many.parquet"), str(tmp_path / "scores"))


def test_every_count_that_a_warning_needs_comes_from_the_parts():
    others = {"model", "scored", "percentiles", "of_file", "missing", "makeup", "agreements", "last_codes"}
    assert {field.name for field in fields(Tally)} == others | {*mlci.spark.NUMBERS, *mlci.spark.COUNTERS}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cohort.parquet", {"index": "hfrs,charlson,ahrq,elixhauser", "weights": ("quan", "swiss"), "flags": True}),
        pytest.param("codes.parquet", {"index": "gagne,hfrs"}, marks=pytest.mark.slow),
        pytest.param("cohort.parquet", {}, marks=pytest.mark.slow),
        pytest.param("codes.parquet", {}, marks=pytest.mark.slow),
    ],
)
def test_indices_equal_local_indices(name, options, place, spark, tmp_path):
    local = {"with_flags" if key == "flags" else key: value for key, value in options.items()}
    write_scores(place / name, tmp_path / "scores.parquet", **local)
    frame = spark.read.parquet(str(place / name)).repartition(3)
    assert in_order(mlci.spark.indices(frame, **options).toArrow()).equals(
        in_order(pq.read_table(tmp_path / "scores.parquet"))
    )


@pytest.mark.parametrize("split", [False, True])
def test_indices_of_an_empty_frame(split, spark, tmp_path):
    names = {"admission_id": pa.int64(), "codes": pa.list_(pa.string())} | ({"split": pa.string()} if split else {})
    path = str(tmp_path / "none.parquet")
    pq.write_table(pa.schema(names).empty_table(), path)
    write_scores(path, tmp_path / "scores.parquet", icd_version=10)
    found = mlci.spark.indices(spark.read.parquet(path), icd_version=10).toArrow()
    assert found.num_rows == 0
    assert found.column_names == pq.read_schema(tmp_path / "scores.parquet").names


@pytest.fixture(scope="module")
def flagged(place):
    """The cohort with flags, one row per admission and one row per code, and a model of codes present on admission."""
    cohort = pq.read_table(place / "cohort.parquet")
    lists = cohort["codes"].to_pylist()
    flags = [["YNUW1"[number % 5] for number, _ in enumerate(codes)] for codes in lists]
    pq.write_table(cohort.append_column("poa", pa.array(flags)), place / "flags.parquet")
    rows = [
        {"admission_id": id, "seq_num": number, "code": code, "poa": flag, "icd_version": 10}
        for id, codes, marks in zip(cohort["admission_id"].to_pylist(), lists, flags)
        for number, (code, flag) in enumerate(zip(codes, marks))
    ]
    pq.write_table(pa.Table.from_pylist(rows), place / "flag_rows.parquet")
    model = load_model(place / "model.safetensors")
    return replace(model, vocabulary=replace(model.vocabulary, poa="only"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flag_rows.parquet", "flags.parquet"])
def test_present_on_admission_flags_count_as_locally(name, flagged, place, spark, tmp_path):
    frame = spark.read.parquet(str(place / name)).repartition(3)
    for poa in ("only", "ahrq"):
        write_scores(place / name, tmp_path / f"{poa}.parquet", poa=poa)
        found = in_order(mlci.spark.indices(frame, poa=poa).toArrow())
        assert found.equals(in_order(pq.read_table(tmp_path / f"{poa}.parquet")))
    score_file(flagged, place / name, tmp_path / "scores.parquet")
    assert in_order(mlci.spark.score(frame, flagged).toArrow()).equals(
        in_order(pq.read_table(tmp_path / "scores.parquet"))
    )


def test_a_choice_of_flags_that_the_model_was_not_made_for_is_reported(flagged, place, spark):
    plain = spark.read.parquet(str(place / "codes.parquet"))
    with pytest.raises(InputError, match="the frame: has no flags of what was present on admission"):
        mlci.spark.score(plain, flagged)
    with pytest.raises(InputError, match="has no flags"):
        mlci.spark.indices(plain, poa="ahrq")
    with pytest.raises(UserWarning, match="made for codes present on admission alone, not for poa='all'"):
        mlci.spark.score(plain, flagged, poa="all")
    with pytest.raises(InputError, match="poa 'ahrq' is not known; allowed are all and only"):
        mlci.spark.score(plain, flagged, poa="ahrq")


@pytest.mark.slow
def test_age_and_sex_count_as_locally(spark, tmp_path):
    plain = random_table()
    model = replace(
        plain,
        state={**plain.state, "people": np.random.default_rng(0).normal(size=(2 + len(ROWS), 2))},
        card={**plain.card, "config": {"people": {"age": True, "sex": True}}},
    )
    lists = [codes or [None] for codes in nested_code_lists(40)]
    known = [{"admission_id": n, "icd_version": 10, "age": 20.0 + 2 * n, "sex": "FM"[n % 2]} for n in range(40)]
    whole = [{**row, "codes": codes} for row, codes in zip(known, lists)]
    long = [{**row, "code": code} for row, codes in zip(known, lists) for code in codes]
    for name, rows in (("whole", whole), ("long", long)):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        score_file(model, tmp_path / f"{name}.parquet", tmp_path / "scores.parquet")
        frame = spark.read.parquet(str(tmp_path / f"{name}.parquet")).repartition(3)
        found = in_order(mlci.spark.score(frame, model).toArrow())
        assert found.equals(in_order(pq.read_table(tmp_path / "scores.parquet")))
    with pytest.raises(UserWarning, match="the data have no sex: they are computed without it"):
        mlci.spark.score(frame.drop("sex"), model)


@pytest.mark.slow
def test_the_first_codes_by_seq_num_count(place, spark):
    """One code more than the model counts: a column decides which is left out, as Spark rows have no order."""
    model = load_model(place / "model.safetensors")
    model = replace(model, vocabulary=replace(model.vocabulary, max_codes=3))
    codes = list(model.vocabulary.tokens[: model.vocabulary.max_codes + 1])
    assert len(codes) > model.vocabulary.max_codes
    version = model.vocabulary.versions[0]
    rows = [(1, code, version, place) for place, code in enumerate(codes)]
    frame = spark.createDataFrame(rows[::-1], "admission_id int, code string, icd_version int, seq_num int")
    listed = spark.createDataFrame([(1, codes, version)], "admission_id int, codes array<string>, icd_version int")
    one, two = (mlci.spark.score(each, model).first()["score"] for each in (frame, listed))
    assert one == two
    assert one != mlci.spark.score(frame.drop("seq_num"), model).first()["score"]


def test_columns_that_look_like_codes_and_are_not_read_are_reported(place, spark, tmp_path):
    """The same warning as on one machine, once, on the driver."""
    model = load_model(place / "model.safetensors")
    rows = {"admission_id": [1, 2], "icd_version": [10, 10], "DX1": ["I50.9", "N17.9"], "I10_DX1": ["E11.9", None]}
    path, scored = str(tmp_path / "visits.parquet"), tmp_path / "scores.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=1)
    [expected] = score_file(model, path, scored).of_file
    assert "I10_DX1" in expected
    frame = spark.read.parquet(path)
    for work in (
        lambda: mlci.spark.score(frame, model),
        lambda: mlci.spark.indices(frame, "charlson"),
        lambda: mlci.spark.score_files(spark, model, path, str(tmp_path / "scores")),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        assert [str(warning.message) for warning in caught if warning.category is UserWarning] == [expected]


def test_an_invalid_frame_is_refused_before_any_work(place, spark):
    path = place / "model.safetensors"
    frame = spark.createDataFrame([(1, 4280, ["I10"])], "admission_id int, number int, codes array<string>")
    with pytest.raises(InputError, match=r"lacks the column codes; .* found are admission_id, number"):
        mlci.spark.score(frame.drop("codes"), path)
    with pytest.raises(InputError, match=r"lacks the column admission_id; .* found are number, codes"):
        mlci.spark.score(frame.drop("admission_id"), path)
    with pytest.raises(InputError, match="codes must be text, since numbers lose leading zeros"):
        mlci.spark.score(frame.selectExpr("admission_id", "number AS code"), path)
    with pytest.raises(InputError, match="lacks the column icd_version; pass icd_version=9 or 10"):
        mlci.spark.indices(frame)
    with pytest.raises(InputError, match="no admission has the split train"):
        mlci.spark.indices(frame.selectExpr("*", "'test' AS split"), icd_version=10)


def test_small_batches_are_merged(monkeypatch):
    """Every row arrives, in order, in tables of at least a minimum size except for the last."""
    monkeypatch.setattr(mlci.spark, "BATCH", 25)
    rows = pa.table({"row": range(72)})
    tables = list(mlci.spark._tables(rows.to_batches(max_chunksize=10)))
    assert [len(table) for table in tables] == [30, 30, 12]
    assert pa.concat_tables(tables).equals(rows)
    assert list(mlci.spark._tables([])) == []
