"""Slices whose output passes a known map before it is seen."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.inputs import IdsLike
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.traits import Memo

Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]
"""A map of one position's features, the same at every position."""


class Mapped(SlicedModel):
    """A slice whose output passes a known map: rounding, rotation, a choice of features.

    An inversion passes the candidates through the same map, so that only what the map destroys is
    lost.

    Args:
        cut: the slice whose output is mapped.
        apply: the map.
        name: of the map, in `document`.
    """

    def __init__(self, cut: SlicedModel, apply: Map, name: str) -> None:
        self.__dict__.update(cut.__dict__)
        Memo.__init__(self)
        self.under = cut
        self.apply = apply
        self.name = name
        with torch.no_grad():
            one_token = torch.zeros(1, 1, dtype=torch.int64)
            self.width = int(self.states(one_token).shape[-1])

    def document(self) -> dict[str, Any]:
        return self.under.document() | {"map": self.name}

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        states = self.under.states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=extra)
        return self.apply(states)
