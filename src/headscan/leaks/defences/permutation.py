"""Coordinates in a secret order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens

__all__ = ["SecretOrder"]


@DEFENCES.register("permutation")
@dataclass(frozen=True, kw_only=True)
class SecretOrder(Defence):
    """Coordinates of every token in a secret order of its own: what remains are the numbers, here sorted, then noise.

    Without noise the sorted numbers are all that such a release tells. With noise they tell no less: whoever has them can shuffle
    them, so the upper bound holds for the shuffled release, too, and the lower one for the sorted. The receiver knows the order.
    A search by sorted numbers is the attack of arXiv:2505.18332.
    """

    name: ClassVar[str] = "permutation"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """Sorted for the attacker; for the receiver as they are."""
        return Fitted(lambda x: x.float().sort(-1).values, lambda y: y, kept=lambda x: x.float())
