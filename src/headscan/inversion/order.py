"""In which order candidates for the next token are tried.

The output at position t of a token v after a prefix, F_t(v), is not known before it is computed, but F_0(v), at the first
position, is in the cached table, and the two differ by something smooth in v. Every candidate that was tried, right or
wrong, is an *anchor*: it tells F_t - F_0 at one token. From few anchors the difference is taken as constant (a shift),
from many as linear in the table's leading coordinates (ridge regression); candidates are ranked by the distance of the
predicted F_t(v) to the target, features that the prediction misses most counting least.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.inversion.table import Table

__all__ = ["ORDERS", "FixedOrder", "TableOrder"]

ORDERS = ("table", "gradient", "frequency", "random")
# From so many anchors on, the difference is fitted as linear rather than constant.
ENOUGH = 20
# Anchors beyond so many add time and little else.
MOST = 192


class FixedOrder:
    """Candidates in an order that is known from the start: by frequency, or random (brute force).

    >>> order = FixedOrder(torch.tensor([3, 1, 2, 0]))
    >>> order.next(3), order.next(3)
    (tensor([3, 1, 2]), tensor([0]))
    """

    def __init__(self, order: Tensor) -> None:
        self.order = order
        self.place = 0

    def next(self, count: int) -> Tensor:
        """The next candidates, at most `count`; none when all were given."""
        found = self.order[self.place : self.place + count]
        self.place += len(found)
        return found

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        """What the candidates gave; of no use here."""

    def near(self, token: int, count: int) -> Tensor:
        """The candidates that come next: the order knows no neighbours."""
        return self.next(count)


class TableOrder:
    """Candidates by the predicted distance of their output to the target.

    Args:
        table: the cached table of the slice.
        target: [w'], the output wanted.
        allowed: bool [V] or None.
        shift: [w'] a first guess of F_t - F_0 (that of the position before), or None for zero.
        prior: [V] log-probabilities of tokens, or None; they count where the distances say little.
    """

    def __init__(
        self,
        table: Table,
        target: Tensor,
        allowed: Tensor | None = None,
        shift: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> None:
        self.table = table
        self.target = target
        self.prior = prior
        self.done = torch.zeros(len(table.outputs), dtype=torch.bool, device=target.device)
        if allowed is not None:
            self.done |= ~allowed
        self.tokens = torch.empty(0, dtype=torch.int64, device=target.device)
        self.outputs = target.new_empty(0, len(target))
        self.shift = torch.zeros_like(target) if shift is None else shift
        self._hints = torch.empty(0, dtype=torch.int64, device=target.device)

    def hint(self, tokens: Tensor) -> None:
        """Candidates that another method (a gradient) proposes: they take every other place from now on."""
        self._hints = tokens

    def next(self, count: int) -> Tensor:
        """The best candidates not tried yet, at most `count`."""
        left = int((~self.done).sum())
        count = min(count, left)
        found = torch.empty(0, dtype=torch.int64, device=self.done.device)
        if len(self._hints) and count:
            fresh = self._hints[~self.done[self._hints]]
            found, self._hints = fresh[: count // 2 + 1], fresh[count // 2 + 1 :]
            self.done[found] = True
        if more := count - len(found):
            scores = self._distances(self.target).masked_fill(self.done, float("inf"))
            best = scores.topk(more, largest=False, sorted=True).indices
            self.done[best] = True
            found = torch.cat([found, best])
        return found

    def near(self, token: int, count: int) -> Tensor:
        """The candidates not tried yet whose output is predicted nearest to that of `token`, which was tried."""
        place = (self.tokens == token).nonzero()[-1, 0]
        scores = self._distances(self.outputs[place]).masked_fill(self.done, float("inf"))
        count = min(count, int((~self.done).sum()))
        best = scores.topk(count, largest=False).indices
        self.done[best] = True
        return best

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        """What candidates gave: [n] tokens, [n, w'] outputs."""
        self.tokens = torch.cat([self.tokens, tokens])
        self.outputs = torch.cat([self.outputs, outputs])

    def fitted_shift(self) -> Tensor:
        """F_t - F_0 near the target, as the anchors tell it."""
        if not len(self.tokens):
            return self.shift
        near = (self.outputs - self.target).norm(dim=1).topk(min(8, len(self.tokens)), largest=False).indices
        return (self.outputs[near] - self.table.outputs[self.tokens[near]]).mean(0)

    def _distances(self, goal: Tensor) -> Tensor:
        """Squared distances of the predicted outputs to `goal`, [V]."""
        table, count = self.table, len(self.tokens)
        if count < ENOUGH:
            return table.squares - 2 * (table.outputs @ (goal - self.fitted_shift()))
        nearest = (self.outputs - goal).norm(dim=1).topk(min(MOST, count), largest=False).indices
        tokens, outputs = self.tokens[nearest], self.outputs[nearest]
        anchors = _with_one(table.coordinates[tokens])
        difference = outputs - table.outputs[tokens]
        ridge = torch.eye(anchors.shape[1], device=goal.device)
        ridge[-1, -1] = 0
        solution = torch.linalg.solve(anchors.T @ anchors + ridge, anchors.T @ difference)
        missed = (difference - anchors @ solution).var(0)
        weight = 1 / (missed + 1e-2 * missed.mean()).clamp_min(1e-30)
        predicted = table.outputs + _with_one(table.coordinates) @ solution
        scores = ((predicted - goal) ** 2) @ (weight * missed.mean())
        if self.prior is not None:
            scores = scores - 2 * missed.mean() * self.prior
        return scores


def _with_one(coordinates: Tensor) -> Tensor:
    return torch.cat([coordinates, coordinates.new_ones(len(coordinates), 1)], dim=1)
