import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from mlci.base.errors import InputError
from mlci.base.tensors import digest, read_tensors, write_tensors
from mlci.codes.admissions import Admissions, as_admissions
from mlci.index import model as module
from mlci.index.model import Tally, load_model, score_file
from mlci.tokens import Vocabulary
from toys import CODES, code_lists, random_model, random_table

ADMISSIONS = as_admissions(code_lists(50), icd_version=10)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    random_model().save(path)
    return path


def test_a_model_comes_back_as_it_went(file, tmp_path):
    model, again = random_model(), load_model(file)
    for name, column in model.columns(ADMISSIONS).items():
        np.testing.assert_array_equal(again.columns(ADMISSIONS)[name], column)
    assert (again.vocabulary, again.icd_versions, again.outcomes, again.cutoff) == (
        model.vocabulary,
        model.icd_versions,
        model.outcomes,
        model.cutoff,
    )
    assert again.card == json.loads(json.dumps(model.card))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_a_damaged_file_is_refused_or_scores_the_same(file, tmp_path):
    whole, expected = file.read_bytes(), random_model().score(ADMISSIONS)
    rng = np.random.default_rng(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(8), *rng.integers(8, header, 150), *rng.integers(header, len(whole), 60)]
    damaged = [whole[:p] + bytes([whole[p] ^ int(rng.integers(1, 256))]) + whole[p + 1 :] for p in places]
    damaged += [whole[: rng.integers(0, len(whole))] for _ in range(30)] + [whole + b"x", b"", whole[::-1]]
    refused = 0
    for number, content in enumerate(damaged):
        path = tmp_path / f"damaged{number}"
        path.write_bytes(content)
        try:
            scores = load_model(path).score(ADMISSIONS)
        except InputError:
            refused += 1
        else:
            np.testing.assert_array_equal(scores, expected)
    assert refused > len(damaged) * 0.9  # only a flipped blank of the header may go unnoticed


def test_foreign_files_are_refused(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("admission_id,code\n1,I509\n")
    save_file({"x": np.zeros(3)}, other)
    with pytest.raises(InputError, match="not a whole model file"):
        load_model(text)
    with pytest.raises(InputError, match="another program"):
        load_model(other)


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": Vocabulary(("A000",), (10,))},
        {"state": {"embedding.weight": np.zeros((3, 4), dtype=np.float32)}},
        {"quantiles": np.array([])},
        {"outcomes": {}},
        {"card": {"config": {}}},
        {"state": {"weights": np.zeros(5)}},
        {"state": {name: weights * 3e30 for name, weights in random_model().state.items()}},
    ],
)
def test_a_whole_file_that_does_not_fit_together_is_refused(change, tmp_path):
    replace(random_model(), **change).save(tmp_path / "m")
    with pytest.raises(InputError, match="does not have the parts"):
        load_model(tmp_path / "m")


FORGED = {
    "vocabulary.depths": ([4] * 10**6, [0], [], ["4"], [4, 4]),
    "vocabulary.max_codes": (0, 10**9, 2.5, "256", True),
    "vocabulary.versions": ([10], [10] * (len(CODES) - 1) + [11], "10"),
    "vocabulary.tokens": (["A" * 41] * len(CODES), [1] * len(CODES), ["A000"] * len(CODES)),
    "vocabulary.support": ([1], ["1"] * len(CODES), [-1] * len(CODES)),
    "icd_versions": ([8], ["10"], [10] * 4, None),
    "outcomes": ({"mortality": 1}, {"long stay": "x"}, []),
    "quantiles": ([1.0, 0.0], [0.0], [0.0, 1e300], ["a", "b"], [0.0] * 20_001),
    "curves.mortality": (
        *({"score": [0.0, 1.0], "risk": [0.0, 5.0]}, {"score": [1.0, 0.0], "risk": [0.0, 0.5]}, {}, []),
        *({"score": [0.0], "risk": [0.0, 0.5]}, {"score": [], "risk": []}, {"score": [0.0, 1.0], "risk": [0.5, 0.0]}),
    ),
    "cutoff.score": ("0.1", None, 1e300),
    "cutoff.n": (0, -1, 10),
    "cutoff.tail": (-1, 101, "3"),
    "cutoff.certificate": (2.0, -1.0),
    "cutoff.contrasts": ([{"outcome": "mortality"}], [{}], {}),
    "card": ([], {}, "paper"),
    "card.recipe": ("pickle", 1, None),
    "card.seed": ("1", 1.5, 10**30),
    "card.config": ([], "x"),
    "card.weights": ([], {"mortality": "much"}),
}


