"""Lay out the minibatches of many steps on the device: which tokens each step has, and where.

A recorded CUDA graph needs tensors of fixed shapes. Here all tokens of a step lie end to end, and only the end of the
step is filled, so admissions need no padding.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.fitting._data import Split
from mlci.tokens import PAD

GRAIN = 64  # buffer sizes are multiples of this, like the tiles of a GPU's matrix products
ROOM = 1.02  # buffers exceed the needs of the first epoch by this factor, so that later epochs rarely outgrow them


def room_for(needed: int, room: int) -> int:
    """Return the current buffer size if it suffices, else a larger one; at least one grain, even without any codes."""
    return room if room and needed <= room else (int(needed * ROOM) // GRAIN + 1) * GRAIN


@dataclass(frozen=True)
class Resident:
    """A split on the device, followed by an empty admission, which fills up the last batch."""

    ids: Tensor  # int32, flat
    starts: Tensor  # int64, of each admission
    counts: Tensor  # int64
    outcomes: Tensor  # float32, NaN where not known

    @classmethod
    def of(cls, split: Split, device: torch.device) -> "Resident":
        offsets = torch.from_numpy(split.tokens.offsets).to(device)
        return cls(
            ids=torch.from_numpy(split.tokens.ids).to(device),
            starts=offsets,
            counts=F.pad(offsets.diff(), (0, 1)),
            outcomes=F.pad(torch.from_numpy(split.outcomes).to(device), (0, 0, 0, 1), value=float("nan")),
        )

    def __len__(self) -> int:
        return len(self.counts) - 1


@dataclass(frozen=True)
class EpochSteps:
    """Some steps of an epoch, each of fits x batch admissions whose tokens lie end to end."""

    tokens: Tensor  # steps x fits x distinct: the distinct tokens of each fit's batch, then padding
    where: Tensor  # steps x places: for each token, its row in the table of the distinct tokens of all fits
    offsets: Tensor  # steps x (fits * batch + 1): where each admission begins among the places
    labels: tuple[Tensor, ...]  # steps x fits x ...: outcomes, as the objective prepared them

    @classmethod
    def of(
        cls,
        data: Resident,
        orders: Tensor,
        batch: int,
        vocabulary: int,
        labels: Callable[[Tensor], tuple[Tensor, ...]],
        room: tuple[int, int] = (0, 0),
    ) -> "EpochSteps":
        """Lay out admissions in the order `orders` (fits x admissions).

        `room` is the current size of the buffers: distinct tokens of a batch, places of a step.
        """
        fits, rows = orders.shape
        steps = -(-rows // batch)
        orders = F.pad(orders, (0, steps * batch - rows), value=len(data)).view(fits, steps, batch).transpose(0, 1)
        counts = data.counts[orders].reshape(steps, -1)
        offsets = F.pad(counts.cumsum(1), (1, 0))
        places = room_for(int(offsets[:, -1].max()), room[1])
        # For every token of the epoch: its admission (bag), its place in the step, and its id.
        bag = torch.repeat_interleave(counts.view(-1))
        step, within = bag // counts.shape[1], bag % counts.shape[1]
        begin = F.pad(counts.view(-1).cumsum(0), (1, 0))[:-1]
        rank = torch.arange(len(bag), device=bag.device) - begin[bag]
        ids = data.ids[data.starts[orders].reshape(-1)[bag] + rank]
        place = step * places + offsets[:, :-1].reshape(-1)[bag] + rank
        # Number the distinct tokens of each fit's batch, and find each token's number.
        table = step * fits + within // batch
        present = torch.zeros(steps * fits, vocabulary, dtype=torch.bool, device=ids.device)
        present[table, ids.long()] = True
        number = present.cumsum(1, dtype=torch.int32)
        distinct = room_for(int(number[:, -1].max()), room[0])
        tokens = torch.full((steps * fits, distinct), PAD, dtype=torch.int32, device=ids.device)
        row, token = present.nonzero(as_tuple=True)
        tokens[row, number[row, token].long() - 1] = token.int()
        where = torch.zeros(steps * places, dtype=torch.int64, device=ids.device)
        where[place] = (table % fits) * distinct + number[table, ids.long()] - 1
        shift = torch.arange(fits, device=ids.device)[:, None] * vocabulary
        return cls(
            tokens=tokens.view(steps, fits, distinct).long() + shift,
            where=where.view(steps, places),
            offsets=offsets,
            labels=labels(data.outcomes[orders]),
        )

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.tokens, self.where, self.offsets, *self.labels)

    @property
    def room(self) -> tuple[int, int]:
        return self.tokens.shape[2], self.where.shape[1]


def with_tokens_dropped(data: Resident, rows: Tensor, kept: Tensor) -> Resident:
    """Return the admissions `rows`, one after the other, with those of their tokens that are `kept` (token dropout)."""
    counts = data.counts[rows]
    ends = F.pad(counts.cumsum(0), (1, 0))
    places = torch.arange(len(kept), device=rows.device) + (data.starts[rows] - ends[:-1]).repeat_interleave(counts)
    starts = F.pad(kept.cumsum(0), (1, 0))[ends]
    outcomes = data.outcomes[F.pad(rows, (0, 1), value=len(data))]
    return Resident(data.ids[places[kept]], starts, F.pad(starts.diff(), (0, 1)), outcomes)
