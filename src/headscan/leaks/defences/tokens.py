"""The states of some tokens are withheld."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens
from headscan.run import Option

__all__ = ["DroppingTokens"]


@DEFENCES.register("dropping-tokens")
@dataclass(frozen=True, kw_only=True)
class DroppingTokens(Defence):
    """Of every so many tokens the state of one is withheld; the attacker knows of which, and the model goes on with the mean.

    A token whose release is withheld has no bits of its own: what later states tell of it is in the bits of whole texts.
    """

    name: ClassVar[str] = "dropping-tokens"
    every: Annotated[int, Option("One of so many tokens' states is withheld.", low=1)] = 2

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The mean, which stands for what is withheld."""
        return Fitted(lambda x: x.float(), lambda y: y, absent=states.mean(0))

    def withheld(self, place: int) -> bool:
        """The last of every group; never the first position, which is known."""
        return place > 0 and place % self.every == self.every - 1
