"""A fit with memory-mapped tokens equals the fit in memory."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from conftest import PATIENCE
from mlci.base.errors import InputError
from mlci.codes import streams
from mlci.config import (
    EncoderConfig,
    OptimiserConfig,
    PaperConfig,
    TokenConfig,
)
from mlci.fitting import _mapped
from mlci.fitting._mapped import map_cohort, numbered
from mlci.fitting._presence import Presence
from mlci.index.estimator import MLCI
from mlci.measures import design
from mlci.tokens import Vocabulary
from small_fits import SMALL_DEEP, SMALL_PAPER
from toys import toy_cohort

CONFIG = PaperConfig(
    tokens=TokenConfig(depths=(3, 4), max_codes=10, min_admissions=20),
    encoder=EncoderConfig(width=16),
    optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1),
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Write a cohort file that is read in many parts."""
    monkeypatch.setitem(streams.stream_table.__kwdefaults__, "batch", 97)
    toy_cohort(600).write(tmp_path / "cohort.parquet")
    return tmp_path / "cohort.parquet"


@pytest.mark.parametrize("config", [CONFIG, SMALL_DEEP], ids=["paper", "deep"])
def test_the_model_files_are_equal_bit_for_bit(config, path, tmp_path):
    for name, folder in (("memory", None), ("disk", tmp_path / "tokens")):
        index = MLCI(config=config, outcomes=["long_stay", "mortality"])
        index.fit(path, memory_map=folder).save(tmp_path / name)
    assert (tmp_path / "memory").read_bytes() == (tmp_path / "disk").read_bytes()


@pytest.mark.parametrize("config", [SMALL_PAPER, SMALL_DEEP], ids=["paper", "deep"])
def test_patients_of_the_validation_split_are_not_divided_on_disk_either(config, tmp_path):
    """Its risks and certificate are those of one half of its patients, judged on the other."""
    cohort = toy_cohort(2000)
    patients = np.argsort(np.argsort(cohort.column("split"), kind="stable")) // 2  # two admissions each
    place = cohort.table.column_names.index("subject_id")
    table = cohort.table.set_column(place, "subject_id", pa.array(patients))
    replace(cohort, table=table).write(tmp_path / "cohort.parquet")
    for name, folder in (("memory", None), ("disk", tmp_path / "tokens")):
        MLCI(config=config).fit(tmp_path / "cohort.parquet", memory_map=folder).save(tmp_path / name)
    assert (tmp_path / "memory").read_bytes() == (tmp_path / "disk").read_bytes()


def test_the_tokens_equal_the_cohorts_and_stay_on_disk(path, tmp_path):
    cohort = toy_cohort(600)
    splits = map_cohort(path, tmp_path / "tokens", tokens=TokenConfig())
    assert (tmp_path / "tokens").stat().st_mode & 0o077 == 0  # readable by the owner alone
    vocabulary = Vocabulary.fit(cohort.split("train").admissions())
    assert splits.vocabulary == vocabulary
    for name, data in (("train", splits.train), ("valid", splits.valid)):
        expected = vocabulary.encode(cohort.split(name).admissions())
        np.testing.assert_array_equal(data.tokens.ids, expected.ids)
        np.testing.assert_array_equal(data.tokens.offsets, expected.offsets)
        np.testing.assert_array_equal(data.outcomes, cohort.split(name).labels())
        assert isinstance(data.tokens.ids, np.memmap)
        patients = np.unique(cohort.split(name).column("subject_id"), return_inverse=True)[1]
        np.testing.assert_array_equal(data.subjects, patients)


@pytest.mark.parametrize("ids", [[30, -1, 30, 7], [30, None, 7, None], ["b", "é", "a", "Z", "b", "𐀀", "￿"]])
def test_patients_are_numbered_as_in_memory(ids):
    whole = pa.chunked_array([ids[:2], ids[2:]])
    np.testing.assert_array_equal(numbered(whole.chunks), design.numbered(whole.to_pylist()))


def test_the_files_are_made_once_and_again_when_the_cohort_changed(path, tmp_path):
    def made() -> int:
        map_cohort(path, tmp_path / "tokens", tokens=TokenConfig())
        return (tmp_path / "tokens" / "train.ids").stat().st_mtime_ns

    first = made()
    assert made() == first
    toy_cohort(500).write(path)
    assert made() != first
    (tmp_path / "tokens" / "facts.json").unlink()  # as after a power failure
    assert len(map_cohort(path, tmp_path / "tokens", tokens=TokenConfig()).train) == 350


