"""What running a slice costs, and which tokens of a large vocabulary are tried for a bounded cost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.model import Lens

__all__ = ["affordable", "multiplications", "near_and_random", "untried"]

_CPU, _GPU = 6e12, 6e14
"""Multiplications that a default may spend: two to three minutes of two cores or one (measured: 3 to 6e10 a second), so that
a machine with other work needs no ten; on a GPU a minute (by its specification)."""


def multiplications(lens: Lens, sites: Sequence[str]) -> float:
    """Multiplications a token up to the deepest block of the sites: the weights of the matrices that it passes."""
    tables = {id(module.weight) for module in _tables(lens)}
    body = sum(weight.numel() for weight in lens.model.parameters() if weight.ndim > 1 and id(weight) not in tables)
    blocks = [int(found[1]) for site in sites if (found := re.search(r"block\.(\d+)", site))]
    deepest = max(blocks) + 1 if blocks and len(blocks) == len(sites) else lens.depth
    return float(max(body, 1)) * min(deepest / max(lens.depth, 1), 1.0)


def affordable(lens: Lens, cost: float, share: float = 1.0) -> int:
    """How many pieces of work, each of `cost` multiplications, a default may do with a share of its budget."""
    return int(share * (_CPU if lens.device.type == "cpu" else _GPU) / max(cost, 1.0))


def untried(drawn: int, confidence: float = 0.95) -> float:
    """The largest share of the tokens not tried that fit, if none of so many drawn ones does, at this confidence.

    1 − (1 − confidence)^(1/drawn), exact for draws with replacement (Clopper, Pearson 1934), above what it is without.

    >>> round(untried(300), 4)
    0.0099
    """
    return float(1 - (1 - confidence) ** (1 / drawn))


def near_and_random(lens: Lens, token: int, count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """`count` other tokens: half those whose input vectors are nearest to the token's, half drawn from the rest.

    The nearest are the likeliest to be taken for it; the others say what chance gives. O(V e).
    """
    table = lens.input_embeddings.detach()
    apart = table.float().square().sum(1) - 2 * (table @ table[token]).float()
    apart[token] = -torch.inf  # the first of all, and left out
    order = apart.argsort().cpu()[1:]
    near, rest = order[: count // 2], order[count // 2 :]
    return torch.cat([near, rest[torch.randperm(len(rest), generator=generator)[: count - len(near)]]])


def _tables(lens: Lens) -> list[torch.nn.Embedding | torch.nn.Linear]:
    """The modules that have a row for each token."""
    found = (lens.model.get_input_embeddings(), lens.model.get_output_embeddings())
    return [module for module in found if isinstance(module, torch.nn.Embedding | torch.nn.Linear)]
