"""What each document and each window adds to the error of a measure, as the text passes.

The derivative stands still after the first few thousand tokens (the pilot), so every later token adds its influence as it
passes: neither vectors nor matrices of blocks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.derivative import Derivative, Pieces

# The pilot: eight tokens a dimension and at least 4,096, but no more than 16 MiB of float32, or one tenth of a second
# moment where that is more.
PILOT_TOKENS, PILOT_BYTES = 4096, 16 * 2**20
CHUNK = 2**20  # numbers of the pilot that are looked at in float64 at a time


def pilot_tokens(width: int) -> int:
    """How many of a text's first tokens the derivative is taken from: 4096 at width 384, 2730 at 1536, 1638 at 8192."""
    return max(1, min(max(PILOT_TOKENS, 8 * width), max(PILOT_BYTES, width**2 * 4 // 5) // (4 * width)))


Aside: TypeAlias = Callable[[Tensor], Tensor]
"""From states [B, T, d] to the masks [G − 1, B, T] of the tokens that the further treatments leave out."""

Derive: TypeAlias = Callable[[Tensor, Aside], Derivative]
"""From the pilot's rows [windows, T, d] to the derivative of the measures that are asked for."""


def nothing(states: Tensor) -> Tensor:
    """No further treatment."""
    return torch.zeros(0, *states.shape[:2], dtype=torch.bool, device=states.device)


GROUPS = 512


class Series(Accumulator):
    """At most 512 sums of consecutive windows, each of `columns` numbers, float64.

    Window w belongs to group w // size; a window beyond the last group adds neighbours and doubles `size`.
    """

    arguments, fields = ("columns",), ("size", "table")

    def __init__(self, columns: int):
        self.columns, self.size = columns, 1
        self.table = torch.zeros(GROUPS, columns, dtype=torch.float64)

    def add(self, values: Tensor, windows: list[int]) -> None:
        """Add the numbers [B, columns] of the windows with these global numbers."""
        self._reach(max(windows) // GROUPS + 1)
        self.table.index_add_(0, torch.tensor(windows) // self.size, values.double().cpu())

    def merge(self, other: Series) -> None:
        self._reach(other.size)
        folded = other.table.reshape(GROUPS * other.size // self.size, -1, other.table.shape[1]).sum(1)
        self.table[: len(folded)] += folded

    def _reach(self, size: int) -> None:
        while self.size < size:
            self.size *= 2
            folded = self.table[::2] + self.table[1::2]
            self.table = torch.cat([folded, torch.zeros_like(folded)])


class Known(NamedTuple):
    """The derivative, and the influences summed by windows and by documents."""

    derivative: Derivative
    windows: Series
    documents: Series


class Influence(Accumulator):
    """The influences of windows and of documents; until the calibration batch is complete, its windows themselves.

    The derivative is taken at the first windows of the text by their numbers (the calibration batch), so any split of the text
    gives the same one. A part of the text that has not seen them must be given them (`learn`) first; windows that came without
    are counted in `missed`, and no interval is given then. `aside` says which tokens the treatments leave out.
    """

    def __init__(self, width: int, aside: Aside, *, derive: Derive | None = None, device: torch.device | str = "cpu"):
        self.width, self.aside, self.derive, self.device = width, aside, derive, torch.device(device)
        self.known: Known | None = None
        self.missed = 0
        # The text's first windows by their numbers, with their tokens' documents; some wait until the calibration batch is there.
        self.held: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, cut: Pieces, numbers: list[int]) -> None:
        if self.known is not None:
            self._count(self.known, cut, numbers)
            return
        wanted, late = self.wanted(cut.states.shape[1]), []
        for row, number in enumerate(numbers):
            if number < 2 * wanted:
                states = cut.states[row].to(self.device, torch.float32, copy=True)
                self.held[number] = states, cut.documents[row].clone()
            else:
                late.append(row)
        if self.derive is not None and all(number in self.held for number in range(wanted)):
            self._know(self.derive(self._windows(range(wanted))[0], self.aside))
        if late and self.known is not None:
            states, documents = cut.states[late], cut.documents[late]
            self._count(self.known, Pieces.of(states, documents, self.aside(states)), [numbers[row] for row in late])
        else:
            self.missed += len(late)

    def learn(self, rows: Tensor, numbers: list[int]) -> None:
        """Take the derivative from the pilot [windows, T, d], or what there is of it, without counting its windows."""
        if self.known is None and self.derive is not None:
            wanted = self.wanted(rows.shape[1])
            order = [row for row, number in enumerate(numbers) if number < wanted]
            self._know(self.derive(rows[order].to(self.device).float(), self.aside))

    def wanted(self, length: int) -> int:
        """How many windows of this length the pilot has."""
        return max(1, pilot_tokens(self.width) // max(1, length))

    def _know(self, derivative: Derivative) -> None:
        columns = derivative.columns
        self.known = Known(derivative, Series(columns), Series(columns))
        held = sorted(self.held)
        step = max(1, CHUNK // self.held[held[0]][0].numel()) if held else 1
        for start in range(0, len(held), step):
            rows, documents = self._windows(held[start : start + step])
            self._count(self.known, Pieces.of(rows, documents, self.aside(rows)), held[start : start + step])
        self.held = {}

    def _windows(self, numbers: Iterable[int]) -> tuple[Tensor, Tensor]:
        """Rows [n, T, d] and documents [n, T] of windows that are held."""
        rows, documents = zip(*(self.held[number] for number in numbers), strict=True)
        return torch.stack(rows), torch.stack(documents)

    def _count(self, known: Known, cut: Pieces, numbers: list[int]) -> None:
        windows, documents, found = known.derivative.of(cut)
        known.windows.add(found, [numbers[row] for row in windows.tolist()])
        known.documents.add(found, documents.tolist())

    def finished(self, derive: Derive | None = None) -> Known | None:
        """What is known of all windows: by the derivative of all that is held where the text ended within its pilot.

        None where there are no windows, where windows were missed, or where nobody says how to take the derivative.
        """
        derive = derive or self.derive
        if self.missed or self.known is not None or not self.held or derive is None:
            return None if self.missed else self.known
        short = type(self)(self.width, self.aside, device=self.device)
        short.held = dict(self.held)  # which stay: more text may come
        short._know(derive(self._windows(sorted(self.held))[0], self.aside))
        return short.known

    def merge(self, other: Influence) -> None:
        self.missed += other.missed
        if self.known is None and other.known is not None:
            self._know(other.known.derivative)
        if self.known is not None and other.known is not None:
            self.known.windows.merge(other.known.windows)
            self.known.documents.merge(other.known.documents)
        if other.held:
            rows, documents = other._windows(sorted(other.held))
            rows = rows.to(self.device)
            self.update(Pieces.of(rows, documents, self.aside(rows)), sorted(other.held))

    def state(self) -> dict[str, Tensor]:
        state = {"shape": torch.tensor([self.width, self.missed])}
        if self.held:
            rows, documents = self._windows(sorted(self.held))
            state |= {"held.rows": rows, "held.documents": documents, "held.numbers": torch.tensor(sorted(self.held))}
        if self.known is not None:
            derivative = {field.name: getattr(self.known.derivative, field.name) for field in fields(Derivative)}
            state |= prefixed("derivative", derivative)
            state |= prefixed("windows", self.known.windows.state())
            state |= prefixed("documents", self.known.documents.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor], aside: Aside | None = None) -> Self:
        width, missed = state["shape"].tolist()
        new = cls(width, aside or nothing, device=state["shape"].device)
        new.missed = missed
        if "held.rows" in state:
            windows = zip(state["held.rows"].clone(), state["held.documents"].clone(), strict=True)
            new.held = dict(zip(state["held.numbers"].tolist(), windows, strict=True))
        derivative = unprefixed("derivative", state)
        if derivative:
            new.known = Known(
                Derivative(**{name: tensor.clone() for name, tensor in derivative.items()}),
                Series.restore(unprefixed("windows", state)),
                Series.restore(unprefixed("documents", state)),
            )
        return new
