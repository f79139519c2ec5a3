"""What the weights of a model show without a text: the grid of all matrices, and the order of the
token table.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import nn

from headscan.diagnosis.evidence import EqualRows, Grid
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
        if not weight.is_floating_point() or weight.ndim not in (2, 3):
            continue
        # Experts stand in one parameter; matrices may be on several devices.
        levels_of_matrix = levels(weight.flatten(0, -2)).float().cpu()
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


def fingerprint_of(model: nn.Module) -> str:
    """Return a hash of the shapes of all weights and of 64 evenly spaced values of each.

    A model has it whatever it is called and however it was loaded.
    """
    digest = hashlib.sha256()
    for weight in model.parameters():
        values = weight.detach().reshape(-1)
        step = max(1, len(values) // GROUP)
        sample = values[::step][:GROUP].float().cpu()
        digest.update(str(list(weight.shape)).encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def equal_rows_of(lens: Lens, token_ids: Sequence[int]) -> EqualRows | None:
    """Return which tokens of a text have equal rows in the token table; None without a table."""
    table = getattr(lens.model.get_input_embeddings(), "weight", None)
    if table is None or table.ndim != 2 or not token_ids:
        return None
    distinct = torch.tensor(sorted(set(token_ids)), device=table.device)
    rows = table.detach()[distinct].float().cpu()
    distinct = distinct.cpu()
    _, group_of_row, counts = rows.unique(dim=0, return_inverse=True, return_counts=True)
    sharing = (counts[group_of_row] > 1).nonzero()[:, 0]
    examples = []
    if len(sharing):
        first_group = group_of_row == group_of_row[sharing[0]]
        examples = distinct[first_group][:2].tolist()
    return EqualRows(tokens=len(distinct), equal=len(sharing), examples=examples)


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
    # Equal rows have a condition of their own (HS218), and say nothing of an order.
    differ = (rows != next_rows).any(1)
    rows = rows[differ]
    next_rows = next_rows[differ]
    if len(rows) < GROUP:
        return None, None
    mean = rows.mean(0)

    # The norms of normal rows of dimension d spread by 1 / sqrt(2 d) of their mean.
    norms = (rows - mean).norm(dim=1)
    spread = norms.std() / norms.mean().clamp_min(1e-12) * (2 * table.shape[1]) ** 0.5

    rows = torch.nn.functional.normalize(rows - mean)
    next_rows = torch.nn.functional.normalize(next_rows - mean)
    distant_rows = next_rows.roll(len(rows) // 2, 0)
    gain = (rows * next_rows).sum(1) - (rows * distant_rows).sum(1)
    standard_errors = gain.mean() / gain.std().clamp_min(1e-12) * len(gain) ** 0.5
    return float(standard_errors), float(spread)
