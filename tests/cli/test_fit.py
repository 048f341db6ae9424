"""`mlci fit` and `mlci score` as users run them, including interruptions."""

import random
import signal

import pandas as pd
import pytest

from forked import Fits
from toys import random_model, toy_cohort

CONFIG = """
[encoder]
width = 32
[optimiser]
stage1_epochs = 2
stage2_epochs = 4
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    toy_cohort(2000).write(folder / "cohort.parquet")
    (folder / "quick.toml").write_text(CONFIG)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 5])
def test_a_killed_fit_ends_in_the_same_bits(place, mlci_cli, tmp_path, kills):
    words = ["fit", place / "cohort.parquet", "--recipe", "paper", "--config", place / "quick.toml", "-o"]
    whole, target, checkpoint = (tmp_path / name for name in ("whole", "killed", ".killed.checkpoint"))
    log = mlci_cli(*words, whole).stderr  # with one thread; those killed have two
    assert log.count("s left\n") == 2 * 2 + 4  # a line per epoch
    assert f"\n{whole}: 216 tokens, 1,400 training admissions, epoch " in log
    chance = random.Random(5)
    with Fits() as fits:
        assert fits.run(*words, target, "--quiet", killed=0.01) == signal.SIGALRM
        for _ in range(kills):  # in the next epoch, or while that is written
            end = {"killed": chance.uniform(0.001, 0.03), "after": checkpoint}
            assert fits.run(*words, target, "--quiet", **end) == signal.SIGALRM
        assert not target.exists()
        assert fits.run(*words, target, "--quiet") == 0
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_score_writes_the_columns(place, mlci_cli, tmp_path):
    random_model().save(tmp_path / "m.safetensors")
    done = mlci_cli("score", "m.safetensors", place / "cohort.parquet", "-o", "s.csv")
    assert "2,000 admissions" in done.stderr
    assert "unknown" not in done.stderr
    columns = ["admission_id", "score", "percentile", "risk_mortality", "risk_long stay", "high_severity"]
    assert list(pd.read_csv(tmp_path / "s.csv")) == [*columns, "unknown_share"]


def test_score_warns(mlci_cli, tmp_path):
    random_model().save(tmp_path / "m.safetensors")
    (tmp_path / "a.csv").write_text("admission_id,code,icd_version\n1,4280,9\n1,ZZZ,9\n")
    done = mlci_cli("score", "m.safetensors", "a.csv", "-o", "s.csv", "--quiet")
    assert done.stderr.count("mlci: warning:") == 3
    assert "in 1 of 1 admissions, fewer than half of the codes are understood" in done.stderr
    assert pd.read_csv(tmp_path / "s.csv")["score"].notna().all()
    done = mlci_cli("score", "m.safetensors", "a.csv", "-o", "s.csv", "--quiet", "--strict")
    assert "they have no score" in done.stderr
    strict = pd.read_csv(tmp_path / "s.csv").drop(columns=["admission_id", "unknown_share"])
    assert strict.isna().all(axis=None)


def test_bad_input_is_one_sentence(place, mlci_cli, tmp_path):
    cohort = place / "cohort.parquet"
    (tmp_path / "typo.toml").write_text("[optimiser]\nlerning_rate = 0.1\n")
    message = mlci_cli("fit", cohort, "--recipe", "paper", "--config", "typo.toml", "-o", "m", code=2).stderr
    assert "optimiser.lerning_rate is not a known key; allowed are learning_rate" in message
    assert "does not exist" in mlci_cli("fit", cohort, "-o", "none/m", code=2).stderr
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    assert "table.csv: is not a cohort file" in mlci_cli("fit", "table.csv", "-o", "m", code=2).stderr
    assert "not a whole model file" in mlci_cli("score", "table.csv", cohort, "-o", "s.csv", code=2).stderr
