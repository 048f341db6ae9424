"""Two processes take the same steps, and so make the same model, as one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from mlci.base.errors import InputError
from mlci.fitting import _processes as processes
from mlci.fitting._processes import ALONE, Group
from mlci.index.model import load_model
from small_fits import batch_gradients, fit_deep, fit_paper
from toys import toy_cohort

PROGRAM = """
import os
import sys
import numpy as np
import torch
from torch import distributed as dist
from small_fits import batch_gradients, fit_deep, fit_paper
from mlci.fitting import _processes as processes

torch.set_default_dtype(torch.float64)
# A store in a file: one on a port has a thread in the first process that may outlive its exit.
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(os.environ["RANK"]), world_size=2)
group = processes.world()
found = {**batch_gradients(), **fit_paper(group).state, **fit_deep(group)}
if group.rank == 0:
    np.savez(sys.argv[1], **found)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_give_the_step_and_the_fit_of_one(tmp_path):
    tests = Path(__file__).parents[1]
    shared = {"WORLD_SIZE": "2"}
    shared["PYTHONPATH"] = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    target = tmp_path / "found.npz"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, target, tmp_path / "store"],
            env={**os.environ, **shared, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    torch.set_default_dtype(torch.float64)
    try:
        expected, state, recipes = batch_gradients(), fit_paper().state, fit_deep()
    finally:
        torch.set_default_dtype(torch.float32)
    assert [process.wait() for process in both] == [0, 0]
    with np.load(target) as found:
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-12, atol=1e-14, err_msg=name)
        assert any(np.abs(gradient).max() > 1e-3 for gradient in expected.values())
        for name, tensor in state.items():
            np.testing.assert_allclose(found[name], tensor, rtol=1e-6, atol=1e-8, err_msg=name)
        for (
            name,
            tensor,
        ) in recipes.items():  # each member is trained by one process, so nothing is summed in another order
            np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_and_the_next_run_continues(mlci_cli, tmp_path):
    toy_cohort(2000).write(tmp_path / "cohort.parquet")
    (tmp_path / "quick.toml").write_text("[encoder]\nwidth = 32\n[optimiser]\nstage1_epochs = 10\nstage2_epochs = 10\n")
    runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    runner += ["--local-addr", "127.0.0.1", "-m", "mlci"]  # the machine's name may not be resolvable
    words = ["fit", "cohort.parquet", "--recipe", "paper", "--config", "quick.toml", "-o", "model.safetensors"]
    run = subprocess.Popen([*runner, *words], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    checkpoint = tmp_path / ".model.safetensors.checkpoint"
    by_rank = {}
    while not (len(by_rank) == 2 and checkpoint.exists()):
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.01)
        with contextlib.suppress(psutil.Error):  # a process that is just starting or ending
            children = psutil.Process(run.pid).children() if len(by_rank) < 2 else []
            by_rank |= {rank: child for child in children if (rank := child.environ().get("RANK"))}
    run.send_signal(signal.SIGSTOP)  # else torchrun might stop the remaining process before it reports
    by_rank["1"].kill()
    while by_rank["0"].status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    run.send_signal(signal.SIGCONT)
    log = run.communicate()[1]
    assert run.returncode
    assert "process 1 of 2: another process has ended, so this one ends too; run the same command again" in log
    assert checkpoint.exists()
    assert not (tmp_path / "model.safetensors").exists()
    assert 0 < log.count("s left\n") < 30  # reported by the first process alone
    again = mlci_cli(*words)  # one process can continue where two stopped
    assert 0 < again.stderr.count("s left\n") <= 30 - log.count("s left\n") + 1
    assert load_model(tmp_path / "model.safetensors").card["admissions"]["train"] == 1400
    assert not checkpoint.exists()


def test_common_errors_are_reported_by_the_first_process_and_own_errors_by_each(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(torch.distributed, name, lambda *_: True)
    for rank, error in ((0, InputError), (1, SystemExit)):
        monkeypatch.setattr(processes, "world", lambda rank=rank: Group(rank, 2))
        with pytest.raises(error), processes.joined("cpu"):
            raise InputError("wrong")
        with pytest.raises(InputError, match="too small"), processes.joined("cpu"), processes.own_errors():
            raise InputError("too small")


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert processes.world() == ALONE
    with processes.joined("cpu") as (device, group):
        assert (device, group) == ("cpu", ALONE)
    own = np.arange(3.0)
    assert group.sum(own) is own


def test_more_processes_than_admissions_are_refused():
    with pytest.raises(InputError, match="65 processes are more than the 64 admissions of a batch"):
        fit_paper(Group(0, 65))
