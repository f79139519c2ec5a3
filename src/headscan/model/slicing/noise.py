"""How much a slice's outputs depend on how its inputs are laid out in batches."""

from __future__ import annotations

import torch

from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.traits import layout_noise, random_ids, relative

__all__ = ["slice_noise"]


def slice_noise(cut: SlicedModel) -> float:
    """The largest relative difference between prompts run alone, in a batch, and token by token; asked once a slice.

    Measured on four random prompts of eight tokens; see `headscan.model.traits.layout_noise`.
    """
    return cut.once("layout noise", lambda: _measure(cut))


@torch.no_grad()
def _measure(cut: SlicedModel) -> float:
    ids = random_ids(cut.lens, 4, 8).to(cut.lens.device)
    worst = layout_noise(cut.states, ids)
    if cut.causal and ids.shape[1] > 1 and can_cache(cut):
        stepped = Prefix(cut, ids[:, :-1]).evaluate(torch.arange(4, device=ids.device), ids[:, -1])
        worst = max(worst, relative(stepped[:, None], cut.states(ids)[:, -1:]))
    return worst
