"""Sums by name, by blocks of windows: most measures beyond a cloud are functions of such sums, and
the blocks give the interval.
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from headscan.statistics.accumulator import Accumulator, device_of, prefixed, unprefixed
from headscan.statistics.blocks import Blocks

BLOCKS = 16

REST = "_rest"
"""The end of the name of a sum that leaves position 0 of each window out."""


class SiteBatch:
    """States [B, T, width] of the B windows with these global numbers at one site, with the token
    ids [B, T].

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
        """The states in float64 [B, T, width]."""
        return self.counted.to(dtype=torch.float64)

    @property
    def counted(self) -> Tensor:
        """The states on a device that has float64 [B, T, width].

        A step that converts a few of them at a time needs no `rows`.
        """
        return self.states.cpu() if self._states.device.type == "mps" else self.states

    @cached_property
    def norms(self) -> Tensor:
        """The lengths of the states [B, T], float64."""
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
        """The number of positions to leave out for sums without position 0: 1, or 0 where position
        0 is skipped already.
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
        return pad(self.ids[:, 1:], (0, 1), value=-1)


class Tally(Accumulator):
    """Named float64 sums of any shape; they merge by addition, and a part can be subtracted."""

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
        """Return this tally less a part of it."""
        difference = Tally()
        difference.sums = {name: value - part.sums[name] for name, value in self.sums.items()}
        return difference

    def view(self, suffix: str) -> "Tally":
        """Return the sums whose names end in `suffix`, under their names without it.

        They are the same tensors.
        """
        view = Tally()
        for name, value in self.sums.items():
            if name.endswith(suffix):
                view.sums[name.removesuffix(suffix)] = value
        return view

    def state(self) -> dict[str, Tensor]:
        return {f"sums.{name}": value for name, value in self.sums.items()}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        tally = cls()
        tally.sums = {name.removeprefix("sums."): value.clone() for name, value in state.items()}
        return tally


class BlockedTally(Accumulator):
    """A tally for each of at most 16 blocks of consecutive windows.

    A subclass gives `shapes(width)` and `measure(batch)`: the sums of each of the batch's windows,
    each [B, ...]. Sums whose name ends in `_rest` leave position 0 of each window out;
    `Tally.view("_rest")` shows those alone.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.device = torch.device(device)
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, self._zero)

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the sums."""
        raise NotImplementedError

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """Return what each window of a batch adds to every sum, [B, ...]."""
        raise NotImplementedError

    def _zero(self) -> Tally:
        return Tally(self.shapes(self.width), self.device)

    def update(self, batch: SiteBatch) -> None:
        """Add a batch of windows."""
        values = self.measure(batch)
        for tally, rows in self.blocks.runs(batch.windows):
            for name, value in values.items():
                whole_batch = len(rows) == len(value)
                tally[name] += value.sum(0) if whole_batch else value[rows].sum(0)

    def parts(self) -> list[Tally]:
        """Return the tallies of the occupied blocks, in the order of the stream."""
        return self.blocks.parts()

    def total(self) -> Tally:
        """Return the tally of all windows."""
        return self.blocks.total()

    def merge(self, other: Self) -> None:
        self.blocks.merge(other.blocks)

    def state(self) -> dict[str, Tensor]:
        return {"width": torch.tensor(self.width)} | prefixed("blocks", self.blocks.state())

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        tally = cls(int(state["width"]), device_of(state))
        tally.blocks = tally.blocks.restored(unprefixed("blocks", state))
        return tally


class DirectionTally(BlockedTally):
    """Σû and Σû² of each dimension, and the number of directions: rogue dimensions follow from
    them.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Return those of `tokens` (of a norm other than zero), `unit` and `square` [width], and of
        the same without position 0.
        """
        return _with_rest({"tokens": (), "unit": (width,), "square": (width,)})

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
        return _with_rest(
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
        sums = _context_sums(tokens.sum(1), unit, total)

        lead = batch.lead
        sums_without_first = _context_sums(
            tokens[:, lead:].sum(1),
            unit - batch.unit[:, :lead].sum(1),
            total - batch.rows[:, :lead].sum(1),
        )
        return sums | {name + REST: value for name, value in sums_without_first.items()}


class FollowTally(BlockedTally):
    """The cosine of a state to the embedding of the next token: `pairs`, `cosine`, and the sums of
    both directions, `unit` and `next`, from which the mean over mismatched pairs follows.

    `table` [V, width], rows of length 1, is the embedding table. It is no part of the state: a
    restored tally can merge and finish, but needs its table again before it reads more.
    """

    table: Tensor | None = None

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return _with_rest({"pairs": (), "cosine": (), "unit": (width,), "next": (width,)})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        assert self.table is not None
        targets = self.table[batch.next_ids.clamp(min=0)]
        known = (batch.next_ids >= 0) & (batch.norms > 0)
        products = torch.linalg.vecdot(batch.unit.to(targets.dtype), targets).double()
        cosine = torch.where(known, products, 0.0)
        pairs = known.double()

        # One product gives the sums of the directions that have a successor, with and without
        # position 0.
        pairs_without_first = pad(pairs[:, batch.lead :], (batch.lead, 0))
        weights = torch.stack([pairs, pairs_without_first], dim=1)
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


def _with_rest(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes, and the same for the sums without position 0."""
    return shapes | {name + REST: shape for name, shape in shapes.items()}


def _context_sums(tokens: Tensor, unit: Tensor, total: Tensor) -> dict[str, Tensor]:
    """Return the sums of `ContextTally` of each window.

    `tokens` [B] are the numbers of directions, `unit` [B, width] their sums, and `total` [B, width]
    the sums of the vectors.
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
