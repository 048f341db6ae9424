"""Hidden layers of several models, ReLU(x W' + b): one kernel launch each way."""

import torch
import triton
import triton.language as tl
from torch import Tensor

FORTH, BACK = (64, 64), (128, 64)  # largest tile (outputs, inputs) of the forward and the backward pass
TALL = 64  # rows of a tile
PROGRAMS = 264  # programs that share the backward pass of all models: two per multiprocessor of an H200


@triton.jit
def _dot(a, b, total, PRECISION: tl.constexpr):
    """Add a product to `total`, with rounded factors: tensor cores truncate them to 10 bits, which would bias it."""
    if PRECISION == "tf32":
        a = ((a.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        b = ((b.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit(do_not_specialize=["rows"])
def _forward(
    x, weight, bias, y, rows, inputs, OUTPUTS: tl.constexpr, PRECISION: tl.constexpr, R: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Compute R rows and N columns of one model."""
    fit, line = tl.program_id(0).to(tl.int64), tl.program_id(1) * R + tl.arange(0, R)
    wide, deep = tl.program_id(2) * N + tl.arange(0, N), tl.arange(0, K)
    real, column = (line < rows)[:, None], wide < OUTPUTS
    x += fit * rows * inputs
    weight += fit * OUTPUTS * inputs
    total = tl.zeros([R, N], dtype=tl.float32)
    for start in range(0, inputs, K):
        place = start + deep
        part = tl.load(x + line[:, None] * inputs + place[None, :], mask=real & (place < inputs)[None, :], other=0.0)
        inside = (place < inputs)[:, None] & column[None, :]
        factor = tl.load(weight + wide[None, :] * inputs + place[:, None], mask=inside, other=0.0)
        total = _dot(part, factor, total, PRECISION)
    total = tl.maximum(total + tl.load(bias + fit * OUTPUTS + wide, mask=column, other=0.0)[None, :], 0.0)
    y += fit * rows * OUTPUTS
    tl.store(y + line[:, None] * OUTPUTS + wide[None, :], total, mask=real & column[None, :])


@triton.jit(do_not_specialize=["rows", "share"])
def _backward(
    gradient, y, x, weight, by_x, by_weight, by_bias, rows, share, inputs, OUTPUTS: tl.constexpr,
    FURTHER: tl.constexpr, PRECISION: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """For `share` rows of one model and K of its inputs, compute the gradient by them and add that by their weights."""
    fit, begin, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * share, tl.program_id(2)
    gradient += fit * rows * OUTPUTS
    y += fit * rows * OUTPUTS
    x += fit * rows * inputs
    by_x += fit * rows * inputs
    deep, up = column * K + tl.arange(0, K), tl.arange(0, R)
    real = (deep < inputs)[None, :]
    for first in tl.static_range(0, OUTPUTS, N):
        wide = first + tl.arange(0, N)
        matrix, inside = wide[:, None] * inputs + deep[None, :], (wide < OUTPUTS)[:, None] & real
        factor = tl.load(weight + fit * OUTPUTS * inputs + matrix, mask=inside, other=0.0)
        total, sums = tl.zeros([N, K], dtype=tl.float32), tl.zeros([N], dtype=tl.float32)
        for start in range(begin, tl.minimum(begin + share, rows), R):
            line = start + up
            place, there = line[:, None] * OUTPUTS + wide[None, :], (line < rows)[:, None] & (wide < OUTPUTS)[None, :]
            alive = tl.load(y + place, mask=there, other=0.0) > 0
            passed = tl.where(alive, tl.load(gradient + place, mask=there, other=0.0), 0.0)
            place, there = line[:, None] * inputs + deep[None, :], (line < rows)[:, None] & real
            part = tl.load(x + place, mask=there, other=0.0)
            total = _dot(tl.trans(passed), part, total, PRECISION)
            sums += tl.sum(passed, axis=0)
            if FURTHER:
                back = _dot(passed, factor, tl.zeros([R, K], dtype=tl.float32), PRECISION)
                if first > 0:  # add to what this program stored for other outputs
                    back += tl.load(by_x + place, mask=there, other=0.0)
                tl.store(by_x + place, back, mask=there)
        tl.debug_barrier()  # all stores are visible before they are read
        tl.atomic_add(by_weight + fit * OUTPUTS * inputs + matrix, total, mask=inside, sem="relaxed")
        if column == 0:
            tl.atomic_add(by_bias + fit * OUTPUTS + wide, sums, mask=wide < OUTPUTS, sem="relaxed")


def _options(inputs: int, outputs: int, most: tuple[int, int]) -> dict:
    """Return a kernel's options; a tile has at most `most` outputs and inputs."""
    tiles = {
        name: min(limit, max(16, triton.next_power_of_2(size)))
        for name, limit, size in zip("NK", most, (outputs, inputs))
    }
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return {"inputs": inputs, "OUTPUTS": outputs, "PRECISION": precision, "num_stages": 1, **tiles}


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute `stacked_models.layer` on a GPU."""
    x = x.contiguous()
    (fits, rows, inputs), outputs = x.shape, weight.shape[1]
    y, options = x.new_empty(fits, rows, outputs), _options(inputs, outputs, FORTH)
    grid = (fits, triton.cdiv(rows, TALL), triton.cdiv(outputs, options["N"]))
    _forward[grid](x, weight, bias, y, rows, **options, R=TALL)
    return y


def layer_back(
    gradient: Tensor, saved: tuple[Tensor, ...], further: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute `stacked_models.layer_back` on a GPU, adding to gradients that weight and bias already have."""
    x, weight, bias, y = saved
    x, gradient = x.contiguous(), gradient.contiguous()
    (fits, rows, inputs), outputs = x.shape, weight.shape[1]
    by_x, sums = torch.empty_like(x) if further else None, [into(own) for own in (weight, bias)]
    options = _options(inputs, outputs, BACK) | {"R": TALL, "FURTHER": further, "num_warps": 8}
    across = triton.cdiv(inputs, options["K"])
    share = triton.cdiv(triton.cdiv(rows, TALL), max(1, PROGRAMS // (fits * across))) * TALL
    grid = (fits, triton.cdiv(rows, share), across)
    places = (gradient, y, x, weight, x if by_x is None else by_x, *sums)
    _backward[grid](*places, rows, share, **options)
    return by_x, *(None if own.grad is not None else found for own, found in zip((weight, bias), sums))


def into(weight: Tensor) -> Tensor:
    """Return the tensor to which a kernel adds a weight's gradient: the existing gradient, or zeros."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
