"""A uniform sample of token positions, the same whatever the order or the split of the stream."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, sent


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Reservoir(Accumulator):
    """The `size` positions of a stream with the smallest hash of (seed, window, position), with
    what stood there.

    A bottom-k sketch: the sample is a function of the set of positions seen, not of their order or
    of the number of processes. Use: `chosen = reservoir.offer(windows, length)`, then
    `reservoir.put(chosen, columns)`. `keys` [k] are the hashes, ascending, `places` [k, 2] window
    and position of each, `columns` what stood there, by name, each [k, ...].
    """

    arguments = ("size", "seed")
    fields = ("keys", "places", "columns")

    def __init__(self, size: int, seed: int = 0):
        self.size = size
        self.seed = seed
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.places = torch.zeros(0, 2, dtype=torch.int64)
        self.columns: dict[str, Tensor] = {}
        self._room: dict[
            str, Tensor
        ] = {}  # what the columns stay in: memory that moves leaves holes behind

    def __len__(self) -> int:
        return len(self.keys)

    def offer(self, windows: list[int], length: int) -> "Chosen":
        """Of the positions [0, length) of these windows, those that would enter now."""
        seed = _mix(np.array([self.seed + 1], dtype=np.uint64))
        with np.errstate(over="ignore"):
            window_keys = _mix(
                np.asarray(windows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed
            )
            grid = window_keys[:, None] + np.arange(length, dtype=np.uint64) * np.uint64(
                0xD1B54A32D192ED03
            )
            keys = (_mix(grid) >> np.uint64(1)).astype(np.int64)  # [windows, length], non-negative
        full = len(self) == self.size
        bound = int(self.keys[-1]) if full and self.size else np.iinfo(np.int64).max
        flat = np.flatnonzero(keys < bound)
        flat = flat[np.argsort(keys.ravel()[flat], kind="stable")][: self.size]
        rows, positions = np.divmod(flat, length)
        places = [
            (windows[row], int(position)) for row, position in zip(rows, positions, strict=True)
        ]
        return Chosen(keys.ravel()[flat], rows, positions, places)

    def put(self, chosen: "Chosen", columns: dict[str, Tensor]) -> None:
        """Enter the chosen positions with their columns, each of shape [len(chosen), ...]."""
        entering = Reservoir(self.size, self.seed)
        entering.keys = torch.from_numpy(chosen.keys)
        entering.places = torch.tensor(chosen.places, dtype=torch.int64).reshape(-1, 2)
        entering.columns = {name: column.detach().cpu() for name, column in columns.items()}
        self.merge(entering)

    def merge(self, other: "Reservoir") -> None:
        if len(other) == 0:
            return
        if not self.columns:
            self.columns = {name: column[:0] for name, column in other.columns.items()}
        both = torch.cat([self.keys, other.keys])
        order = torch.argsort(both, stable=True)[: self.size]
        self.keys, self.places = both[order], torch.cat([self.places, other.places])[order]
        for name, column in other.columns.items():
            room = self._room.setdefault(name, column.new_empty(self.size, *column.shape[1:]))
            self.columns[name] = room[: len(order)].copy_(
                torch.cat([self.columns[name], column])[order]
            )


class Chosen:
    """Positions that enter a reservoir: hash, row of the batch, position, and (window, position) of
    each.
    """

    def __init__(
        self,
        keys: np.ndarray,
        rows: np.ndarray,
        positions: np.ndarray,
        places: list[tuple[int, int]],
    ):
        self.keys = keys
        self.rows = rows
        self.positions = positions
        self.places = places
        self._sent: dict[tuple[torch.device, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, states: Tensor) -> Tensor:
        """The chosen vectors out of a batch [B, T, ...]."""
        if (at := (states.device, states.shape[1])) not in self._sent:  # once for all sites
            self._sent[at] = sent(
                torch.from_numpy(self.rows * states.shape[1] + self.positions), states.device
            )
        return states.flatten(0, 1)[self._sent[at]]


# ---- Sink tokens: few tokens whose vectors are many times longer than all others', and that speak for themselves alone.
#
# Attention that is not needed anywhere goes to them; in large models they carry nearly all of a
# block's energy (massive activations, Sun et al. 2024, arXiv:2402.17762). So every statistic is
# kept apart for them and for the other tokens.

FACTOR = 3.0
"""A token is a sink where its vector is longer than so many times the median of its window at that
site.

Measured: of Qwen2.5-Coder-1.5B the first token has 3.2 to 270 medians at blocks 1 to 27, all others
at most 1.9; of models without sinks (all-mpnet-base-v2, the embedded ones) no token has more than
2.2.
"""

CELLS = ("ordinary", "first", "sink", "first_sink")
"""The disjoint sets of tokens that sums are kept of: `first` is position 0 of a window."""

GROUPS = {"all": (0, 1, 2, 3), "without_first": (0, 2), "without_sinks": (0, 1)}
"""The sets that measures are taken of, as unions of cells: nothing is ever taken away from a sum.
"""


def lengths(states: Tensor) -> Tensor:
    """The lengths [B, T] of states [B, T, d], in float32 at least."""
    found: Tensor = torch.linalg.vector_norm(
        states, dim=-1, dtype=torch.promote_types(states.dtype, torch.float32)
    )
    return found


def sinks(states: Tensor, norms: Tensor | None = None) -> Tensor:
    """Which tokens are sinks, bool [B, T], of the states [B, T, d] of whole windows; `norms`: their
    `lengths`, if known.

    Of an even number of tokens the median is the lower one.

    >>> sinks(torch.tensor([[[9.0], [1.0], [1.0], [-7.0], [2.0]], [[1.0], [1.0], [1.0], [1.0], [1.0]]]))[0].tolist()
    [True, False, False, True, False]
    """
    norms = lengths(states) if norms is None else norms
    median = norms.median(dim=1, keepdim=True).values
    return (norms > FACTOR * median) & (median > 0)


class Occurrences(Accumulator):
    """How often each number occurred; memory grows with the different ones."""

    fields = ("values", "counts")

    def __init__(self) -> None:
        self.values = torch.zeros(0, dtype=torch.int64)
        self.counts = torch.zeros(0, dtype=torch.int64)

    def update(self, values: Tensor) -> None:
        """Add numbers, int64 [n]."""
        if len(values):
            self._add(values.cpu(), torch.ones(len(values), dtype=torch.int64))

    def merge(self, other: "Occurrences") -> None:
        self._add(other.values, other.counts)

    def _add(self, values: Tensor, counts: Tensor) -> None:
        self.values, place = torch.cat([self.values, values]).unique(return_inverse=True)
        self.counts = torch.zeros_like(self.values).index_add_(
            0, place, torch.cat([self.counts, counts])
        )

    def most(self, limit: int = 10) -> list[tuple[int, int]]:
        """The most frequent numbers with their counts; of equal ones the smaller number first."""
        order = torch.argsort(self.counts, descending=True, stable=True)[:limit]
        return list(zip(self.values[order].tolist(), self.counts[order].tolist(), strict=True))