def test_another_version_of_the_program_makes_the_files_again(path, tmp_path, monkeypatch):
    map_cohort(path, tmp_path / "tokens", tokens=TokenConfig())
    before = (tmp_path / "tokens" / "facts.json").read_text()
    monkeypatch.setattr("mlci.__version__", "another")
    map_cohort(path, tmp_path / "tokens", tokens=TokenConfig())
    assert (tmp_path / "tokens" / "facts.json").read_text() != before


def test_a_fit_keeps_its_files_when_another_one_writes_to_the_folder(path, tmp_path):
    """As two fits with other settings do, in two processes: the first would read the tokens of the second."""
    first = map_cohort(path, tmp_path / "tokens", tokens=TokenConfig()).train
    presence = Presence.of(first.tokens, first.vocabulary_size)
    ids, distinct = np.array(first.tokens.ids), np.array(presence.ids)
    second = map_cohort(path, tmp_path / "tokens", tokens=TokenConfig(depths=(3,), max_codes=2)).train
    Presence.of(second.tokens, second.vocabulary_size)
    assert len(second.tokens.ids) < len(ids)
    np.testing.assert_array_equal(first.tokens.ids, ids)
    np.testing.assert_array_equal(presence.ids, distinct)


def test_a_fit_waits_for_another_one_that_writes_the_same_files(path, tmp_path, monkeypatch):
    calls, begun, write = [], threading.Event(), _mapped._write

    def slow(*arguments) -> None:
        calls.append(arguments)
        begun.set()
        time.sleep(0.2)  # in which the other fit reaches the lock
        write(*arguments)

    monkeypatch.setattr(_mapped, "_write", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(map_cohort, path, tmp_path / "tokens", tokens=TokenConfig())
        assert begun.wait(PATIENCE)
        second = pool.submit(map_cohort, path, tmp_path / "tokens", tokens=TokenConfig())
        assert len(first.result().train) == len(second.result().train) > 0
    assert len(calls) == 1


def test_the_model_records_a_look_back_whatever_the_files_name(tmp_path):
    cohort = replace(toy_cohort(600), look_back=90)
    cohort.write(tmp_path / "cohort.pq")
    index = MLCI(outcomes=["long_stay"]).fit(tmp_path / "cohort.pq", memory_map=tmp_path / "tokens")
    assert index.model_.card["look_back"] == 90


def test_unknown_outcomes_and_cohorts_in_memory_cannot_be_mapped(path, tmp_path):
    with pytest.raises(InputError, match="has no outcome height; it has mortality, long_stay"):
        MLCI(config=CONFIG, outcomes=["height"]).fit(path, memory_map=tmp_path / "tokens")
    with pytest.raises(InputError, match="memory_map needs the name of a cohort file"):
        MLCI(config=CONFIG).fit(toy_cohort(50), memory_map=tmp_path / "tokens")


@pytest.mark.parametrize("name", ["outcomes", "split", "subjects"])
def test_what_the_cohort_file_has_itself_is_refused(path, tmp_path, name):
    with pytest.raises(InputError, match="a cohort has its own outcomes, split and subjects"):
        MLCI(config=CONFIG).fit(path, memory_map=tmp_path / "tokens", **{name: []})


def test_the_command_leaves_nothing_behind(path, tmp_path, mlci_cli):
    (tmp_path / "quick.toml").write_text("[encoder]\nwidth = 8\n[optimiser]\nstage1_epochs = 1\nstage2_epochs = 1\n")
    mlci_cli(
        "fit", path, "--recipe", "paper", "--config", "quick.toml", "-o", "model.safetensors", "--memory-map", "--quiet"
    )
    assert {file.name for file in tmp_path.iterdir()} == {"cohort.parquet", "quick.toml", "model.safetensors"}


def test_a_file_in_another_order_is_refused(tmp_path):
    cohort = toy_cohort(50)
    replace(cohort, table=cohort.table.take(np.arange(50)[::-1])).write(tmp_path / "c.parquet")
    with pytest.raises(InputError, match="not in the order of its admission_id"):
        map_cohort(tmp_path / "c.parquet", tmp_path / "tokens", tokens=PaperConfig().tokens)
