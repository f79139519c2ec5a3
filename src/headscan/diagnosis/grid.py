"""On how fine a grid a model's weights lie: rounding to few bits leaves few different values among neighbours."""

from __future__ import annotations

import torch
from torch import nn

from headscan.diagnosis.evidence import Grid
from headscan.diagnosis.plan import Deadline

__all__ = ["grid_of", "levels"]

GROUP, ROWS = 64, 64


def levels(weight: torch.Tensor) -> torch.Tensor:
    """Numbers of different values in groups of 64 neighbouring weights of some 64 rows of a matrix [n, d]; empty for d < 64.

    A format of b bits with one scale for 64 weights or more leaves at most 2^b; float32 and bfloat16 leave about 64 and 40.

    >>> levels(torch.randn(8, 64).mul(4).round().clamp(-7, 8)).max().item() <= 16
    True
    """
    groups = weight.shape[1] // GROUP
    if not groups or not len(weight):
        return torch.zeros(0)
    rows = weight.detach()[:: max(1, len(weight) // ROWS)][:ROWS, : groups * GROUP].float().reshape(-1, GROUP)
    ordered = rows.sort(1).values
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)


def grid_of(model: nn.Module, until: Deadline) -> tuple[Grid | None, list[str]]:
    """The grid of all matrices of at least 64 columns, None where there is none in floating point; and what was left out."""
    found, said = dict[str, torch.Tensor](), list[str]()
    for name, weight in model.named_parameters():
        if until.left <= 0:
            said.append(
                f"The grid of the weights was looked at in {len(found)} matrices only: there was no time for more."
            )
            break
        if weight.ndim == 2 and weight.is_floating_point():
            counts = levels(weight)
            # A matrix of equal values, such as one that was never trained, was not rounded.
            if len(counts) and counts.float().median() > 1:
                found[name] = counts.float()
    if not found:
        return None, said
    coarsest = min(found, key=lambda name: float(found[name].median()))
    every = torch.cat(list(found.values()))
    return Grid(
        levels=float(every.median()), groups=len(every), coarsest=coarsest,
        coarsest_levels=float(found[coarsest].median()),
    ), said  # fmt: skip
