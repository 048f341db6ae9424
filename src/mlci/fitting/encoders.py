"""Set encoders: turn the tokens of admissions into one score each.

An encoder takes all tokens of a batch as one flat tensor `ids`, and `offsets` that say where each admission begins. The
features phi(e_j) of a token depend on its id alone, so they are computed once per distinct token of the batch and then
looked up. Admissions are pooled by offsets, without padding (except in the Set Transformer). Every encoder ends in
`rho`, a network whose last layer is linear.

`DeepSets` is the paper's encoder (appendix, DeepSets architecture for a single scalar score); the others are its
baselines.
"""

import math
import threading
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlci.config import EncoderConfig
from mlci.fitting._pooling import MaxPool, average_pool, lookup_distinct, rows_of, softmax_within, weighted_sum
from mlci.tokens import PAD, UNK, Tokens

TRITON = find_spec("triton") is not None  # needed by `_engines.kernels`
RNG_LOCK = threading.RLock()  # torch has one global generator for all threads
SCORING = 4_096  # admissions scored at once; limits the memory of encoders that pad


def mlp(*widths: int) -> list[nn.Module]:
    """Return linear layers from each of the `widths` to the next, each followed by a ReLU.

    >>> nn.Sequential(*mlp(4, 8, 2))(torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """
    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


class Encoder(nn.Module):
    """Base class of encoders: `forward(ids, offsets)`, and a linear last layer by which the score can be negated."""

    rho: nn.Sequential

    def negate(self) -> None:
        """Make every score its negative, by negating the last layer.

        >>> model = build(EncoderConfig(width=4), 10)
        >>> before = predict(model, tokens := Tokens(np.array([2]), np.array([0, 1])))
        >>> model.negate()
        >>> torch.equal(predict(model, tokens), -before)
        True
        """
        last = cast(nn.Linear, self.rho[-1])
        with torch.no_grad():
            last.weight.neg_()
            last.bias.neg_()


