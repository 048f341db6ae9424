"""A fit with memory-mapped tokens equals the fit in memory."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from mlci.base.errors import InputError
from mlci.codes import streams
from mlci.config import (
    EncoderConfig,
    OptimiserConfig,
    PaperConfig,
    TokenConfig,
)
from mlci.fitting._mapped import map_cohort, numbered
from mlci.index.estimator import MLCI
from mlci.tokens import Vocabulary
from small_fits import SMALL_DEEP
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
    patients = np.unique(cohort.split("train").column("subject_id"), return_inverse=True)[1]
    np.testing.assert_array_equal(splits.train.subjects, patients)


@pytest.mark.parametrize("ids", [[30, -1, 30, 7], [30, None, 7, None], ["b", "é", "a", "Z", "b", "𐀀", "￿"]])
def test_patients_are_numbered_as_in_memory(ids):
    whole = pa.chunked_array([ids[:2], ids[2:]])
    np.testing.assert_array_equal(numbered(whole.chunks), np.unique(whole.to_numpy(), return_inverse=True)[1])


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


def test_unknown_outcomes_and_cohorts_in_memory_cannot_be_mapped(path, tmp_path):
    with pytest.raises(InputError, match="has no outcome height; there is mortality, long_stay"):
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
