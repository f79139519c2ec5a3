"""Sums by name, kept by blocks of windows: what most measures beyond a cloud need, and enough for
an interval.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from headscan.statistics.accumulator import Accumulator, Blocks


class SiteBatch:
    """States [B, T, width] of the B windows with these global numbers at one site, with the ids [B,
    T] that stood there.

    `documents` [B, T]: the numbers of the tokens' documents, where known. `skip_first` positions of
    each window are left out of everything here. A position without a successor in its window has
    the next id −1.
    """

    def __init__(
        self,
        site: str,
        states: Tensor,
        ids: Tensor,
        windows: list[int],
        *,
        skip_first: int = 0,
        documents: Tensor | None = None,
    ):
        self.site = site
        self.windows = windows
        self.skip_first = skip_first
        self._states = states
        self._ids = ids
        self._documents = documents

    @property
    def states(self) -> Tensor:
        """The states as the model gave them, live [B, T, width]."""
        return self._states.detach()[:, self.skip_first :]

    @property
    def documents(self) -> Tensor | None:
        """The numbers of the tokens' documents [B, T]."""
        return None if self._documents is None else self._documents[:, self.skip_first :]

    @cached_property
    def rows(self) -> Tensor:
        return self.counted.to(dtype=torch.float64)

    @property
    def counted(self) -> Tensor:
        """The states where float64 can be had [B, T, width]: a step that takes few of them at a
        time needs no `rows`.
        """
        return self.states.cpu() if self._states.device.type == "mps" else self.states

    @cached_property
    def norms(self) -> Tensor:
        """Their lengths [B, T], float64."""
        lengths: Tensor = torch.linalg.vector_norm(self.counted, dim=-1, dtype=torch.float64)
        return lengths

    @cached_property
    def unit(self) -> Tensor:
        """The states divided by their lengths [B, T, width]; zero where the length is zero."""
        return self.rows * torch.where(self.norms > 0, 1 / self.norms, 0.0)[..., None]

    @cached_property
    def unit_sum(self) -> Tensor:
        """The sum of each window's directions [B, width]."""
        return self.unit.sum(1)

    @property
    def lead(self) -> int:
        """How many positions of `rows` are to be left out where position 0 is: 1, or 0 where it is
        skipped already.
        """
        return 1 if self.skip_first == 0 else 0

    @cached_property
    def ids(self) -> Tensor:
        """Token ids [B, T]."""
        device = self._states.device
        return self._ids[:, self.skip_first :].to("cpu" if device.type == "mps" else device)

    @cached_property
    def next_ids(self) -> Tensor:
        """The ids of the tokens that follow [B, T], −1 at the end of a window."""
        return torch.nn.functional.pad(self.ids[:, 1:], (0, 1), value=-1)


BLOCKS = 16
REST = "_rest"
"""What the name of a sum ends in that leaves position 0 of each window out."""


