"""Pool the features of admissions' tokens by torch: look them up, average them, take the largest.

In come flat tokens and a table with a row for each distinct one; out comes a row per admission, with its gradient.
"""

import math
import warnings
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlci.tokens import PAD


def looked_up(embedding: nn.Embedding, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the embeddings of the distinct ids, and which of them each id has.

    Args:
        embedding: of all ids; that of padding is always among those returned, so that there is one.
        ids: of tokens.

    >>> table, row = looked_up(nn.Embedding(10, 4), torch.tensor([7, 2, 7]))
    >>> table.shape, row
    (torch.Size([3, 4]), tensor([2, 1, 2]))

    On a GPU all embeddings are taken: counting the distinct ids would make the host wait for the device at every step.
    """
    if ids.is_cuda:
        return embedding.weight, ids
    present = torch.zeros(embedding.num_embeddings, dtype=torch.bool)
    present[ids] = True
    present[PAD] = True
    return embedding(present.nonzero().squeeze(1)), (present.cumsum(0) - 1)[ids]


def rows_of(ids: Tensor, offsets: Tensor) -> Tensor:
    """Return the number of the admission that each token belongs to.

    Args:
        ids: of all tokens, flat.
        offsets: where each admission begins in them, and the end.

    >>> rows_of(torch.tensor([7, 2, 5]), torch.tensor([0, 2, 2, 3]))
    tensor([0, 0, 2])
    """
    admissions = torch.arange(len(offsets) - 1, device=ids.device)
    return torch.repeat_interleave(admissions, offsets.diff(), output_size=len(ids))


def softmax_within(logits: Tensor, rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax weights over the tokens of each admission together with a logit of the admission's own.

    Args:
        logits: of each token.
        rows: the admission of each token.
        own: of each admission; -inf for none. Their weights are returned second.

    >>> softmax_within(torch.zeros(3), torch.tensor([0, 0, 1]), torch.tensor([-torch.inf, 0.0]))
    (tensor([0.5000, 0.5000, 0.5000]), tensor([0.0000, 0.5000]))
    """
    top = own.detach().clone().scatter_reduce(0, rows, logits.detach(), "amax").clamp(min=-1e30)
    token, rest = torch.exp(logits - top[rows]), torch.exp(own - top)
    total = rest.index_add(0, rows, token).clamp(min=1e-30)
    return token / total[rows], rest / total


def weighted_sum(where: Tensor, table: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return for each admission the sum of its rows of a table.

    Args:
        where: the row of each token.
        table: a row per distinct token.
        offsets: where each admission begins in `where`, and the end.
        weights: of each token.

    >>> weighted_sum(torch.tensor([0, 1]), torch.eye(2), torch.tensor([0, 2]), torch.tensor([3.0, 4.0]))
    tensor([[3., 4.]])
    """
    return F.embedding_bag(
        where, table, offsets, mode="sum", per_sample_weights=weights.to(table.dtype), include_last_offset=True
    )


def averaged(how: str, table: Tensor, logits: Tensor | None, where: Tensor, offsets: Tensor) -> Tensor:
    """Return for each admission its rows of a table, pooled.

    Args:
        how: mean or sum, where there are no logits.
        table: a row per distinct token.
        logits: of each row, whose softmax is the weights; None for none.
        where: the row of each token.
        offsets: where each admission begins in `where`, and the end.

    >>> averaged("sum", torch.eye(2), None, torch.tensor([0, 1]), torch.tensor([0, 2, 2]))
    tensor([[1., 1.],
            [0., 0.]])
    """
    if logits is None:
        return F.embedding_bag(where, table, offsets, mode=how, include_last_offset=True)
    nothing = logits.new_full((len(offsets) - 1,), -math.inf)
    weights, _ = softmax_within(logits[where], rows_of(where, offsets), nothing)
    return weighted_sum(where, table, offsets, weights)


INDEX = 29  # bits that a float32 leaves free at the end of a float64
_csr = partial(torch.sparse_csr_tensor, check_invariants=False)
with warnings.catch_warnings():  # torch says once in a process that these tensors may still change
    warnings.simplefilter("ignore")
    _csr([0], [], torch.empty(0), (0, 0))


def largest(where: Tensor, table: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each feature's largest value among the tokens of an admission, 0 without any, and its row of the table.

    Args:
        where: the row of each token.
        table: a row per distinct token.
        offsets: where each admission begins in `where`, and the end.

    >>> largest(torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [0.5, 2.0]]), torch.tensor([0, 2]))
    (tensor([[1., 2.]]), tensor([[0, 1]]))

    `table` is not negative; the row of a 0 may be any. On the CPU torch's own kernel goes value by value. So there the
    row's number is written behind the digits of the value, and one fast maximum over such pairs finds both.
    """
    if table.is_cuda or table.dtype != torch.float32:
        best, _, _, winners = torch.embedding_bag(table, where, offsets, mode=2, include_last_offset=True)
        return best, winners.clamp(min=0)  # -1 on a GPU where there are no tokens
    pairs = table.detach().double()
    pairs.view(torch.int64).bitwise_or_(torch.arange(len(table))[:, None])
    ones = torch.ones(len(where), dtype=torch.float64)
    best = torch.sparse.mm(_csr(offsets, where, ones, (len(offsets) - 1, len(table))), pairs, "amax")
    winners = best.view(torch.int64) & (2**INDEX - 1)
    return best.float(), winners.clamp_(max=len(table) - 1)  # a NaN has no row


class Largest(torch.autograd.Function):
    """`largest` with a backward pass that scatters to all winners at once."""

    @staticmethod
    def forward(ctx, where: Tensor, table: Tensor, offsets: Tensor) -> Tensor:
        best, winners = largest(where, table, offsets)
        ctx.save_for_backward(winners, best)
        ctx.rows = len(table)
        return best

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        winners, best = ctx.saved_tensors
        grad = grad * (best > 0)  # nobody wins with a zero
        return None, grad.new_zeros(ctx.rows, grad.shape[1]).scatter_add_(0, winners, grad), None