class Dropout(nn.Dropout):
    """Dropout with its own random generator, if it has one, so that models can be trained in parallel reproducibly.

    >>> drop = Dropout(0.5)
    >>> drop.generator = torch.Generator().manual_seed(1)
    >>> drop(torch.ones(100)).unique().tolist()
    [0.0, 2.0]
    """

    generator: torch.Generator | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Return the input; in training, with a random share of it set to 0 and the rest scaled up."""
        if not self.training or not self.p:
            return input
        return input * self.mask(torch.empty_like(input))

    def mask(self, out: Tensor) -> Tensor:
        """Return `out`, filled with the random factors that an input of its shape is multiplied by in training."""
        return dropout_mask(out, self.p, self.generator)


def dropout_mask(out: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Return `out`, filled with a dropout mask: 0 for a random share of the entries, 1 / (1 - share) for the others.

    Args:
        out: the tensor to fill.
        share: the probability of 0.
        generator: a random generator; without it, torch's global one.

    >>> dropout_mask(torch.empty(2), 0.0)
    tensor([1., 1.])

    On the CPU 16 random bits are drawn per entry, which takes a sixth of the time of torch's `bernoulli_`.
    """
    if out.is_cuda:
        return out.bernoulli_(1 - share, generator=generator).div_(1 - share)
    drawn = torch.empty(-(-out.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    kept = drawn.numpy().view(np.uint16)[: out.numel()] >= round(share * 2**16)
    return out.copy_(torch.from_numpy(kept).view_as(out)).div_(1 - share)


class DeepSets(Encoder):
    """rho(LayerNorm(pool(phi(embedding)))); the paper pools by mean and max, concatenated.

    An admission without codes pools to zero, the least value of phi (which ends in a ReLU). With several `outputs`, an
    admission has one row of them; `dropout` is applied to the input of rho's hidden layers.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        width: int = 128,
        pooling: str = "mean+max",
        phi_layers: int = 2,
        rho_layers: int = 2,
        outputs: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.poolings = pooling.split("+")
        pooled = width * len(self.poolings)
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=PAD)
        self.phi = nn.Sequential(*mlp(*[width] * (phi_layers + 1)))
        self.norm = nn.LayerNorm(pooled)
        widths = [pooled, *[width] * rho_layers]
        self.rho = nn.Sequential(*mlp(*widths), nn.Linear(widths[-1], outputs))
        self.dropout = Dropout(dropout)
        if "attention" in self.poolings:
            self.query = nn.Parameter(torch.randn(width) / math.sqrt(width))
        if "gated" in self.poolings:
            self.gate = nn.Sequential(*mlp(width, width), nn.Linear(width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.rho[-1](self.hidden(ids, offsets)).squeeze(1)

    def hidden(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Return the input of the last layer, one row per admission.

        Args:
            ids: ids of all tokens, flat.
            offsets: where each admission begins in `ids`, and the end.

        >>> DeepSets(10, width=4).hidden(torch.tensor([2, 3]), torch.tensor([0, 2])).shape
        torch.Size([1, 4])
        """
        table, where = lookup_distinct(self.embedding, ids)
        features = self.phi(table)
        pooled = torch.cat([self._pool(how, features, where, offsets) for how in self.poolings], dim=1)
        hidden = self.norm(pooled)
        for place, layer in enumerate(list(self.rho)[:-1]):
            hidden = layer(hidden if place % 2 else self.dropout(hidden))
        return hidden

    def _pool(self, how: str, table: Tensor, where: Tensor, offsets: Tensor) -> Tensor:
        """Pool the features of each admission's tokens; the pooling "gated" is an average weighted by gates."""
        if how == "max":
            return MaxPool.apply(where, table, offsets)
        logits = None
        if how == "attention":
            logits = table @ self.query / math.sqrt(len(self.query))
        elif how == "gated":
            logits = F.logsigmoid(self.gate(table)).squeeze(1)
        return average_pool(how, table, logits, where, offsets)


class RiskHeads(nn.Module):
    """Log-odds of several outcomes on a frozen encoder: linear in its last hidden layer, plus a weight per token."""

    LEARNED = ("tokens", "weight", "bias")

    def __init__(self, encoder: DeepSets, intercepts: Tensor) -> None:
        super().__init__()
        self.encoder, outcomes = encoder.requires_grad_(False), len(intercepts)
        last = cast(nn.Linear, encoder.rho[-1])
        self.tokens = nn.Parameter(intercepts.new_zeros(encoder.embedding.num_embeddings, outcomes))
        self.weight = nn.Parameter(intercepts.new_zeros(outcomes, last.in_features))
        self.bias = nn.Parameter(intercepts.clone())

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Return one row of log-odds per admission."""
        with torch.no_grad():
            hidden = self.encoder.hidden(ids, offsets)
        tokens = F.embedding_bag(ids, self.tokens, offsets, mode="sum", include_last_offset=True)
        return F.linear(hidden, self.weight, self.bias) + tokens


class BagMLP(Encoder):
    """A multilayer perceptron on the sum of the token embeddings."""

    def __init__(self, vocabulary_size: int, *, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary_size, width, mode="sum", include_last_offset=True, padding_idx=PAD)
        self.norm = nn.LayerNorm(width)
        self.rho = nn.Sequential(*mlp(width, width, width), nn.Linear(width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.rho(self.norm(self.embedding(ids, offsets))).squeeze(1)


class AttentionMIL(Encoder):
    """Attention pooling of embeddings (multiple-instance learning); attention logits are linear in the embeddings."""

    def __init__(self, vocabulary_size: int, *, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=PAD)
        self.attention = nn.Linear(width, 1)
        self.norm = nn.LayerNorm(width)
        self.rho = nn.Sequential(*mlp(width, width), nn.Linear(width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        table, where = lookup_distinct(self.embedding, ids)
        average = average_pool("softmax", table, self.attention(table).squeeze(1), where, offsets)
        return self.rho(self.norm(average)).squeeze(1)


class DeepCross(Encoder):
    """Deep and cross network on the mean embedding: two cross layers and a two-layer tower, then a linear layer."""

    def __init__(self, vocabulary_size: int, *, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary_size, width, mode="mean", include_last_offset=True, padding_idx=PAD)
        self.norm = nn.LayerNorm(width)
        self.cross = nn.Parameter(0.01 * torch.randn(layers, width))
        self.shift = nn.Parameter(torch.zeros(layers, width))
        self.tower = nn.Sequential(*mlp(*[width] * (layers + 1)))
        self.rho = nn.Sequential(nn.Linear(2 * width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        first = crossed = self.norm(self.embedding(ids, offsets))
        for weight, shift in zip(self.cross, self.shift):
            crossed = first * (crossed @ weight)[:, None] + shift + crossed
        return self.rho(torch.cat([crossed, self.tower(first)], dim=1)).squeeze(1)


class StarGAT(Encoder):
    """Graph attention on a star: the centre attends to all codes of the admission, a code to itself and the centre.

    The centre starts at zero, so after the first layer the features of a code still depend on the code alone, and only
    the centre is read after the second layer. So features can be computed once per distinct token here too, and no
    edges are stored.
    """

    def __init__(self, vocabulary_size: int, *, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=PAD)
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        # Additive attention of each layer: the terms of the source node (row 0) and of the target node (row 1).
        self.attention = nn.Parameter(torch.empty(2, 2, width))
        self.norm = nn.LayerNorm(width)
        self.rho = nn.Sequential(*mlp(width, width, width), nn.Linear(width, 1))
        for weight in (self.first.weight, self.second.weight, *self.attention):
            nn.init.xavier_uniform_(weight)

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        table, where = lookup_distinct(self.embedding, ids)
        rows = rows_of(ids, offsets)
        table = self.first(table)
        source, target = self.attention[0]
        zero = table.new_zeros(len(offsets) - 1)
        weights, _ = softmax_within(F.leaky_relu(table @ source, 0.2)[where], rows, zero)
        centre = F.elu(weighted_sum(where, table, offsets, weights))
        # A code attends to itself and to the centre, which is still zero: the softmax of two logits is a sigmoid.
        to_itself, to_centre = F.leaky_relu(table @ (source + target), 0.2), F.leaky_relu(table @ target, 0.2)
        table = self.second(F.elu(torch.sigmoid(to_itself - to_centre)[:, None] * table))
        centre = self.second(centre)
        source, target = self.attention[1]
        logits = F.leaky_relu((table @ source)[where] + (centre @ target)[rows], 0.2)
        weights, own = softmax_within(logits, rows, F.leaky_relu(centre @ (source + target), 0.2))
        centre = F.elu(weighted_sum(where, table, offsets, weights) + own[:, None] * centre)
        return self.rho(self.norm(centre)).squeeze(1)


class _AttentionBlock(nn.Module):
    """Multi-head attention and a feed-forward network, each with a residual connection and LayerNorm (post-norm).

    `attention` holds the weights and defines what is computed. The methods exploit that tokens are rows of a table:
    `at` (admissions x longest) is the table row of each place, and `absent` marks the places that hold no token.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(*mlp(width, width), nn.Linear(width, width))

    def gather(self, points: Tensor, rows: Tensor, at: Tensor, absent: Tensor) -> Tensor:
        """Let the same few points attend to the tokens of each admission: admissions x points x width.

        The queries are the same for all admissions, so the products of queries and keys are one matrix applied to the
        table.
        """
        heads, width = self.attention.num_heads, points.shape[1]
        (query, key, value), (query_bias, key_bias, value_bias) = self._weights(width)
        queries = F.linear(points, query, query_bias).view(-1, heads, width // heads) / math.sqrt(width // heads)
        query_key = torch.einsum("phd,hdw->hpw", queries, key.view(heads, -1, width)).flatten(0, 1)
        bias = torch.einsum("phd,hd->hp", queries, key_bias.view(heads, -1)).flatten()
        logits = _look_up(F.linear(rows, query_key, bias), at).masked_fill(absent[:, :, None], -math.inf)
        weights = logits.softmax(1).unflatten(2, (heads, -1)).permute(0, 2, 3, 1)
        values = _look_up(F.linear(rows, value, value_bias), at).unflatten(2, (heads, -1))
        return self._finish(points, (weights @ values.transpose(1, 2)).transpose(1, 2).flatten(2))

    def spread(self, rows: Tensor, at: Tensor, place: Tensor, points: Tensor) -> Tensor:
        """Let each token, which stands at a `place`, attend to the points of its admission: tokens x width."""
        heads, width = self.attention.num_heads, rows.shape[1]
        (query, *weights), (query_bias, *biases) = self._weights(width)
        of_tokens = _look_up(F.linear(rows, query, query_bias) / math.sqrt(width // heads), at)
        of_points = F.linear(points, torch.cat(weights), torch.cat(biases)).split(width, 2)
        queries, keys, values = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (of_tokens, *of_points))
        read = ((queries @ keys.transpose(2, 3)).softmax(3) @ values).transpose(1, 2).flatten(2).flatten(0, 1)
        return self._finish(rows.index_select(0, at.flatten()[place]), read.index_select(0, place))

    def _weights(self, width: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the weights and biases of queries, keys and values."""
        return self.attention.in_proj_weight.split(width), self.attention.in_proj_bias.split(width)

    def _finish(self, queries: Tensor, read: Tensor) -> Tensor:
        hidden = self.norm1(queries + self.attention.out_proj(read))
        return self.norm2(hidden + self.feed(hidden))


def _look_up(rows: Tensor, at: Tensor) -> Tensor:
    return rows.index_select(0, at.flatten()).view(*at.shape, -1)


class SetTransformer(Encoder):
    """Two blocks of attention through 16 inducing points, then pooling by attention from one seed vector.

    Tokens attend to each other here, so for the attention alone, admissions are padded to the longest of the batch. An
    admission without codes has the score of a single UNK token, which is appended to every batch.
    """

    def __init__(self, vocabulary_size: int, *, width: int = 128, points: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=PAD)
        self.points = nn.Parameter(0.02 * torch.randn(2, points, width))
        self.gather = nn.ModuleList(_AttentionBlock(width, heads) for _ in range(2))
        self.spread = nn.ModuleList(_AttentionBlock(width, heads) for _ in range(2))
        self.seed = nn.Parameter(0.02 * torch.randn(1, width))
        self.pool = _AttentionBlock(width, heads)
        self.rho = nn.Sequential(nn.Linear(width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        ids, offsets = torch.cat([ids, ids.new_full((1,), UNK)]), torch.cat([offsets, offsets[-1:] + 1])
        counts, admission = offsets.diff(), rows_of(ids, offsets)
        longest = int(counts.max())
        place = torch.arange(len(ids), device=ids.device) + admission * longest - offsets[admission]
        # An admission without codes keeps one place, so that its softmax is defined; its result is not used.
        absent = torch.arange(longest, device=ids.device) >= counts.clamp(min=1)[:, None]

        hidden, row = lookup_distinct(self.embedding, ids)
        scores = self.read(hidden, row, place, absent)
        return torch.where(counts[:-1] > 0, scores[:-1], scores[-1])

    def read(self, hidden: Tensor, row: Tensor, place: Tensor, absent: Tensor) -> Tensor:
        """Return the score of each admission, padded to the longest.

        Args:
            hidden: the embeddings of distinct tokens.
            row: the row of `hidden` of each token.
            place: where each token stands among all places (admissions x longest, flattened).
            absent: admissions x longest, whether a place is empty.

        >>> where, absent = torch.tensor([0, 1]), torch.tensor([[False, False]])  # one admission of two codes
        >>> SetTransformer(10, width=8, heads=2).read(torch.zeros(3, 8), torch.tensor([1, 2]), where, absent).shape
        torch.Size([1])
        """

        def at(row: Tensor) -> Tensor:
            return row.new_zeros(absent.numel()).scatter(0, place, row).view(absent.shape)

        where, all_rows = at(row), at(torch.arange(len(row), device=row.device))
        blocks = cast(Iterable[tuple[_AttentionBlock, _AttentionBlock]], zip(self.gather, self.spread))
        for points, (gather, spread) in zip(self.points, blocks):
            hidden = spread.spread(hidden, where, place, gather.gather(points, hidden, where, absent))
            where = all_rows
        return self.rho(self.pool.gather(self.seed, hidden, where, absent)).flatten()


ENCODERS = {
    "deepsets": DeepSets,
    "bag_mlp": BagMLP,
    "attention_mil": AttentionMIL,
    "deep_cross": DeepCross,
    "star_gat": StarGAT,
    "set_transformer": SetTransformer,
}


def build(config: EncoderConfig, vocabulary_size: int, **options: Any) -> Encoder:
    """Return a new encoder whose weights are drawn from torch's current random state.

    Args:
        config: which encoder, and its width.
        vocabulary_size: the number of tokens.
        options: further options of that encoder.

    >>> build(EncoderConfig(width=4), 100).embedding
    Embedding(100, 4, padding_idx=0)
    """
    if config.name == "deepsets":
        options |= {"pooling": config.pooling, "phi_layers": config.phi_layers, "rho_layers": config.rho_layers}
    return ENCODERS[config.name](vocabulary_size, width=config.width, **options)


def tensors_on(device: torch.device, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return the ids and offsets of `tokens` as tensors on a `device`.

    >>> tensors_on(torch.device("cpu"), Tokens(np.array([7, 2]), np.array([0, 2])))
    (tensor([7, 2]), tensor([0, 2]))
    """
    ids, offsets = (torch.tensor(array, dtype=torch.int64) for array in (tokens.ids, tokens.offsets))
    return ids.to(device), offsets.to(device)


@torch.no_grad()
def predict(model: Encoder, tokens: Tokens, rows: slice | None = None) -> Tensor:
    """Return the scores of admissions, in order; for a model with several outputs, one row of them each.

    Args:
        model: an encoder.
        tokens: the tokens of the admissions.
        rows: a slice of the admissions; None: all.

    >>> predict(build(EncoderConfig(), 100), Tokens(np.array([7, 2]), np.array([0, 2, 2]))).shape
    torch.Size([2])
    """
    device, training, scores = next(model.parameters()).device, model.training, []
    first, last = (0, len(tokens)) if rows is None else (rows.start, rows.stop)
    model.eval()
    for start in range(first, max(last, first + 1), SCORING):  # at least one pass, even without admissions
        offsets = tokens.offsets[start : min(start + SCORING, last) + 1]
        some = Tokens(tokens.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
        scores.append(model(*tensors_on(device, some)))
    model.train(training)
    return torch.cat(scores)


def loaded(config: EncoderConfig, state: Mapping[str, Tensor]) -> Encoder:
    """Return an encoder with the given weights; torch's random state is unchanged.

    Args:
        config: which encoder.
        state: its weights, which are not copied; other arrays in it are ignored.

    >>> loaded(EncoderConfig(pooling="sum"), build(EncoderConfig(pooling="sum"), 100).state_dict()).poolings
    ['sum']
    """
    with RNG_LOCK, torch.random.fork_rng([]):  # the meta device would draw nothing, but it imports torch's compiler
        model = build(config, len(state["embedding.weight"]))
    model.load_state_dict({name: state[name] for name in model.state_dict()}, assign=True)
    return model


def shapes(config: EncoderConfig, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of an encoder's weights, without allocating them.

    Args:
        config: which encoder.
        vocabulary_size: the number of tokens.

    >>> shapes(EncoderConfig(), 100)["embedding.weight"]
    (100, 128)
    """
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(config, vocabulary_size).state_dict().items()}


def score(config: EncoderConfig, state: Mapping[str, np.ndarray], tokens: Tokens, *, device: str = "cpu") -> np.ndarray:
    """Return the scores of admissions by an encoder: float32, in order.

    Args:
        config: which encoder.
        state: its weights, as a fit returns them.
        tokens: the tokens of the admissions.
        device: cpu, cuda or cuda:N.

    >>> state = {name: weight.numpy() for name, weight in build(EncoderConfig(), 100).state_dict().items()}
    >>> score(EncoderConfig(), state, Tokens(np.array([7, 2]), np.array([0, 2, 2]))).shape
    (2,)
    """
    model = loaded(config, {name: torch.from_numpy(np.array(array)).to(device) for name, array in state.items()})
    return predict(model, tokens).cpu().numpy()
