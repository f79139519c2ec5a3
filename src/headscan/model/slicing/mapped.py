"""What is seen of a model, as a slice: so that whatever inverts slices inverts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.inputs import IdsLike
from headscan.model.memo import Memo
from headscan.model.slicing.sliced_model import SlicedModel

__all__ = ["Mapped"]

Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]
"""A map of one position's features, the same at every position."""


class Mapped(SlicedModel):
    """A slice whose output passes a known map before it is seen: rounding, rotation, a choice of features.

    Whoever inverts it passes the candidates through the same map, so that what the map destroys is what is lost and nothing
    else is.

    Args:
        cut: the slice.
        apply: the map.
        what: says which map it is, for what is kept on disk.
    """

    def __init__(self, cut: SlicedModel, apply: Map, what: str) -> None:
        self.__dict__.update(cut.__dict__)
        Memo.__init__(self)
        self.under, self.apply, self.what = cut, apply, what
        with torch.no_grad():
            self.width = int(self.states(torch.zeros(1, 1, dtype=torch.int64)).shape[-1])

    def __repr__(self) -> str:
        return f"Mapped({self.under!r}, {self.what})"

    def document(self) -> dict[str, Any]:
        """That of the slice, and the map's name."""
        return self.under.document() | {"map": self.what}

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """The mapped output at every position."""
        return self.apply(self.under.states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=extra))
