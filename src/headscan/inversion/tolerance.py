"""When an output counts as equal to the target: by precision, and for quantised weights by what is measured."""

from __future__ import annotations

import math

import torch

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.noise import slice_noise

__all__ = ["accepted", "accepts", "layout_noise", "noise_floor"]

# Relative to the norm of the target: what rounding in other batch shapes may do, and what is accepted as equal.
FLOOR = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
ACCEPT = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def accepts(residual: float, tolerance: float) -> bool:
    """Whether a residual counts as equal: a number, and within the tolerance. Every method asks this and nothing else.

    >>> accepts(1e-6, 1e-4), accepts(float("nan"), 1e-4), accepts(float("inf"), float("inf"))
    (True, False, False)
    """
    return math.isfinite(residual) and residual <= tolerance


def accepted(cut: SlicedModel) -> float:
    """The relative residual that counts as found where no other is asked for."""
    return max(ACCEPT.get(cut.lens.input_embeddings.dtype, 1e-2), 5 * layout_noise(cut))


def noise_floor(cut: SlicedModel) -> float:
    """The relative residual that rounding alone may cause."""
    return max(FLOOR.get(cut.lens.input_embeddings.dtype, 1e-2), 2 * layout_noise(cut))


def layout_noise(cut: SlicedModel) -> float:
    """How much the outputs of a quantised model depend on what else is in the batch; 0 for all others.

    Measured once a slice: `headscan.model.slicing.noise.slice_noise`.
    """
    return slice_noise(cut) if cut.lens.traits.quantised else 0.0
