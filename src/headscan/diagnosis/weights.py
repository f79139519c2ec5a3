"""What the weights of a model show without a text: the grid of all matrices, and the order of the
token table.
"""

import torch
from torch import nn

from headscan.diagnosis.evidence import Grid
from headscan.model import Lens
from headscan.model.grid import GROUP, levels

NEIGHBOURS = 8192
"""Pairs of neighbouring rows of the token table that are compared."""


def grid_of(model: nn.Module) -> Grid | None:
    """Return the grid of all matrices of at least 64 columns; None where there is none in floating
    point.
    """
    levels_by_name = {}
    medians = {}
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.ndim != 2:
            continue
        levels_of_matrix = levels(weight).float()
        if len(levels_of_matrix) == 0:
            continue
        median = float(levels_of_matrix.median())
        # A matrix of equal values, such as one that was never trained, was not rounded.
        if median > 1:
            levels_by_name[name] = levels_of_matrix
            medians[name] = median
    if not medians:
        return None
    coarsest = min(medians, key=medians.__getitem__)
    all_levels = torch.cat(list(levels_by_name.values()))
    return Grid(
        levels=float(all_levels.median()),
        groups=len(all_levels),
        coarsest=coarsest,
        coarsest_levels=medians[coarsest],
    )


def vocabulary_order(lens: Lens) -> tuple[float | None, float | None]:
    """Return how much more alike neighbouring rows of the token table are than rows far apart, and
    the spread of the rows' norms.

    The first, of cosines, is in standard errors: about 0 for permuted or untrained rows; at most
    8,192 evenly spaced pairs of neighbours are compared. The second is of the same rows about their
    mean, over that of normal rows: 1 where they were never trained. Both are None for a model
    without a table of at least 64 rows.
    """
    table = getattr(lens.model.get_input_embeddings(), "weight", None)
    if table is None or table.ndim != 2 or len(table) < GROUP:
        return None, None
    table = table.detach()
    pairs = min(NEIGHBOURS, len(table) - 1)
    first = torch.linspace(0, len(table) - 2, pairs).long()
    rows = table[first].float()
    next_rows = table[first + 1].float()
    mean = rows.mean(0)

    # The norms of normal rows of dimension d spread by 1 / sqrt(2 d) of their mean.
    norms = (rows - mean).norm(dim=1)
    spread = norms.std() / norms.mean().clamp_min(1e-12) * (2 * table.shape[1]) ** 0.5

    rows = torch.nn.functional.normalize(rows - mean)
    next_rows = torch.nn.functional.normalize(next_rows - mean)
    distant_rows = next_rows.roll(pairs // 2, 0)
    gain = (rows * next_rows).sum(1) - (rows * distant_rows).sum(1)
    standard_errors = gain.mean() / gain.std().clamp_min(1e-12) * len(gain) ** 0.5
    return float(standard_errors), float(spread)
