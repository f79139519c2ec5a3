"""A uniform sample of token positions, the same whatever the order or the split of the stream."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
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


def _position_keys(seed: int, windows: Sequence[int], length: int) -> npt.NDArray[np.int64]:
    """Return the hashes of (seed, window, position) [windows, length], not negative."""
    seed_key = _mix(np.array([seed + 1], dtype=np.uint64))
    with np.errstate(over="ignore"):
        numbers = np.asarray(windows, dtype=np.uint64)
        window_keys = _mix(numbers * np.uint64(0x9E3779B97F4A7C15) + seed_key)
        positions = np.arange(length, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
        hashes = _mix(window_keys[:, None] + positions)
        return (hashes >> np.uint64(1)).astype(np.int64)


class SortedColumns(Mapping[str, Tensor]):
    """Tensors by name, each with its rows in another order; no copy is made before one is read."""

    def __init__(self, values: Mapping[str, Tensor], rows: Tensor):
        self._values = values
        self._rows = rows

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name][self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


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
        # The values lie in the order in which they came; an entering position takes the row of one
        # that has left, so that only what enters is copied.
        self._values: dict[str, Tensor] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)

    @property
    def columns(self) -> Mapping[str, Tensor]:
        """The values at the positions, by name, each [k, ...]; each is copied as it is read."""
        return SortedColumns(self._values, self._rows)

    def __len__(self) -> int:
        return len(self.keys)

    def offer(self, windows: list[int], length: int) -> "Chosen":
        """Return those of the positions [0, length) of these windows that would enter now."""
        full = len(self) == self.size
        bound = int(self.keys[-1]) if full and self.size else np.iinfo(np.int64).max
        return _chosen(self.seed, tuple(windows), length, self.size, int(bound))

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
        entering._fill({name: column.detach().cpu() for name, column in columns.items()})
        self.merge(entering)

    def _fill(self, values: dict[str, Tensor]) -> None:
        """Set the values at the positions, in the order of their keys."""
        self._values = values
        self._rows = torch.arange(len(self))

    def merge(self, other: "Reservoir") -> None:
        if len(other) == 0:
            return
        keys = torch.cat([self.keys, other.keys])
        order = torch.argsort(keys, stable=True)[: self.size]
        entered = order >= len(self)
        entering = other._rows[order[entered] - len(self)]
        staying = self._rows[order[~entered]]

        taken = torch.zeros(self.size, dtype=torch.bool)
        taken[staying] = True
        free = (~taken).nonzero().flatten()[: len(entering)]
        for name, values in other._values.items():
            if name not in self._values or len(self._values[name]) < self.size:
                self._grow(name, values)
            self._values[name].index_copy_(0, free, values[entering])

        self.keys = keys[order]
        self.places = torch.cat([self.places, other.places])[order]
        self._rows = torch.empty_like(order)
        self._rows[entered] = free
        self._rows[~entered] = staying

    def _grow(self, name: str, like: Tensor) -> None:
        """Make memory for as many values as the sample can have."""
        values = like.new_empty(self.size, *like.shape[1:])
        if name in self._values:
            values[: len(self._values[name])] = self._values[name]
        self._values[name] = values

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
        values = {}
        for name, column in state.items():
            if name.startswith("columns."):
                values[name.removeprefix("columns.")] = column.clone()
        reservoir._fill(values)
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


@lru_cache(maxsize=8)
def _chosen(seed: int, windows: tuple[int, ...], length: int, size: int, bound: int) -> Chosen:
    """Return the `size` positions [0, length) of windows with the smallest hashes below a bound.

    The sites of a model have samples of the same positions, which are chosen once for all.
    """
    keys = _position_keys(seed, windows, length).ravel()
    below = np.flatnonzero(keys < bound)
    smallest = below[np.argsort(keys[below], kind="stable")][:size]
    rows, positions = np.divmod(smallest, length)
    places = [(windows[row], int(position)) for row, position in zip(rows, positions, strict=True)]
    return Chosen(keys[smallest], rows, positions, places)
