import subprocess
import sys

import pytest
import torch

from mlci.fitting._adamw import AdamW, one_cycle

START = [torch.randn(40, 3, generator=torch.Generator().manual_seed(1)), torch.ones(3)]


def gradients(step: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(step)
    return [torch.randn(weight.shape, generator=rng) for weight in START]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("cycle", [None, 2, 23])
def test_weights_equal_torchs_bit_for_bit(cycle, fused):
    """Also when training is interrupted in the middle."""
    ours, theirs = [[weight.clone().requires_grad_() for weight in START] for _ in range(2)]
    options = {"weight_decay": 0.1, "betas": (0.9, 0.99), "fused": fused}
    adam = torch.optim.AdamW(theirs, lr=0.01, **options)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 0.01, total_steps=cycle) if cycle else None
    own = AdamW(ours, learning_rate=0.01, cycle=cycle, **options)
    for step in range(cycle or 5):
        for weights in (ours, theirs):
            for weight, gradient in zip(weights, gradients(step)):
                weight.grad = gradient
        own.step()
        adam.step()
        if schedule:
            schedule.step()
        kept, own = own.kept(), AdamW(ours, learning_rate=0.01, cycle=cycle, **options)
        own.load(kept)
    for weight, other in zip(ours, theirs):
        assert torch.equal(weight, other)


def test_the_learning_rate_equals_torchs():
    for steps in (1, 2, 3, 4, 10, 883):
        adam = torch.optim.AdamW([torch.zeros(1)], lr=0.002)
        schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 0.002, total_steps=steps)
        for rate, memory in one_cycle(0.002, steps):
            group = adam.param_groups[0]
            assert (rate, memory) == (group["lr"], group["betas"][0])
            adam.step()
            schedule.step()


PROGRAM = """
import sys
import mlci
from mlci.config import CollapseConfig, DeepConfig, DistilConfig, EncoderConfig, PosteriorConfig
config = DeepConfig(
    encoder=EncoderConfig(width=8),
    posterior=PosteriorConfig(members=2, epochs=2, steps=4, batch=32),
    collapse=CollapseConfig(epochs=2),
    distil=DistilConfig(epochs=12, steps=4, learning_rate=0.02),
)
codes = [["I50.9"], ["E11.9"], ["I50.9", "N17.9"], ["N17.9"], ["E11.9", "I10"]] * 40
mlci.MLCI(config=config).fit(codes, {"mortality": [1, 0, 1, 0, 0] * 40}, icd_version=10)
print([name in sys.modules for name in ("torch", "torch._dynamo", "sympy")])
"""


@pytest.mark.slow
def test_a_fit_does_not_import_the_compiler():
    """Nor its symbolic algebra: their import takes longer than many a fit."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[True,", "False,", "False]"]