@pytest.mark.parametrize("place", FORGED)
def test_forged_facts_are_refused(place, tmp_path, file):
    for value in FORGED[place]:
        header, state = read_tensors(file, key=module.KEY, kind="a model file")
        *parents, last = place.split(".")
        inside = header["facts"]
        for name in parents:
            inside = inside[name]
        inside[last] = value
        header["sha256"] = digest(header["facts"], state)
        write_tensors(tmp_path / "m", state, key=module.KEY, facts=header)
        with pytest.raises(InputError, match="does not have the parts of a model file"):
            load_model(tmp_path / "m")


def test_what_is_no_model_file_is_told_at_once(tmp_path, file):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        load_model(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "absent")
    (tmp_path / "large").write_bytes((96 << 20).to_bytes(8, "little") + b"{" + b" " * 100)
    with pytest.raises(InputError, match="not a whole model file"):
        load_model(tmp_path / "large")
    state = read_tensors(file, key=module.KEY, kind="a model file")[1]
    deep = json.loads("[" * 900 + "]" * 900)
    for odd in ("a", [], {"format": 1}, {"format": 1, "facts": [], "sha256": 1}, {"format": "\x07"}, deep):
        write_tensors(tmp_path / "m", state, key=module.KEY, facts=odd)
        with pytest.raises(InputError):
            load_model(tmp_path / "m")


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FORMATS", (1, 2, 3))
    random_model().save(tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"model format 3; mlci .* reads formats 1 to 2"):
        load_model(tmp_path / "m")


def test_percentiles_and_risks_follow_the_score():
    model = random_model()
    columns = pd.DataFrame(model.columns(ADMISSIONS)).sort_values("score")
    assert columns["percentile"].is_monotonic_increasing
    assert columns["percentile"].between(0, 100).all()
    assert columns["risk_mortality"].is_monotonic_increasing
    assert (columns["high_severity"] == (columns["score"] >= model.cutoff.score)).all()


def test_unknown_codes_are_counted():
    model = random_model()
    admissions = as_admissions([["A000", "ZZZ9"], [], ["ZZZ8"], ["A00.0X"]], icd_version=10)
    np.testing.assert_array_equal(model.columns(admissions)["unknown_share"], [0.5, np.nan, 1, 0])

    def doubts_of(admissions):
        return Tally(model).add(admissions).doubts()

    assert doubts_of(as_admissions([["A000", "ZZZ9"], []], icd_version=10)) == []
    assert doubts_of(admissions)[0].startswith("of 1 of 4 admissions fewer than half of the codes are understood")
    doubts = doubts_of(as_admissions([["ZZZ9"], ["A000", "ZZZ8"]], icd_version=9))
    assert len(doubts) == 3
    assert "3 of 3 codes are ICD-9; the model was made for ICD-10" in doubts[0]
    assert "unknown" in doubts[1]


def test_batches_that_share_their_codes_may_differ_in_icd_version():
    ten = Admissions.from_lists([["7", "7"]], icd_version=10)
    nine = replace(ten, versions=np.full_like(ten.versions, 9))  # the same array of codes: a zero is lost here alone
    model = random_model()
    assert Tally(model).add(ten).add(nine).stripped == Tally(model).add(nine).stripped == 2


