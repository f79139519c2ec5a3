"""When an output counts as equal to the target: by precision, and for quantised weights by what is measured."""

from __future__ import annotations

import torch

from headscan.inversion.losses import relative
from headscan.model.slices_cut import Cut
from headscan.model.slices_prefix import Prefix, can_cache

__all__ = ["accepted", "layout_noise", "noise_floor"]

# Relative to the norm of the target: what rounding in other batch shapes may do, and what is accepted as equal.
FLOOR = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
ACCEPT = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def accepted(cut: Cut) -> float:
    """The relative residual that counts as found where no other is asked for."""
    return max(ACCEPT.get(cut.lens.input_embeddings.dtype, 1e-2), 5 * layout_noise(cut))


def noise_floor(cut: Cut) -> float:
    """The relative residual that rounding alone may cause."""
    return max(FLOOR.get(cut.lens.input_embeddings.dtype, 1e-2), 2 * layout_noise(cut))


@torch.no_grad()
def layout_noise(cut: Cut) -> float:
    """How much the outputs of a quantised model depend on what else is in the batch; 0 for all others.

    LLM.int8 rounds activations by row, but keeps in half precision the features that are large *anywhere in the batch*,
    so that a prompt run alone, in a batch, or token by token may give outputs that differ by far more than float
    rounding. It is measured on random prompts, once a slice.
    """
    if not getattr(cut.lens.model, "is_quantized", False):
        return 0.0
    if "_layout_noise" not in cut.__dict__:
        length = min(8, cut.lens.context_length or 8)
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, cut.vocabulary_size, (4, length), generator=generator).to(cut.lens.device)
        together = cut.states(ids)
        alone = torch.cat([cut.states(row[None]) for row in ids])
        worst = float(relative(alone, together).max())
        if cut.causal and length > 1 and can_cache(cut):
            stepped = Prefix(cut, ids[:, :-1]).evaluate(torch.arange(4, device=ids.device), ids[:, -1])
            worst = max(worst, float(relative(stepped[:, None], together[:, -1:]).max()))
        cut.__dict__["_layout_noise"] = worst
    return cut.__dict__["_layout_noise"]
