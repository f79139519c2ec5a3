"""A uniform sample of token positions, the same whatever the order or the split of the stream."""

from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator
from headscan.statistics.transfer import sent

Hashes = npt.NDArray[np.uint64]


def _mix(x: Hashes) -> Hashes:
    """Return the finaliser of splitmix64: a bijection of 64 bits that leaves no pattern."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _position_keys(seed: int, windows: list[int], length: int) -> npt.NDArray[np.int64]:
    """Return the hashes of (seed, window, position) [windows, length], not negative."""
    seed_key = _mix(np.array([seed + 1], dtype=np.uint64))
    with np.errstate(over="ignore"):
        numbers = np.asarray(windows, dtype=np.uint64)
        window_keys = _mix(numbers * np.uint64(0x9E3779B97F4A7C15) + seed_key)
        positions = np.arange(length, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
        hashes = _mix(window_keys[:, None] + positions)
        return (hashes >> np.uint64(1)).astype(np.int64)


class Reservoir(Accumulator):
    """The `size` positions of a stream with the smallest hash of (seed, window, position).

    A bottom-k sketch: the sample is a function of the set of positions seen, not of their order or
    of the number of processes. Use: `chosen = reservoir.offer(windows, length)`, then
    `reservoir.put(chosen, columns)`. `keys` [k] are the hashes, ascending, `places` [k, 2] window
    and position of each, `columns` the values at these positions, by name, each [k, ...].
    """

    def __init__(self, size: int, seed: int = 0):
        self.size = size
        self.seed = seed
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.places = torch.zeros(0, 2, dtype=torch.int64)
        self.columns: dict[str, Tensor] = {}
        # The memory of the columns is reused: memory that moves leaves holes behind.
        self._buffers: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def offer(self, windows: list[int], length: int) -> "Chosen":
        """Return those of the positions [0, length) of these windows that would enter now."""
        keys = _position_keys(self.seed, windows, length).ravel()
        full = len(self) == self.size
        bound = int(self.keys[-1]) if full and self.size else np.iinfo(np.int64).max
        below = np.flatnonzero(keys < bound)
        smallest = below[np.argsort(keys[below], kind="stable")][: self.size]
        rows, positions = np.divmod(smallest, length)
        places = [
            (windows[row], int(position)) for row, position in zip(rows, positions, strict=True)
        ]
        return Chosen(keys[smallest], rows, positions, places)

    def put(self, chosen: "Chosen", columns: dict[str, Tensor]) -> None:
        """Enter the chosen positions with their columns, each of shape [len(chosen), ...]."""
        self.enter(chosen.keys, chosen.places, columns)

    def enter(
        self, keys: np.ndarray, places: list[tuple[int, int]], columns: dict[str, Tensor]
    ) -> None:
        """Enter positions by their keys [n] and (window, position) with their columns [n, ...]."""
        entering = Reservoir(self.size, self.seed)
        entering.keys = torch.from_numpy(keys)
        entering.places = torch.tensor(places, dtype=torch.int64).reshape(-1, 2)
        entering.columns = {name: column.detach().cpu() for name, column in columns.items()}
        self.merge(entering)

    def merge(self, other: "Reservoir") -> None:
        if len(other) == 0:
            return
        if not self.columns:
            self.columns = {name: column[:0] for name, column in other.columns.items()}
        keys = torch.cat([self.keys, other.keys])
        order = torch.argsort(keys, stable=True)[: self.size]
        self.keys = keys[order]
        self.places = torch.cat([self.places, other.places])[order]
        for name, column in other.columns.items():
            if name not in self._buffers:
                self._buffers[name] = column.new_empty(self.size, *column.shape[1:])
            rows = torch.cat([self.columns[name], column])[order]
            self.columns[name] = self._buffers[name][: len(order)].copy_(rows)

    def state(self) -> dict[str, Tensor]:
        state = {
            "size": torch.tensor(self.size),
            "seed": torch.tensor(self.seed),
            "keys": self.keys,
            "places": self.places,
        }
        for name, column in self.columns.items():
            state[f"columns.{name}"] = column
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        reservoir = cls(int(state["size"]), int(state["seed"]))
        reservoir.keys = state["keys"].clone()
        reservoir.places = state["places"].clone()
        for name, column in state.items():
            if name.startswith("columns."):
                reservoir.columns[name.removeprefix("columns.")] = column.clone()
        return reservoir


class Chosen:
    """Positions that enter a reservoir.

    Attributes:
        keys: the hash of each [k].
        rows: the row of the batch [k].
        positions: the position in its window [k].
        places: (window, position) of each.
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
        """Return the chosen vectors of a batch [B, T, ...]."""
        length = states.shape[1]
        target = (states.device, length)
        if target not in self._sent:  # once for all sites
            indices = torch.from_numpy(self.rows * length + self.positions)
            self._sent[target] = sent(indices, states.device)
        return states.flatten(0, 1)[self._sent[target]]
