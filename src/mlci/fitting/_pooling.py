"""Pool the features of the tokens of each admission, in torch: look them up, average them, take the maximum.

The input is a table with one row per distinct token, the row of each token (`where`), and `offsets` that say where each
admission begins. The output has one row per admission. All functions can be differentiated.
"""

import math
import warnings
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlci.tokens import PAD


def lookup_distinct(embedding: nn.Embedding, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the embeddings of the distinct ids, and which of these rows each id has.

    Args:
        embedding: the embedding layer. The row of padding is always returned, so that there is at least one.
        ids: ids of tokens.

    >>> table, row = lookup_distinct(nn.Embedding(10, 4), torch.tensor([7, 2, 7]))
    >>> table.shape, row
    (torch.Size([3, 4]), tensor([2, 1, 2]))

    On a GPU the whole embedding is returned: finding the distinct ids would make the host wait for the device at every
    step.
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
        ids: ids of all tokens, flat.
        offsets: where each admission begins in `ids`, and the end.

    >>> rows_of(torch.tensor([7, 2, 5]), torch.tensor([0, 2, 2, 3]))
    tensor([0, 0, 2])
    """
    admissions = torch.arange(len(offsets) - 1, device=ids.device)
    return torch.repeat_interleave(admissions, offsets.diff(), output_size=len(ids))


def softmax_within(logits: Tensor, rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax weights over the tokens of each admission and one extra logit of the admission.

    Args:
        logits: of each token.
        rows: the admission of each token.
        own: the extra logit of each admission; -inf for none. Its weight is returned second.

    >>> softmax_within(torch.zeros(3), torch.tensor([0, 0, 1]), torch.tensor([-torch.inf, 0.0]))
    (tensor([0.5000, 0.5000, 0.5000]), tensor([0.0000, 0.5000]))
    """
    top = own.detach().clone().scatter_reduce(0, rows, logits.detach(), "amax").clamp(min=-1e30)
    token, rest = torch.exp(logits - top[rows]), torch.exp(own - top)
    total = rest.index_add(0, rows, token).clamp(min=1e-30)
    return token / total[rows], rest / total


def weighted_sum(where: Tensor, table: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return for each admission the weighted sum of its rows of a table.

    Args:
        where: the row of each token.
        table: one row per distinct token.
        offsets: where each admission begins in `where`, and the end.
        weights: of each token.

    >>> weighted_sum(torch.tensor([0, 1]), torch.eye(2), torch.tensor([0, 2]), torch.tensor([3.0, 4.0]))
    tensor([[3., 4.]])
    """
    return F.embedding_bag(
        where, table, offsets, mode="sum", per_sample_weights=weights.to(table.dtype), include_last_offset=True
    )


def average_pool(how: str, table: Tensor, logits: Tensor | None, where: Tensor, offsets: Tensor) -> Tensor:
    """Return for each admission the mean, sum or softmax-weighted mean of its rows of a table.

    Args:
        how: "mean" or "sum"; used if `logits` is None.
        table: one row per distinct token.
        logits: of each row, whose softmax gives the weights; None for an unweighted average.
        where: the row of each token.
        offsets: where each admission begins in `where`, and the end.

    >>> average_pool("sum", torch.eye(2), None, torch.tensor([0, 1]), torch.tensor([0, 2, 2]))
    tensor([[1., 1.],
            [0., 0.]])
    """
    if logits is None:
        return F.embedding_bag(where, table, offsets, mode=how, include_last_offset=True)
    nothing = logits.new_full((len(offsets) - 1,), -math.inf)
    weights, _ = softmax_within(logits[where], rows_of(where, offsets), nothing)
    return weighted_sum(where, table, offsets, weights)


INDEX = 29  # lowest bits of a float64's mantissa, which are 0 after conversion from float32
_csr = partial(torch.sparse_csr_tensor, check_invariants=False)
with warnings.catch_warnings():  # torch warns once per process that sparse CSR tensors are in beta
    warnings.simplefilter("ignore")
    _csr([0], [], torch.empty(0), (0, 0))


def max_pool(where: Tensor, table: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each feature's maximum over the tokens of an admission (0 without tokens), and the table row that has it.

    Args:
        where: the row of each token.
        table: one row per distinct token; not negative. For a maximum of 0 the returned row is arbitrary.
        offsets: where each admission begins in `where`, and the end.

    >>> max_pool(torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [0.5, 2.0]]), torch.tensor([0, 2]))
    (tensor([[1., 2.]]), tensor([[0, 1]]))

    On the CPU torch's own kernel is slow. There, values are converted to float64 and the row's number is written into
    the free lowest bits, so one fast maximum finds both the value and its row.
    """
    if table.is_cuda or table.dtype != torch.float32:
        best, _, _, winners = torch.embedding_bag(table, where, offsets, mode=2, include_last_offset=True)
        return best, winners.clamp(min=0)  # -1 on a GPU where there are no tokens
    pairs = table.detach().double()
    pairs.view(torch.int64).bitwise_or_(torch.arange(len(table))[:, None])
    ones = torch.ones(len(where), dtype=torch.float64)
    best = torch.sparse.mm(_csr(offsets, where, ones, (len(offsets) - 1, len(table))), pairs, "amax")
    winners = best.view(torch.int64) & (2**INDEX - 1)
    return best.float(), winners.clamp_(max=len(table) - 1)  # the bits of a NaN are not a row


class MaxPool(torch.autograd.Function):
    """`max_pool` as a torch function: backward scatters the gradient to the winning rows."""

    @staticmethod
    def forward(ctx, where: Tensor, table: Tensor, offsets: Tensor) -> Tensor:
        best, winners = max_pool(where, table, offsets)
        ctx.save_for_backward(winners, best)
        ctx.rows = len(table)
        return best

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        winners, best = ctx.saved_tensors
        grad = grad * (best > 0)  # a maximum of 0 has no gradient: it is no token's, or a ReLU's zero
        return None, grad.new_zeros(ctx.rows, grad.shape[1]).scatter_add_(0, winners, grad), None
