"""The embedding table that a slice reads its tokens from: other tables, and rows that are equal."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.lens import Lens
from headscan.run import BadInput

__all__ = ["equal_rows", "other_table"]


def other_table(name: str, lens: Lens) -> Float[Tensor, "V e"]:
    """The table "random:SEED", with the standard deviation of the model's own, or that of the model `name`.

    Raises:
        BadInput: that model's table has another shape.
    """
    own = lens.input_embeddings
    kind, _, seed = name.partition(":")
    if kind == "random" and seed.isdigit():
        generator = torch.Generator().manual_seed(int(seed))
        return (torch.randn(own.shape, generator=generator) * own.detach().float().std().cpu()).to(own)
    table = Lens.load(name).input_embeddings
    if table.shape != own.shape:
        raise BadInput(
            f"The embedding table of '{name}' has the shape {list(table.shape)}, not {list(own.shape)} as in '{lens.name}'."
        )
    return table.to(own)


def equal_rows(table: Float[Tensor, "V e"]) -> dict[int, list[int]]:
    """The rows that are equal to others, by row; those of their own are not in it.

    >>> equal_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    {0: [0, 2], 2: [0, 2]}
    """
    # Equal rows have equal sums along any direction; the few that agree there are compared whole.
    direction = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(0))
    sums = torch.cat([(rows.double().cpu() * direction.double()).sum(1) for rows in table.split(4096)])
    _, group, counts = sums.unique(return_inverse=True, return_counts=True)
    found: dict[int, list[int]] = {}
    for row in (counts[group] > 1).nonzero()[:, 0].tolist():
        if row not in found:
            alike = (group == group[row]).nonzero()[:, 0]
            same = alike[(table[alike.to(table.device)] == table[row]).all(1).cpu()].tolist()
            if len(same) > 1:
                found |= dict.fromkeys(same, same)
    return found
