"""The grid on which weights lie: weights of few bits, also where they are kept in float32."""

import torch
from torch import nn

GROUP = 64
"""Neighbouring weights of a row whose different values are counted."""
ROWS = 64
"""Rows of a matrix that are counted."""
FEW_VALUES = 16.0
"""Different values in 64 neighbouring weights up to which a matrix counts as rounded (HS203)."""
MATRICES = 4
"""The largest matrices of a model that are looked at when it is described."""


def levels(weight: torch.Tensor) -> torch.Tensor:
    """Return the numbers of different values in groups of 64 neighbouring weights, in some 64 rows
    of a matrix [n, d]; empty for d < 64.

    A format of b bits with one scale for 32 weights or more leaves at most 2^b; float32 and
    bfloat16 leave about 64 and 40. Where the halves of a group hold at most 16 values and the group
    holds more, the mean of the halves is returned: the format has blocks of 32, with or without an
    offset.

    >>> levels(torch.randn(8, 64).mul(4).round().clamp(-7, 8)).max().item() <= 16
    True
    """
    groups_in_row = weight.shape[1] // GROUP
    if groups_in_row == 0 or len(weight) == 0:
        return torch.zeros(0)
    step = max(1, len(weight) // ROWS)
    rows = weight.detach()[::step][:ROWS, : groups_in_row * GROUP]
    groups = rows.float().reshape(-1, GROUP)
    halves = groups.reshape(-1, GROUP // 2)

    values_of_groups = _distinct_values(groups)
    values_of_halves = _distinct_values(halves).reshape(-1, 2).mean(1)
    blocks_of_32 = (values_of_halves <= 16) & (values_of_groups > 16)
    return torch.where(blocks_of_32, values_of_halves, values_of_groups)


def _distinct_values(groups: torch.Tensor) -> torch.Tensor:
    """Return how many different values each row has."""
    changes = groups.sort(1).values.diff(dim=1).ne(0)
    return 1.0 + changes.sum(1)


def dequantised(model: nn.Module) -> str:
    """Return a sentence on weights that were rounded to few bits and are kept in full precision;
    "" where the four largest matrices beside the token tables were not.
    """
    matrices = []
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and weight.is_floating_point() and "emb" not in name:
            matrices.append(weight)
    matrices.sort(key=lambda weight: weight.numel(), reverse=True)
    for weight in matrices[:MATRICES]:
        values = levels(weight).float()
        median = float(values.median()) if len(values) else 0.0
        # A matrix of equal values, such as one that was never trained, was not rounded.
        if 1 < median <= FEW_VALUES:
            return (
                f"The weights were rounded before they were saved: 64 neighbours hold "
                f"{median:.0f} values."
            )
    return ""
