"""The cost of running a slice, and how much of it a default may spend."""

import re
from collections.abc import Sequence

import torch

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import can_continue

CPU_MULTIPLICATIONS = 6e12
"""Multiplications that a default may spend on a CPU: two to three minutes of two cores or one,
which do 3e10 to 6e10 a second (measured), so that a busy machine needs less than ten.
"""

GPU_MULTIPLICATIONS = 6e14
"""Multiplications that a default may spend on a GPU: a minute, by its specification."""


def computed_tokens(lens: Lens, slice_: Slice, length: int) -> int:
    """Return the tokens that pass the slice when each position of a prompt is changed once.

    A key-value cache spares those before the position.
    """
    if can_continue(slice_.on(lens)):
        return length * (length + 1) // 2
    return length * length


def multiplications(lens: Lens, sites: Sequence[str]) -> float:
    """Return the multiplications a token up to the deepest block of the sites.

    They are the numbers of the matrices that the token passes.
    """
    tables = set()
    for module in (lens.model.get_input_embeddings(), lens.model.get_output_embeddings()):
        if isinstance(module, torch.nn.Embedding | torch.nn.Linear):
            tables.add(id(module.weight))
    body = 0
    for weight in lens.model.parameters():
        if weight.ndim > 1 and id(weight) not in tables:
            body += weight.numel()

    blocks = [re.search(r"block\.(\d+)", site) for site in sites]
    numbers = [int(match[1]) for match in blocks if match is not None]
    all_in_blocks = bool(numbers) and len(numbers) == len(sites)
    deepest = max(numbers) + 1 if all_in_blocks else lens.depth
    return float(max(body, 1)) * min(deepest / max(lens.depth, 1), 1.0)


def affordable(lens: Lens, cost: float, share: float = 1.0) -> int:
    """Return how many pieces of work a default may do with a share of its budget.

    Each piece takes `cost` multiplications.
    """
    budget = CPU_MULTIPLICATIONS if lens.device.type == "cpu" else GPU_MULTIPLICATIONS
    return int(share * budget / max(cost, 1.0))


def untried(drawn: int, confidence: float = 0.95) -> float:
    """Return the largest share of the tokens not tried that fit, if none of the drawn ones does.

    1 − (1 − confidence)^(1/drawn), exact for draws with replacement (Clopper, Pearson 1934), above
    what it is without.

    >>> round(untried(300), 4)
    0.0099
    """
    return float(1 - (1 - confidence) ** (1 / drawn))
