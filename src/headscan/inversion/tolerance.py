"""When an output counts as equal to the target: within a multiple of what is measured at that slice."""

from __future__ import annotations

import math

import torch

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.noise import slice_noise

__all__ = ["FACTOR", "accepted", "accepts", "noise_floor"]

FACTOR = 8
"""The tolerance over the noise measured. The largest of a thousand residuals was 4 times it (stories260K, block 2)."""


def accepts(residual: float, tolerance: float) -> bool:
    """Whether a residual counts as equal: a number, and within the tolerance. Every method asks this and nothing else.

    >>> accepts(1e-6, 1e-4), accepts(float("nan"), 1e-4), accepts(float("inf"), float("inf"))
    (True, False, False)
    """
    return math.isfinite(residual) and residual <= tolerance


def accepted(cut: SlicedModel) -> float:
    """The relative residual that counts as found where no other is asked for: `FACTOR` times the noise."""
    return FACTOR * noise_floor(cut)


def noise_floor(cut: SlicedModel) -> float:
    """The relative residual that rounding causes at this slice, in its precision and on its device, as measured.

    That of other batch sizes, and of a cache against whole forward passes (`slice_noise`); at least the unit roundoff of
    the precision: half the distance of 1 to the next number. Outputs are compared in float32.
    """
    own = cut.lens.input_embeddings.dtype
    roundoff = max(
        torch.finfo(dtype).eps / 2 for dtype in (own if own.is_floating_point else torch.float16, torch.float32)
    )
    return max(slice_noise(cut), roundoff)
