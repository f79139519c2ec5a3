"""In which order candidates for the next token are tried: fixed, or by how far each is predicted to be from the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.table import FirstPositions


class Ranking:
    """Candidates by a score, the best first; none is given twice. A fixed order is a score that falls along it.

    A language-model prior that is sure of another token would put the right one behind tens of thousands: after the first
    batch every other place is the readout's own, so that a token is found soon if either of the two thinks well of it.

    Args:
        scores: [V], the larger the better.
        apart: how far the output of every token is predicted to be from that of one token, [V]. Default: minus the scores.
        allowed: bool [V] or None.
        alone: [V] the readout's own scores where `scores` holds a prior, too; else None.

    >>> scores, alone = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 2.0])
    >>> ranking = Ranking(scores, alone=alone)
    >>> ranking.next(2), ranking.next(2), ranking.next(2)
    (tensor([0, 1]), tensor([5, 4]), tensor([2, 3]))
    """

    def __init__(
        self, scores: Float[Tensor, " V"], apart: Callable[[int], Tensor] | None = None,
        allowed: Bool[Tensor, " V"] | None = None, alone: Float[Tensor, " V"] | None = None,
    ) -> None:  # fmt: skip
        self.scores, self.alone, self._apart = scores, alone, apart
        self.done = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        if allowed is not None:
            self.done |= ~allowed
        self._hints = scores.new_empty(0, dtype=torch.int64)  # candidates that take every other place

    def far(self) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from the target, up to a monotonic map."""
        return -self.scores

    def apart(self, token: int) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from `token`, which was tried."""
        return self.far() if self._apart is None else self._apart(token)

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        """Take note of what candidates gave: [n] tokens, [n, w'] outputs."""

    def next(self, count: int) -> Tensor:
        """The best candidates not tried yet, at most `count`; none when all were given."""
        if self.alone is not None and bool(self.done[self.scores.argmax()]):
            self._hints, self.alone = self.alone.argsort(descending=True), None
        count = min(count, int((~self.done).sum()))
        hints = self._hints[:0]
        if len(self._hints) and count:
            fresh = self._hints[~self.done[self._hints]]
            hints, self._hints = fresh[: count // 2 + 1], fresh[count // 2 + 1 :]
            self.done[hints] = True
        more = count - len(hints)
        return torch.cat([hints, self._nearest_left(self.far(), more)]) if more else hints

    def near(self, token: int, count: int) -> Tensor:
        """The candidates not tried yet whose output is predicted nearest to that of `token`, which was tried."""
        return self._nearest_left(self.apart(token), min(count, int((~self.done).sum())))

    def _nearest_left(self, far: Tensor, count: int) -> Tensor:
        best = far.masked_fill(self.done, float("inf")).topk(count, largest=False, sorted=True).indices
        self.done[best] = True
        return best


# ---- Candidates by the table of all first outputs: what is cheap and best for vocabularies of some ten thousand tokens.
#
# The output at position t of a token v after a prefix, F_t(v), is not known before it is computed, but F_0(v), at the first
# position, and F_c(v), after some other text, are in the cached table, and F_t differs from F_0 + a (F_c - F_0) by something
# smooth in v. Every candidate that was tried, right or wrong, is an *anchor*: it tells F_t at one token. From few anchors
# a and a constant shift are fitted, from many a difference that is linear in the table's leading coordinates (ridge
# regression); candidates are ranked by the distance of the predicted F_t(v) to the target, features that the prediction
# misses most counting least. What was fitted at one position is the first guess at the next.

# From so many anchors on, the difference is fitted as linear rather than constant.
ENOUGH = 20
# Anchors beyond so many add time and little else.
MOST = 192


@dataclass(frozen=True)
class Fit:
    """F_t as the anchors tell it: F_0 + share (F_c - F_0) + shift."""

    share: float
    shift: Tensor


class TableRanking(Ranking):
    """Candidates by the predicted distance of their output to the target [w']; the first guess `fit` is the last position's."""

    def __init__(
        self, table: FirstPositions, target: Tensor, allowed: Tensor | None = None, fit: Fit | None = None
    ) -> None:
        super().__init__(table.outputs[:, 0], None, allowed)
        self.table, self.target = table, target
        self.tokens = torch.empty(0, dtype=torch.int64, device=target.device)
        self.outputs = target.new_empty(0, len(target))
        self.guess = fit or Fit(0.0, torch.zeros_like(target))
        self._fit: Fit | None = None

    def far(self) -> Float[Tensor, " V"]:
        return self._distances(self.target)

    def apart(self, token: int) -> Float[Tensor, " V"]:
        return self._distances(self.outputs[(self.tokens == token).nonzero()[-1, 0]])

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        self.tokens = torch.cat([self.tokens, tokens])
        self.outputs = torch.cat([self.outputs, outputs])
        self._fit = None

    def fit(self) -> Fit:
        if self._fit is None:
            self._fit = self._fitted() if len(self.tokens) else self.guess
        return self._fit

    def _fitted(self) -> Fit:
        tokens, outputs = self._nearest(self.target, MOST)
        change, rest = self.table.change[tokens], outputs - self.table.outputs[tokens]
        centred = change - change.mean(0)
        strength = (centred**2).sum()
        # The first guess counts as much as two anchors do.
        prior = 2 * (change**2).sum(1).mean()
        slope = ((centred * rest).sum() + prior * self.guess.share) / (strength + prior).clamp_min(1e-30)
        share = float(slope) if float(strength + prior) > 0 else 0.0
        near = (rest - share * change)[:8]
        return Fit(share, near.mean(0))

    def _nearest(self, goal: Tensor, count: int) -> tuple[Tensor, Tensor]:
        order = (self.outputs - goal).norm(dim=1).topk(min(count, len(self.tokens)), largest=False).indices
        return self.tokens[order], self.outputs[order]

    def _distances(self, goal: Tensor) -> Tensor:
        table, fit = self.table, self.fit()
        if len(self.tokens) < ENOUGH:
            plain, mixed, changed = table.products
            rest = goal - fit.shift
            scores = plain - 2 * (table.outputs @ rest)
            if fit.share:
                scores = scores + 2 * fit.share * (mixed - table.change @ rest) + fit.share**2 * changed
            return scores
        tokens, outputs = self._nearest(goal, MOST)
        anchors = _with_one(table.coordinates[tokens])
        difference = outputs - table.outputs[tokens] - fit.share * table.change[tokens]
        ridge = torch.eye(anchors.shape[1], device=goal.device)
        ridge[-1, -1] = 0
        solution = torch.linalg.solve(anchors.T @ anchors + ridge, anchors.T @ difference)
        missed = (difference - anchors @ solution).var(0)
        weight = missed.mean() / (missed + 1e-2 * missed.mean()).clamp_min(1e-30)
        parts = []
        for begin in range(0, len(table.outputs), 2048):  # pieces that stay in the processor's cache
            part = slice(begin, begin + 2048)
            away = torch.addmm(table.outputs[part] - goal, _with_one(table.coordinates[part]), solution)
            away.add_(table.change[part], alpha=fit.share)
            parts.append(away.square_() @ weight)
        return torch.cat(parts)


def _with_one(coordinates: Tensor) -> Tensor:
    return torch.cat([coordinates, coordinates.new_ones(len(coordinates), 1)], dim=1)
