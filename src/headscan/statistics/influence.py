"""What each window adds to the error of a measure: its influence, from a derivative that a pilot of the text gives.

A measure θ is a function of averages over tokens. To first order its error is the average of one number a token,
ψ(x) = a·x/‖x‖ + b·x + c‖x‖ + xᵀDx + …, the derivative of θ. The derivative stands still after the first few thousand
tokens (the pilot), so every later token adds its ψ as it passes: neither vectors nor matrices of blocks are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.series import Series

__all__ = ["Derivative", "Derive", "Influence", "WindowSums", "pilot_tokens"]

# The pilot: eight tokens a dimension and at least 4,096, but no more than 16 MiB of float32, or one eighth of a second
# moment where that is more.
PILOT_TOKENS, PILOT_BYTES = 4096, 16 * 2**20


def pilot_tokens(width: int) -> int:
    """How many of a text's first tokens the derivative is taken from.

    >>> [pilot_tokens(width) for width in (64, 384, 1536, 8192)]
    [4096, 4096, 2730, 2048]
    """
    return max(1, min(max(PILOT_TOKENS, 8 * width), max(PILOT_BYTES, width**2) // (4 * width)))


@dataclass(frozen=True)
class WindowSums:
    """Of B windows: their rows [B, T, d] in float64, and what the sums over all positions and of position 0 gain.

    `sums` and `first` are [B, 2d + 4]: Σx/‖x‖, Σx, count, zeros, Σ‖x‖, Σ‖x‖². `lead` is 1, or 0 where position 0 is skipped.
    """

    rows: Tensor
    sums: Tensor
    first: Tensor
    lead: int

    @classmethod
    def of(cls, rows: Tensor, lead: int, norms: Tensor | None = None) -> Self:
        """The sums of windows [B, T, d], float64; `norms` [B, T] where they are known."""
        norms = torch.linalg.vector_norm(rows, dim=-1) if norms is None else norms
        weights = torch.stack([torch.where(norms > 0, 1 / norms, 0.0), torch.ones_like(norms)], dim=1)  # [B, 2, T]
        directed = torch.bmm(weights, rows)  # Σx/‖x‖ and Σx of each window, in one reading of the rows
        scalars = torch.stack([torch.ones_like(norms), (norms == 0).double(), norms, norms.square()], dim=-1)
        first = weights[:, :, :lead] * rows[:, :lead] if lead else torch.zeros_like(directed)
        alone = scalars[:, 0] if lead else scalars.new_zeros(len(rows), 4)
        return cls(
            rows,
            torch.cat([directed.flatten(1), scalars.sum(1)], dim=1),
            torch.cat([first.flatten(1), alone], dim=1),
            lead,
        )


@dataclass(frozen=True)
class Derivative:
    """The derivative of J measures by the averages over all tokens and by those over the tokens after position 0.

    linear [2, J, 2d + 4]: by the averages of `WindowSums.sums`. matrix [2, S, k, k], float32: by the second moment of
    the tokens' coordinates (less `centre` [k]) in `basis` [d, k], for the S measures numbered `spectral`; a basis [d, 0]
    stands for the coordinates themselves.
    """

    linear: Tensor
    spectral: Tensor
    matrix: Tensor
    basis: Tensor
    centre: Tensor

    @property
    def columns(self) -> int:
        """Numbers a window: two counts, the influences [2, J], and two sums of ‖window's Gram matrix‖²."""
        return 4 + 2 * self.linear.shape[1]

    def of(self, windows: WindowSums) -> Tensor:
        """The numbers of each window [B, columns], float64. Cost B·T·k·(d + k) in float32, B·T·d² where k = d."""
        rest = windows.sums - windows.first
        counts = torch.stack([windows.sums[:, -4], rest[:, -4]], dim=1)
        found = torch.stack([windows.sums @ self.linear[0].T, rest @ self.linear[1].T], dim=1)  # [B, 2, J]
        squares = torch.zeros_like(counts)
        if len(self.spectral):
            added, squares = self._quadratic(windows)
            found[:, :, self.spectral] += added
        return torch.cat([counts, found.flatten(1), squares], dim=1)

    def _quadratic(self, windows: WindowSums) -> tuple[Tensor, Tensor]:
        """Σ zᵀDz of each window [B, 2, S], and ‖Σzzᵀ‖² [B, 2], all and rest."""
        if self.basis.shape[1]:
            z = windows.rows.float() @ self.basis - self.centre.float()
        else:
            z = (windows.rows - self.centre).float()
        later = z[:, windows.lead :]
        size = len(self.centre)
        gram = torch.bmm(later.mT, later).double().flatten(1)  # [B, k²]: position 0, often a giant, is added apart
        # In float64 from here on: a float32 sum of k² terms would depend on how many windows come together.
        matrix = self.matrix.double()
        found = (gram @ matrix.reshape(-1, size**2).T).reshape(len(z), 2, -1)
        square = torch.linalg.vector_norm(gram, dim=1).double().square()
        squares = torch.stack([square, square], dim=1)
        if windows.lead:
            first = z[:, 0].double()
            product = first @ matrix[0]  # [S, B, k]
            found[:, 0] += (product * first).sum(-1).double().T
            across = (torch.bmm(gram.reshape(-1, size, size), first[..., None])[..., 0] * first).sum(-1).double()
            squares[:, 0] += 2 * across + torch.linalg.vector_norm(first, dim=1).double() ** 4
        return found, squares


Derive: TypeAlias = Callable[[Tensor, int], Derivative]
"""From the pilot's rows [windows, T, d] and `lead` to the derivative of the measures that are asked for."""


