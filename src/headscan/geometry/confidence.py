"""Is a model as sure as it may be: the factor on its logits with which it would lose least."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.geometry.threads import side_by_side

__all__ = ["SCALES", "best_scale", "scaled_losses"]

SCALES = tuple(k / 2 for k in range(-8, 9))
"""Binary logarithms of the factors that are tried: from 1/16 to 16 in steps of √2."""

CACHED = 2**18
"""Logits that are scaled at once: as many as stay in a processor's cache, which takes a quarter of the time."""


def scaled_losses(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B S"]:
    """Summed cross-entropy [B, S] in nats of each window with its logits times each of `SCALES`. O(SBTV).

    >>> scaled_losses(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[1]]))[0, len(SCALES) // 2].item()     # log(1 + 1/e)
    0.313...
    """
    flat, wanted = logits.flatten(0, 1), targets.flatten()
    rows = max(1, (CACHED if logits.device.type == "cpu" else 64 * CACHED) // flat.shape[-1])

    def lose(place: int) -> Tensor:
        some, own = flat[place : place + rows], wanted[place : place + rows]
        each = [torch.nn.functional.cross_entropy(some * 2.0**power, own, reduction="none") for power in SCALES]
        return torch.stack(each, 1)

    found = list(side_by_side(lose, range(0, len(flat), rows), 8.0 * rows * flat.shape[-1]))
    lost = torch.cat(found)
    return lost.double().reshape(*targets.shape, len(SCALES)).sum(1).cpu()


def best_scale(losses: npt.ArrayLike) -> float | None:
    """The factor at the least of the losses at `SCALES` [S], by a parabola in its logarithm through the least three.

    None where the least is at an end, or not finite.

    >>> [round(best_scale([(power - least) ** 2 for power in SCALES]), 9) for least in (0.0, 1.0, -0.25)]
    [1.0, 2.0, 0.840896415]
    """
    found = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(found).all():
        return None
    least = int(found.argmin())
    if least in (0, len(found) - 1):
        return None
    before, here, after = found[least - 1 : least + 2]
    bend = before - 2 * here + after
    shift = 0.0 if bend <= 0 else (before - after) / (2 * bend)
    return float(2.0 ** (SCALES[least] + shift * (SCALES[1] - SCALES[0])))
