"""How much a slice's outputs depend on how its inputs are laid out in batches."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.traits import random_ids

__all__ = ["slice_noise"]

# Prompts and their tokens; the positions at which candidates are run in a small and in a large batch.
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


def _apart(found: Float[Tensor, "*batch w"], wanted: Float[Tensor, "*batch w"]) -> float:
    """The largest relative distance of any position whose outputs are numbers."""
    away = (found.double() - wanted.double()).norm(dim=-1) / wanted.double().norm(dim=-1)
    return max(away[away.isfinite()].tolist(), default=0.0)