class Influence(Accumulator):
    """The series of the windows' influences; until the pilot is whole, its windows.

    The pilot is the first windows of the text by their numbers, whoever sees them, so that any split of the text gives
    the same derivative. A part of the text that has not seen them must be given them (`learn`) before its own; windows
    that came without are counted in `missed`, and no interval is given then.
    """

    def __init__(self, width: int, *, derive: Derive | None = None, lead: int = 1, device: torch.device | str = "cpu"):
        self.width, self.derive, self.lead, self.device = width, derive, lead, torch.device(device)
        self.held: dict[int, Tensor] = {}  # windows not yet counted, float32 [T, d]
        self.derivative: Derivative | None = None
        self.series: Series | None = None
        self.missed = 0

    def update(self, windows: WindowSums, numbers: list[int]) -> None:
        """Add windows by their global numbers."""
        if self.derivative is None:
            self._hold(windows.rows, numbers)
        else:
            self._count(windows, numbers)

    def learn(self, rows: Tensor, numbers: list[int]) -> None:
        """Take the derivative from the pilot [windows, T, d], or what there is of it, without counting its windows."""
        if self.derivative is None and self.derive is not None:
            wanted = self.pilot(rows.shape[1])
            order = [row for row, number in enumerate(numbers) if number < wanted]
            self._know(self.derive(rows[order].to(self.device).float(), self.lead))

    def pilot(self, length: int) -> int:
        """How many windows of this length the pilot has."""
        return max(1, pilot_tokens(self.width) // max(1, length))

    def _hold(self, rows: Tensor, numbers: list[int]) -> None:
        wanted = self.pilot(rows.shape[1])
        kept = rows.float()
        early = [row for row, number in enumerate(numbers) if number < wanted]
        self.held |= {numbers[row]: kept[row].clone() for row in early}
        late = [row for row, number in enumerate(numbers) if number >= wanted]
        if self._learnt(wanted) and self.derivative is not None:
            if late:
                self._count(WindowSums.of(rows[late], self.lead), [numbers[row] for row in late])
            return
        for row in late:  # out of order: a few may wait
            if len(self.held) < 2 * wanted:
                self.held[numbers[row]] = kept[row].clone()
            else:
                self.missed += 1

    def _learnt(self, wanted: int) -> bool:
        """Take the derivative once the pilot is whole, and count what was held."""
        if self.derive is None or any(number not in self.held for number in range(wanted)):
            return False
        self._know(self.derive(torch.stack([self.held[number] for number in range(wanted)]), self.lead))
        return True

    def _know(self, derivative: Derivative) -> None:
        self.derivative, self.series = derivative, self.series or Series(derivative.columns)
        numbers = sorted(self.held)
        for start in range(0, len(numbers), 16):
            some = numbers[start : start + 16]
            self._count(WindowSums.of(torch.stack([self.held.pop(n) for n in some]).double(), self.lead), some)

    def _count(self, windows: WindowSums, numbers: list[int]) -> None:
        assert self.derivative is not None
        assert self.series is not None
        self.series.add(self.derivative.of(windows), numbers)

    def finished(self, derive: Derive | None = None) -> tuple[Series, Derivative] | None:
        """The series of all windows and its derivative: that of all that is held where the text ended within its pilot.

        None where there are no windows, where windows were missed, or where nobody says how to take the derivative.
        """
        if self.missed or (self.series is None and (not self.held or (derive or self.derive) is None)):
            return None
        if self.derivative is not None and self.series is not None:
            return self.series, self.derivative
        short = type(self)(self.width, derive=derive or self.derive, lead=self.lead, device=self.device)
        short.held = dict(self.held)
        assert short.derive is not None
        short._know(short.derive(torch.stack([self.held[number] for number in sorted(self.held)]), self.lead))
        assert short.series is not None
        assert short.derivative is not None
        return short.series, short.derivative

    def merge(self, other: Influence) -> None:
        """Add the influences of other windows of the same stream."""
        self.missed += other.missed
        if self.derivative is None and other.derivative is not None:
            self._know(other.derivative)
        if self.series is not None and other.series is not None:
            self.series.merge(other.series)
        if other.held:
            numbers = sorted(other.held)
            rows = torch.stack([other.held[number] for number in numbers]).to(self.device).double()
            self.update(WindowSums.of(rows, self.lead), numbers)

    def state(self) -> dict[str, Tensor]:
        """Shape, what is held, and the derivative with its series where it is known."""
        numbers = sorted(self.held)
        state = {
            "shape": torch.tensor([self.width, self.lead, self.missed]),
            "held.numbers": torch.tensor(numbers, dtype=torch.int64),
            "held.rows": torch.stack([self.held[n] for n in numbers]) if numbers else torch.zeros(0, 0, self.width),
        }
        if self.derivative is not None and self.series is not None:
            state |= prefixed("derivative", dict(vars(self.derivative))) | prefixed("series", self.series.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`, but for `derive`, which must be given again where the pilot was not whole."""
        width, lead, missed = state["shape"].tolist()
        new = cls(width, lead=lead, device=state["shape"].device)
        new.missed = missed
        new.held = {n: row.clone() for n, row in zip(state["held.numbers"].tolist(), state["held.rows"], strict=True)}
        known = unprefixed("derivative", state)
        if known:
            new.derivative = Derivative(**{field.name: known[field.name].clone() for field in fields(Derivative)})
            new.series = Series.restore(unprefixed("series", state))
        return new
