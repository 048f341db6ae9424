"""`mlci fit` and `mlci score` as a person runs them, power cuts included."""

import random
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from toys import random_model, toy_cohort

CONFIG = """
[encoder]
width = 16
[optimiser]
stage1_epochs = 3
stage2_epochs = 4
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    toy_cohort(3000).write(folder / "cohort.parquet")
    (folder / "quick.toml").write_text(CONFIG)
    return folder


def test_a_killed_fit_ends_in_the_same_bits(place, mlci_cli, tmp_path):
    words = ["fit", place / "cohort.parquet", "--config", place / "quick.toml", "-o"]
    log = mlci_cli(*words, tmp_path / "whole.safetensors").stderr
    assert log.count("epoch") == 3 + 3 + 4 + 1  # a line for each, and the summary
    assert "s left" in log
    chance, killed = random.Random(5), 0
    target, checkpoint = tmp_path / "killed.safetensors", tmp_path / ".killed.safetensors.checkpoint"
    for _ in range(3):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = subprocess.Popen([sys.executable, "-m", "mlci", *map(str, [*words, target, "--quiet"])])
        while process.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.15))  # anywhere in an epoch, or in the writing of a checkpoint
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 2
    assert not target.exists()
    assert mlci_cli(*words, target, "--quiet").stderr == ""
    assert target.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.safetensors", "whole.safetensors"]


def test_score_writes_the_columns(place, mlci_cli, tmp_path):
    random_model().save(tmp_path / "m.safetensors")
    done = mlci_cli("score", "m.safetensors", place / "cohort.parquet", "-o", "s.csv")
    assert "3,000 admissions" in done.stderr
    assert "warning" not in done.stderr
    columns = ["admission_id", "score", "percentile", "risk_mortality", "risk_long stay", "high_severity"]
    assert list(pd.read_csv(tmp_path / "s.csv")) == [*columns, "unknown_share"]


def test_score_warns(mlci_cli, tmp_path):
    random_model().save(tmp_path / "m.safetensors")
    (tmp_path / "a.csv").write_text("admission_id,code,icd_version\n1,4280,9\n1,ZZZ,9\n")
    done = mlci_cli("score", "m.safetensors", "a.csv", "-o", "s.csv", "--quiet")
    assert done.stderr.count("mlci: warning:") == 2


def test_bad_input_is_one_sentence(place, mlci_cli, tmp_path):
    cohort = place / "cohort.parquet"
    (tmp_path / "typo.toml").write_text("[optimiser]\nlerning_rate = 0.1\n")
    message = mlci_cli("fit", cohort, "--config", "typo.toml", "-o", "m", code=2).stderr
    assert "optimiser.lerning_rate is not a known key; allowed is learning_rate" in message
    assert "does not exist" in mlci_cli("fit", cohort, "-o", "none/m", code=2).stderr
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    assert "is not a Parquet file" in mlci_cli("fit", "table.csv", "-o", "m", code=2).stderr
    assert "not a whole model file" in mlci_cli("score", "table.csv", cohort, "-o", "s.csv", code=2).stderr
