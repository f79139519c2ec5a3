"""The noise of layouts at a slice, and slices whose output is mapped."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.inputs import IdsLike
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.traits import Memo, random_ids

# Of `slice_noise`: prompts and their tokens; the positions at which candidates are run in a small and in a large batch.
ROWS, LENGTH = 2, 24
PLACES, CANDIDATES = (1, 7, 15, 23), 32


def slice_noise(cut: SlicedModel) -> float:
    """The largest relative difference between prompts run alone, in a batch, and token by token; asked once a slice.

    Measured on random prompts of 24 tokens: whole, alone and together; and, where the slice takes a cache, with a last
    token that is one candidate of a small and of a large batch. 0 where all agree to the last bit. LLM.int8 keeps in
    half precision the features that are large *anywhere in the batch*, so that outputs may differ by percents.

    Cost: 280 tokens.
    """
    return cut.once("layout noise", lambda: _measure(cut))


@torch.no_grad()
def _measure(cut: SlicedModel) -> float:
    ids = random_ids(cut.lens, ROWS, LENGTH).to(cut.lens.device)
    whole = cut.states(ids)
    worst = _apart(torch.cat([cut.states(row[None]) for row in ids]), whole)
    if cut.causal and can_cache(cut):
        for place in PLACES:
            if place < ids.shape[1]:
                prefix = Prefix(cut, ids[:, :place])
                for count in (ROWS, CANDIDATES):
                    rows = torch.arange(count, device=ids.device) % ROWS
                    worst = max(worst, _apart(prefix.evaluate(rows, ids[rows, place]), whole[rows, place]))
    return worst


def _apart(outputs: Float[Tensor, "*batch w"], wanted: Float[Tensor, "*batch w"]) -> float:
    away = (outputs.double() - wanted.double()).norm(dim=-1) / wanted.double().norm(dim=-1)
    return max(away[away.isfinite()].tolist(), default=0.0)


Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]
"""A map of one position's features, the same at every position."""


class Mapped(SlicedModel):
    """A slice whose output passes a known map before it is seen: rounding, rotation, a choice of features.

    An inversion passes the candidates through the same map, so that only what the map destroys is lost. `what` names the
    map in `document`.
    """

    def __init__(self, cut: SlicedModel, apply: Map, what: str) -> None:
        self.__dict__.update(cut.__dict__)
        Memo.__init__(self)
        self.under, self.apply, self.what = cut, apply, what
        with torch.no_grad():
            self.width = int(self.states(torch.zeros(1, 1, dtype=torch.int64)).shape[-1])

    def document(self) -> dict[str, Any]:
        return self.under.document() | {"map": self.what}

    def states(
        self, input_ids: IdsLike | None = None, *, inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False, extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:  # fmt: skip
        return self.apply(self.under.states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=extra))
