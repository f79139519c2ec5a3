"""A uniform sample of token positions, the same whatever the order or the split of the stream."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["Chosen", "Reservoir"]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijective scrambling of 64-bit integers (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Reservoir(Accumulator):
    """The `size` positions of a stream with the smallest hash of (seed, window, position), with what stood there.

    A bottom-k sketch: merging two reservoirs keeps the smallest of both, so the sample is a function of the set of
    positions seen, not of their order or of the number of processes. Columns (tokens' neighbours, vectors of a site)
    are given by name; a row is stored once, when its position enters.

    Use: `chosen = reservoir.offer(windows, length)`, then `reservoir.put(chosen, columns)`.

    >>> r = Reservoir(2, seed=0)
    >>> chosen = r.offer([0, 1], 3)
    >>> r.put(chosen, {"x": torch.stack([torch.tensor([10.0 * w + p]) for w, p in chosen.places])})
    >>> len(r), r.columns["x"].shape
    (2, torch.Size([2, 1]))
    """

    def __init__(self, size: int, seed: int = 0):
        self.size, self.seed = size, seed
        self._keys = torch.zeros(0, dtype=torch.int64)
        self._places = torch.zeros(0, 2, dtype=torch.int64)
        self._columns: dict[str, Tensor] = {}
        self._sorted = True  # rows by ascending key

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Tensor:
        """The hashes, ascending [k]."""
        self._sort()
        return self._keys

    @property
    def places(self) -> Tensor:
        """Window and position of each row [k, 2]."""
        self._sort()
        return self._places

    @property
    def columns(self) -> dict[str, Tensor]:
        """What stood there, by name, each [k, ...]."""
        self._sort()
        return self._columns

    def offer(self, windows: list[int], length: int) -> Chosen:
        """Of the positions [0, length) of these windows, those that would enter now."""
        seed = _mix(np.array([self.seed + 1], dtype=np.uint64))
        with np.errstate(over="ignore"):
            window_keys = _mix(np.asarray(windows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed)
            grid = window_keys[:, None] + np.arange(length, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
            keys = (_mix(grid) >> np.uint64(1)).astype(np.int64)  # [windows, length], non-negative
        full = len(self) == self.size
        bound = int(self._keys.max()) if full and self.size else np.iinfo(np.int64).max
        flat = np.flatnonzero(keys < bound)
        flat = flat[np.argsort(keys.ravel()[flat], kind="stable")][: self.size]
        rows, positions = np.divmod(flat, length)
        places = [(windows[row], int(position)) for row, position in zip(rows, positions, strict=True)]
        return Chosen(keys.ravel()[flat], rows, positions, places)

    def put(self, chosen: Chosen, columns: dict[str, Tensor]) -> None:
        """Enter the chosen positions with their columns, each of shape [len(chosen), ...]."""
        entering = Reservoir(self.size, self.seed)
        entering._keys = torch.from_numpy(chosen.keys)
        entering._places = torch.tensor(chosen.places, dtype=torch.int64).reshape(-1, 2)
        entering._columns = {name: column.detach().cpu() for name, column in columns.items()}
        self.merge(entering)

    def merge(self, other: Reservoir) -> None:
        """Keep the smallest keys of both."""
        if len(other) == 0:
            return
        if not self._columns:
            self._columns = {name: column[:0] for name, column in other._columns.items()}
        both = torch.cat([self._keys, other._keys])
        order = torch.argsort(both, stable=True)[: self.size]
        mine, entering = order[order < len(self._keys)], order[order >= len(self._keys)] - len(self._keys)
        if len(self._keys) < self.size:  # still filling: grow to what is kept
            self._keys, places = both[order], torch.cat([self._places, other._places])
            self._places = places[order]
            for name, column in other._columns.items():
                self._columns[name] = torch.cat([self._columns[name], column])[order]
            return
        # Full: the rows that leave give their room to those that enter; a batch then costs what enters, not the sample.
        leaving = torch.ones(self.size, dtype=torch.bool)
        leaving[mine] = False
        room = leaving.nonzero().flatten()
        self._keys[room], self._places[room] = other._keys[entering], other._places[entering]
        for name, column in other._columns.items():
            self._columns[name][room] = column[entering]
        self._sorted = False

    def _sort(self) -> None:
        if self._sorted:
            return
        order = torch.argsort(self._keys)
        self._keys, self._places = self._keys[order], self._places[order]
        self._columns = {name: column[order] for name, column in self._columns.items()}
        self._sorted = True

    def state(self) -> dict[str, Tensor]:
        """Tensors `shape`, `keys`, `places` and `column.NAME`."""
        self._sort()
        columns = {f"column.{name}": column.contiguous() for name, column in self._columns.items()}
        return {"shape": torch.tensor([self.size, self.seed]), "keys": self._keys, "places": self._places, **columns}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls(*state["shape"].tolist())
        new._keys, new._places = state["keys"].clone(), state["places"].clone()
        new._columns = {n.removeprefix("column."): t.clone() for n, t in state.items() if n.startswith("column.")}
        return new


class Chosen:
    """Positions that enter a reservoir: hash, row of the batch, position, and (window, position) of each."""

    def __init__(self, keys: np.ndarray, rows: np.ndarray, positions: np.ndarray, places: list[tuple[int, int]]):
        self.keys, self.rows, self.positions, self.places = keys, rows, positions, places

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, states: Tensor) -> Tensor:
        """The chosen vectors out of a batch [B, T, ...]."""
        device = states.device
        return states[torch.from_numpy(self.rows).to(device), torch.from_numpy(self.positions).to(device)]
