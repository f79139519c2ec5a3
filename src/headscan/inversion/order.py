"""In which order candidates for the next token are tried: fixed, or by how far each is predicted to be from the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["FixedOrder", "Order", "RankedOrder", "ReadoutOrder"]


class Order(ABC):
    """Which candidates come next."""

    @abstractmethod
    def next(self, count: int) -> Tensor:
        """The next candidates, at most `count`; none when all were given."""

    @abstractmethod
    def near(self, token: int, count: int) -> Tensor:
        """Candidates not given yet that `token`, which was tried, is most likely to be taken for."""

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:  # noqa: B027 - most orders learn nothing
        """What candidates gave: [n] tokens, [n, w'] outputs."""


class FixedOrder(Order):
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

    def near(self, token: int, count: int) -> Tensor:
        """The candidates that come next: the order knows no neighbours."""
        return self.next(count)


class RankedOrder(Order):
    """Candidates by how far each is predicted to be from the target; none is given twice."""

    def __init__(self, vocabulary: int, device: torch.device, allowed: Bool[Tensor, " V"] | None) -> None:
        self.done = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        if allowed is not None:
            self.done |= ~allowed
        self._hints = torch.empty(0, dtype=torch.int64, device=device)

    @abstractmethod
    def far(self) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from the target, up to a monotonic map."""

    @abstractmethod
    def apart(self, token: int) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from `token`, which was tried."""

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
            found = torch.cat([found, self._taken(self.far(), more)])
        return found

    def near(self, token: int, count: int) -> Tensor:
        """The candidates not tried yet whose output is predicted nearest to that of `token`, which was tried."""
        return self._taken(self.apart(token), min(count, int((~self.done).sum())))

    def _taken(self, far: Tensor, count: int) -> Tensor:
        best = far.masked_fill(self.done, float("inf")).topk(count, largest=False, sorted=True).indices
        self.done[best] = True
        return best


class ReadoutOrder(RankedOrder):
    """Candidates by the scores of a readout (and the model's own prior).

    A prior that is sure of another token would put the right one behind tens of thousands: after the first batch every other
    place is the readout's own, so that a token is found soon if either of the two thinks well of it.

    Args:
        scores: [V], the larger the better.
        apart: how far the output of every token is predicted to be from that of one, [V].
        allowed: bool [V] or None.
        alone: [V] the readout's scores where `scores` holds a prior, too; else None.

    >>> scores, alone = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 2.0])
    >>> order = ReadoutOrder(scores, lambda token: scores, alone=alone)
    >>> order.next(2), order.next(2), order.next(2)
    (tensor([0, 1]), tensor([5, 4]), tensor([2, 3]))
    """

    def __init__(
        self, scores: Float[Tensor, " V"], apart: Callable[[int], Tensor], allowed: Bool[Tensor, " V"] | None = None,
        alone: Float[Tensor, " V"] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(len(scores), scores.device, allowed)
        self.scores, self.alone, self._apart = scores, alone, apart

    def next(self, count: int) -> Tensor:
        """The best candidates not tried yet, at most `count`."""
        if self.alone is not None and bool(self.done[self.scores.argmax()]):
            self.hint(self.alone.argsort(descending=True))
            self.alone = None
        return super().next(count)

    def far(self) -> Float[Tensor, " V"]:
        """Minus the scores."""
        return -self.scores

    def apart(self, token: int) -> Float[Tensor, " V"]:
        """The distance of what the readout predicts for both."""
        return self._apart(token)
