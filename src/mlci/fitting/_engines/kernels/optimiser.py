"""Steps of AdamW for several models, each with its own rates: of all weights, or of the table rows that are used."""

import triton
import triton.language as tl
from torch import Tensor

from mlci.tokens import PAD

UNROLLED = 4  # missed steps that are made up for in one unrolled loop body
NEVER = tl.constexpr(PAD)  # padding is never updated: it fills the end of a step, many times over


@triton.jit
def _moved(weight, gradient, first, second, rates, real):
    """Take a step of `stacked_adamw.adamw` with this row of rates, if it is `real`."""
    first += (gradient - first) * tl.load(rates + 1, mask=real, other=0.0)
    second += (gradient * gradient - second) * tl.load(rates + 2, mask=real, other=0.0)
    root = tl.sqrt(second) * tl.load(rates + 4, mask=real, other=0.0)
    move = tl.load(rates + 3, mask=real, other=0.0) * first / (root + 1e-8)
    return weight * tl.load(rates, mask=real, other=1.0) - move, first, second


@triton.jit
def _adamw(weight, gradient, moment, square, owners, rates, step, fits, size, B: tl.constexpr):
    place = tl.program_id(0) * B + tl.arange(0, B)
    inside = place < size
    rates += (tl.load(step) * fits + tl.load(owners + place, mask=inside, other=0)) * 5
    slope = tl.load(gradient + place, mask=inside, other=0.0)
    first = tl.load(moment + place, mask=inside, other=0.0)
    second = tl.load(square + place, mask=inside, other=0.0)
    own = tl.load(weight + place, mask=inside, other=0.0)
    own, first, second = _moved(own, slope, first, second, rates, inside)
    tl.store(moment + place, first, mask=inside)
    tl.store(square + place, second, mask=inside)
    tl.store(weight + place, own, mask=inside)
    tl.store(gradient + place, 0.0, mask=inside)


def adamw(flat: tuple[Tensor, ...], rates: Tensor, step: Tensor) -> None:
    """Take a step of `stacked_adamw.adamw` on a GPU."""
    size, fits = len(flat[0]), rates.shape[1]
    _adamw[(triton.cdiv(size, 1024),)](*flat, rates, step, fits, size, B=1024)


@triton.jit(do_not_specialize=["vocabulary"])
def _bring(
    weight, moment, square, seen, tokens, picked, rates, step, fits, vocabulary, width,
    PICK: tl.constexpr, D: tl.constexpr, UNROLLED: tl.constexpr,
):  # fmt: skip
    """Bring a row up to this step: in the steps that did not use it its gradient was 0, but its moments move it on."""
    place, wide = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    token = tl.load(tokens + place) if PICK else place
    inside, at = wide < width, token * width + wide
    own = tl.load(weight + at, mask=inside, other=0.0)
    first = tl.load(moment + at, mask=inside, other=0.0)
    second = tl.load(square + at, mask=inside, other=0.0)
    begin, end = tl.load(seen + token).to(tl.int64), tl.load(step)
    if (begin < end) & (token % vocabulary != NEVER):
        rates += token // vocabulary * 5
        for start in range(begin, end, UNROLLED):
            for ahead in tl.static_range(UNROLLED):
                past = start + ahead
                own, first, second = _moved(own, 0.0, first, second, rates + past * fits * 5, past < end)
        tl.store(weight + at, own, mask=inside)
        tl.store(moment + at, first, mask=inside)
        tl.store(square + at, second, mask=inside)
        tl.store(seen + token, end.to(tl.int32))
    if PICK:
        tl.store(picked + place * width + wide, own, mask=inside)


@triton.jit(do_not_specialize=["vocabulary"])
def _move(weight, moment, square, seen, tokens, gradient, rates, step, fits, vocabulary, width, D: tl.constexpr):
    """Take the step of a row that is used, by its gradient."""
    place, wide = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    token, now = tl.load(tokens + place), tl.load(step)
    inside, at = wide < width, token * width + wide
    if token % vocabulary != NEVER:
        own = tl.load(weight + at, mask=inside, other=0.0)
        first = tl.load(moment + at, mask=inside, other=0.0)
        second = tl.load(square + at, mask=inside, other=0.0)
        slope = tl.load(gradient + place * width + wide, mask=inside, other=0.0)
        rates += (now * fits + token // vocabulary) * 5
        own, first, second = _moved(own, slope, first, second, rates, True)
        tl.store(weight + at, own, mask=inside)
        tl.store(moment + at, first, mask=inside)
        tl.store(square + at, second, mask=inside)
        tl.store(seen + token, (now + 1).to(tl.int32))


def catch_up(table: tuple[Tensor, ...], tokens: Tensor, rates: Tensor, step: Tensor) -> Tensor:
    """Bring the rows of these tokens up to a step, and return them.

    Args:
        table: weight and moments (models x tokens x width), and the step to which each row is up to date.
        tokens: numbered through all models, each at most once except padding.
        rates: steps x models x 5, as `stacked_adamw.adamw` takes them.
        step: which row of `rates`.
    """
    picked = table[0].new_empty(tokens.numel(), table[0].shape[2])
    _bring[(tokens.numel(),)](*table, tokens, picked, rates, step, **_sizes(table[0]), PICK=True, UNROLLED=UNROLLED)
    return picked


def catch_up_all(table: tuple[Tensor, ...], rates: Tensor, step: Tensor) -> None:
    """Bring all rows up to a step."""
    fits, vocabulary, _ = table[0].shape
    _bring[(fits * vocabulary,)](
        *table, table[0], table[0], rates, step, **_sizes(table[0]), PICK=False, UNROLLED=UNROLLED
    )


def update_rows(table: tuple[Tensor, ...], tokens: Tensor, gradient: Tensor, rates: Tensor, step: Tensor) -> None:
    """Take the step of the rows of these tokens, which `catch_up` returned, by their gradient."""
    _move[(tokens.numel(),)](*table, tokens, gradient.contiguous(), rates, step, **_sizes(table[0]))


def _sizes(weight: Tensor) -> dict[str, int]:
    fits, vocabulary, width = weight.shape
    return {"fits": fits, "vocabulary": vocabulary, "width": width, "D": triton.next_power_of_2(width), "num_warps": 1}