class Tally(Accumulator):
    """Named float64 sums of any shape; they merge by addition, and a part can be taken away again."""

    fields = ("sums",)

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        device: torch.device | str = "cpu",
    ):
        self.sums = {
            name: torch.zeros(shape, dtype=torch.float64, device=device)
            for name, shape in shapes.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.sums[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.sums[name] = value

    def merge(self, other: "Tally") -> None:
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value.to(self.sums[name].device)

    def without(self, part: "Tally") -> "Tally":
        """This tally less a part of it."""
        new = Tally()
        new.sums = {name: value - part.sums[name] for name, value in self.sums.items()}
        return new

    def view(self, suffix: str) -> "Tally":
        """The sums whose names end in `suffix`, under their names without it; the same tensors."""
        new = Tally()
        new.sums = {
            name.removesuffix(suffix): value
            for name, value in self.sums.items()
            if name.endswith(suffix)
        }
        return new


class BlockedTally(Accumulator):
    """A tally for each of at most 16 blocks of consecutive windows.

    A subclass gives `shapes(width)` and `measure(batch)`: the sums of each of the batch's windows,
    each [B, ...]. Sums whose name ends in `_rest` leave position 0 of each window out;
    `Tally.view("_rest")` shows those alone.
    """

    arguments = ("width",)
    fields = ("blocks",)

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.device = torch.device(device)
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, self._zero)

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the sums."""
        raise NotImplementedError

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """What each window of a batch adds to every sum, [B, ...]."""
        raise NotImplementedError

    def _zero(self) -> Tally:
        return Tally(self.shapes(self.width), self.device)

    def update(self, batch: SiteBatch) -> None:
        found = self.measure(batch)
        for part, members in self.blocks.runs(batch.windows):
            for name, value in found.items():
                part[name] += value.sum(0) if len(members) == len(value) else value[members].sum(0)

    def parts(self) -> list[Tally]:
        return self.blocks.parts()

    def total(self) -> Tally:
        return self.blocks.total()


class DirectionTally(BlockedTally):
    """Σû and Σû² of each dimension, and how many directions there were: all that rogue dimensions
    need.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """`tokens` (of a norm other than zero), `unit` and `square` [width]; the same of the rest."""
        return _both({"tokens": (), "unit": (width,), "square": (width,)})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        tokens = (batch.norms > 0).double()
        square = batch.unit.square().sum(1)
        first = batch.unit[:, : batch.lead]
        return {
            "tokens": tokens.sum(1),
            "unit": batch.unit_sum,
            "square": square,
            "tokens_rest": tokens[:, batch.lead :].sum(1),
            "unit_rest": batch.unit_sum - first.sum(1),
            "square_rest": square - first.square().sum(1),
        }


class ContextTally(BlockedTally):
    """The sums that split the average cosine into pairs within one window and pairs of two windows.

    For a window w with n_w directions that sum to s_w: `windows` 1, `tokens` n_w, `square_tokens`
    n_w², `unit` s_w, `own` ‖s_w‖², and `intra`, the mean cosine of its vectors to their own
    (uncentred) mean.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return _both(
            {
                "windows": (),
                "tokens": (),
                "square_tokens": (),
                "unit": (width,),
                "own": (),
                "intra": (),
            }
        )

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        tokens = (batch.norms > 0).double()
        unit = batch.unit_sum
        total = batch.rows.sum(1)
        lead = slice(0, batch.lead)
        rest = (
            tokens[:, batch.lead :].sum(1),
            unit - batch.unit[:, lead].sum(1),
            total - batch.rows[:, lead].sum(1),
        )
        return _windows(tokens.sum(1), unit, total) | {
            name + REST: value for name, value in _windows(*rest).items()
        }


class FollowTally(BlockedTally):
    """The cosine of a state to the embedding of the next token: `pairs`, `cosine`, and the sums of
    both directions, `unit` and `next`, from which the mean over mismatched pairs follows.

    `table` [V, width], rows of length 1, is the embedding table. It is no part of the state: a
    restored tally can merge and finish, but needs its table again before it sees more.
    """

    table: Tensor | None = None

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return _both({"pairs": (), "cosine": (), "unit": (width,), "next": (width,)})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        assert self.table is not None
        targets = self.table[batch.next_ids.clamp(min=0)]
        known = (batch.next_ids >= 0) & (batch.norms > 0)
        products = torch.linalg.vecdot(batch.unit.to(targets.dtype), targets).double()
        cosine = torch.where(known, products, 0.0)
        pairs = known.double()
        # One product gives the sums of the directions that have a successor, with and without
        # position 0.
        weights = torch.stack(
            [pairs, torch.nn.functional.pad(pairs[:, batch.lead :], (batch.lead, 0))], dim=1
        )
        units = torch.bmm(weights, batch.unit)
        nexts = torch.bmm(weights.to(targets.dtype), targets).double()
        return {
            "pairs": pairs.sum(1),
            "cosine": cosine.sum(1),
            "unit": units[:, 0],
            "next": nexts[:, 0],
            "pairs_rest": pairs[:, batch.lead :].sum(1),
            "cosine_rest": cosine[:, batch.lead :].sum(1),
            "unit_rest": units[:, 1],
            "next_rest": nexts[:, 1],
        }


def _both(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return shapes | {name + REST: shape for name, shape in shapes.items()}


def _windows(tokens: Tensor, unit: Tensor, total: Tensor) -> dict[str, Tensor]:
    """The sums of `ContextTally` from the number of directions [B], their sums and the sums of the
    vectors [B, width].
    """
    length = torch.linalg.vector_norm(total, dim=-1) * tokens
    return {
        "windows": (length > 0).double(),
        "tokens": tokens,
        "square_tokens": tokens.square(),
        "unit": unit,
        "own": unit.square().sum(-1),
        "intra": torch.where(length > 0, (total * unit).sum(-1) / length, 0.0),
    }


class FirstWindows(Accumulator):
    """Ids of the windows with the smallest numbers, at most `tokens` tokens of them; merging keeps
    the smallest of both.

    Shorter windows end with −1; `alike` are those of the commonest length, without.
    """

    arguments = ("tokens",)
    fields = ("numbers", "ids")

    def __init__(self, tokens: int = 2**19):
        self.tokens = tokens
        self.numbers = torch.zeros(0, dtype=torch.int64)
        self.ids = torch.zeros(0, 0, dtype=torch.int64)

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        longest = max(ids.shape[1], self.ids.shape[1])
        limit = self.tokens // longest
        if len(self.numbers) >= limit and min(windows) > int(self.numbers[-1]):
            return
        mine, ids = (
            pad(rows.cpu(), (0, longest - rows.shape[1]), value=-1) for rows in (self.ids, ids)
        )
        numbers = torch.cat([self.numbers, torch.tensor(windows)])
        order = torch.argsort(numbers)[:limit]
        self.numbers = numbers[order]
        self.ids = torch.cat([mine, ids])[order]

    @property
    def alike(self) -> Tensor:
        lengths = (self.ids >= 0).sum(1)
        many, where = torch.unique(lengths, return_counts=True)
        most = int(many[where.argmax()]) if len(many) else 0
        return self.ids[lengths == most, :most]

    def merge(self, other: "FirstWindows") -> None:
        if len(other.numbers):
            self.update(other.ids, other.numbers.tolist())


# ---- How often each token id stood in the text.

COUNT_BLOCKS = 8


class TokenCounts(Accumulator):
    """How often each token id was seen; int64 [vocabulary]."""

    arguments = ("vocabulary",)
    fields = ("counts",)

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)

    def update(self, ids: Tensor) -> None:
        """Count token ids of any shape, each in [0, vocabulary)."""
        self.counts += torch.bincount(ids.reshape(-1).cpu(), minlength=len(self.counts))


class BlockedCounts(Accumulator):
    """`TokenCounts` of each of at most 8 blocks of consecutive windows, so that what counts say can
    have an interval.
    """

    arguments = ("vocabulary",)
    fields = ("blocks",)

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.blocks: Blocks[TokenCounts] = Blocks(COUNT_BLOCKS, partial(TokenCounts, vocabulary))

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        for part, members in self.blocks.runs(windows):
            part.update(ids[members])

    def parts(self) -> list[Tensor]:
        """The counts [vocabulary] of the occupied blocks, in the order of the stream."""
        return [part.counts for part in self.blocks.parts()]


# ---- Sums of unit states by parts: what the length of their mean is made of.

# tokens at a time on a CPU: in float64 they stay in the cache, and no memory is asked for anew
NEAR = 512


class PartSums(Accumulator):
    """Σx/‖x‖ of one site, cut by cells, by documents, and by what the states are sums of; exact,
    float64.

    Each of at most 16 blocks of consecutive windows is a `Tally` of `cells` [cells, d] (disjoint
    sets of tokens), their `tokens` [cells], `sources` [sources, d] (each term of the states,
    divided by their norm) and `constants` [constants] (sums of the weights of vectors that are the
    same for all tokens). `documents`: at most 16 groups of consecutive documents, each with `unit`
    [d] and `tokens`. Memory 8·16·(cells + sources + 1)·d bytes.
    """

    arguments = ("width", "cells", "sources", "constants")
    fields = ("blocks", "documents")

    def __init__(
        self,
        width: int,
        *,
        cells: int,
        sources: int = 0,
        constants: int = 0,
        device: torch.device | str = "cpu",
    ):
        self.width = width
        self.cells = cells
        self.sources = sources
        self.constants = constants
        self.device = torch.device(device)
        shapes = {
            "cells": (cells, width),
            "tokens": (cells,),
            "sources": (sources, width),
            "constants": (constants,),
        }
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, partial(Tally, shapes, self.device))
        self.documents: Blocks[Tally] = Blocks(
            BLOCKS, partial(Tally, {"unit": (width,), "tokens": ()}, self.device)
        )

    def update(self, batch: SiteBatch, cells: Tensor) -> None:
        """Add a batch [B, T, d], each token to its cell, int64 [B, T]."""
        states = batch.counted
        scale = torch.where(batch.norms > 0, 1 / batch.norms, 0.0).flatten()
        documents = torch.zeros_like(batch.ids) if batch.documents is None else batch.documents
        numbers, place = (one.to(states.device) for one in documents.unique(return_inverse=True))
        place = place.flatten()
        chosen = cells.to(states.device).flatten()
        groups = scale.new_zeros(len(numbers), self.width)
        length = states.shape[1]
        flat = states.flatten(0, 1)
        near = NEAR if states.device.type == "cpu" else len(flat)
        for tally, rows in self.runs(batch.windows):
            whole = torch.zeros_like(tally["cells"])
            for start in range(rows.start * length, rows.stop * length, near):
                part = slice(start, min(start + near, rows.stop * length))
                unit = flat[part].double() * scale[part, None]
                whole.index_add_(0, chosen[part], unit)
                if len(numbers) > 1:
                    groups.index_add_(0, place[part], unit)
            tally["cells"] += whole
            tally["tokens"] += torch.bincount(
                chosen[rows.start * length : rows.stop * length], minlength=self.cells
            )
            if len(numbers) == 1:
                groups += whole.sum(0)
        if batch.documents is not None:
            self.documents.index(int(numbers[-1]))
            for number, one, count in zip(
                numbers.tolist(), groups, torch.bincount(place), strict=True
            ):
                tally = self.documents[number]
                tally["unit"] += one
                tally["tokens"] += count

    def runs(self, windows: list[int]) -> Iterator[tuple[Tally, slice]]:
        """The rows of a batch of consecutive windows that belong to one block, and its tally."""
        for tally, members in self.blocks.runs(windows):
            yield tally, slice(members[0], members[-1] + 1)