@pytest.mark.parametrize("make", [random_model, random_table])
def test_strictly_nothing_that_is_not_understood_counts_and_too_little_has_no_score(make, tmp_path):
    model = make()
    lists = [["A000", "A001", "QQQ9"], ["A000", "QQQ9", "QQQ8"], ["A000", "A001"], ["QQQ7"], []]
    admissions = as_admissions(lists, icd_version=10)
    columns = pd.DataFrame(model.columns(admissions, strict=True))
    assert columns["score"].isna().tolist() == [False, True, False, True, True]
    assert (
        columns["high_severity"].isna().tolist()
        == columns["risk_mortality"].isna().tolist()
        == [*(False, True, False, True, True)]
    )
    assert columns["score"][0] == columns["score"][2] == model.score(admissions)[2]
    pd.DataFrame({"admission_id": range(5), "codes": [" ".join(codes) for codes in lists]}).to_csv(
        tmp_path / "a.csv", index=False
    )
    tally = score_file(model, tmp_path / "a.csv", tmp_path / "s.parquet", icd_version=10, strict=True)
    table = pd.read_parquet(tmp_path / "s.parquet")
    assert table["score"].isna().tolist() == [False, True, False, True, True]
    assert (tally.few, tally.empty) == (2, 1)
    assert tally.doubts(strict=True)[-2:] == [
        "of 2 of 5 admissions fewer than half of the codes are understood: they have no score.",
        "1 of 5 admissions have no code and therefore no score.",
    ]


def test_codes_left_out_on_purpose_are_understood():
    model = random_table(ignored=("10:B01",))
    enough = model.understanding(as_admissions([["A000", "B010", "B011"], ["B010"]], icd_version=10)).enough
    assert enough.tolist() == [True, False]  # of the second nothing would count


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("long", [False, True])
def test_files_are_scored_as_lists_are(suffix, long, tmp_path, monkeypatch):
    codes = [each for each in code_lists(60, seed=1) if each]
    table = pa.table(
        {"admission_id": [f"a{i}" for i in range(len(codes))], "codes": codes, "icd_version": [10] * len(codes)}
    )
    if long:
        table = pa.Table.from_pandas(table.to_pandas().explode("codes").rename(columns={"codes": "code"}))
    source, target = tmp_path / "admissions.parquet", tmp_path / f"scores.{suffix}"
    pq.write_table(table, source)
    monkeypatch.setattr(module, "stream_rows", lambda path, **o: stream(path, batch=7, **o))
    stream = __import__("mlci.codes.streams", fromlist=["x"]).stream_rows
    model = random_model()
    done: list[int] = []
    assert score_file(model, source, target, on_batch=done.append).admissions == len(codes) == done[-1]
    assert len(done) > 3
    found = pd.read_parquet(target) if suffix == "parquet" else pd.read_csv(target)
    assert list(found["admission_id"]) == [f"a{i}" for i in range(len(codes))]
    for name, column in model.columns(as_admissions(codes, icd_version=10)).items():
        np.testing.assert_allclose(found[name].to_numpy(float), column.astype(float), rtol=1e-12, err_msg=name)


def test_nothing_to_score_gives_a_file_without_rows(tmp_path):
    pq.write_table(
        pa.table({"admission_id": pa.array([], pa.int64()), "codes": pa.array([], pa.list_(pa.string()))}),
        tmp_path / "a.parquet",
    )
    score_file(random_model(), tmp_path / "a.parquet", tmp_path / "s.parquet")
    assert pq.read_table(tmp_path / "s.parquet").num_rows == 0


def test_the_name_of_the_output_says_its_kind(tmp_path):
    with pytest.raises(InputError, match=r"\.parquet, \.csv or \.xlsx"):
        score_file(random_model(), tmp_path / "none", tmp_path / "scores.txt")


def test_ten_thousand_codes_and_versions_that_differ():
    model = random_model()
    scores = model.score(Admissions.from_lists([CODES * 50, (CODES * 50)[:256]], icd_version=10))
    assert scores[0] == scores[1]  # the first 256 count


def test_scoring_loads_nothing_heavy(file, tmp_path):
    pq.write_table(pa.table({"admission_id": [1], "codes": [["A000"]]}), tmp_path / "a.parquet")
    program = (
        "import sys; from mlci.index.model import load_model, score_file; "
        f"score_file(load_model({str(file)!r}), {str(tmp_path / 'a.parquet')!r}, {str(tmp_path / 's.csv')!r}); "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True).stdout.split()
    # pandas is missing from this list because pyarrow looks for it by importing it
    assert not {"torch", "sklearn", "scipy", "duckdb", "ibis", "matplotlib", "rich"} & set(loaded)
