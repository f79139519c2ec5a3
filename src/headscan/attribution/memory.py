"""How much memory a pass takes, said before it runs, and the micro-batches that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from headscan.model import Lens
from headscan.run import BadInput
from headscan.text.settings import parse_bytes

__all__ = ["MemoryPlan", "parse_memory", "plan"]

GIB = 2**30
PACKED = 1024


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one row, and how many rows go through the model together.

    Attributes:
        row_bytes: estimated peak memory of one row of a pass beside the weights: activations, keys and values, logits.
        rows: rows of a micro-batch.
        budget: bytes that the micro-batch may take.
        slack: wasted tokens that cost as much as starting another pass; rows whose shared prefix differs by less
            are put together.
        tokens: tokens of one pass where rows are packed end to end.
        segment_slack: wasted tokens that cost as much as another segment of a packed pass.
    """

    row_bytes: int
    rows: int
    budget: int
    slack: int
    tokens: int
    segment_slack: int


def parse_memory(size: str | int) -> int:
    """An amount of memory in bytes: a number is in MiB, a text may name its unit.

    Raises:
        BadInput: it is no amount, or none above 0.

    >>> parse_memory("512MiB") == parse_memory(512) == parse_memory("512") == 2**29
    True
    """
    bare = isinstance(size, int) or size.strip().replace(".", "", 1).isdigit()
    found = parse_bytes(f"{size}MiB" if bare else size)
    if found <= 0:
        raise BadInput(f"An amount of memory is more than 0, not {size}; write for example 512MiB or 4GiB.")
    return found


def plan(
    lens: Lens, length: int, outputs: int, *, grad: bool = False, budget: int | None = None, rows: int | None = None
) -> MemoryPlan:
    """Estimate a row of `length` tokens read at `outputs` positions, and choose the micro-batch.

    Args:
        lens: the model.
        length: tokens of a row.
        outputs: positions that pass the head.
        grad: whether a backward pass follows, which keeps every layer's activations.
        budget: bytes; by default half of what is free on a GPU, else 1 GiB.
        rows: a fixed number of rows instead.

    The estimate: d features, L blocks, f the width of the feed-forward part; a token takes about (6 d + 2 f) numbers in
    flight, with gradients in each of the L blocks; a block's keys and values 2 d; attention scores T a head and token
    when gradients are kept; logits V a position, twice.
    """
    config: Any = lens.model.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or lens.input_embeddings.shape[1])
    inner = int(getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width)
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    size = max(lens.input_embeddings.element_size(), 2)
    in_flight = 6 * width + 2 * inner + (heads * length if grad else 0)
    numbers = length * (in_flight * (lens.depth if grad else 1) + 2 * width * lens.depth)
    row = numbers * size + outputs * lens.vocabulary_size * 8
    on_gpu = lens.device.type == "cuda"
    if budget is None:
        budget = torch.cuda.mem_get_info(lens.device)[0] // 2 if on_gpu else GIB
    # Starting a pass costs about what 1e9 operations cost (5e11 on a GPU), and 100 tokens of the smallest model here:
    # that many tokens may be computed in vain.
    body = sum(weight.numel() for weight in lens.model.parameters()) - lens.input_embeddings.numel()
    slack = int(min(max((5e11 if on_gpu else 1e9) / (2 * max(body, 1)), 32), 65_536 if on_gpu else 128))
    # Beyond a few thousand tokens a pass is no faster a token on a CPU: its working set leaves the cache.
    most = (65_536 if on_gpu else 4_096) // max(length, 1)
    count = rows or max(1, min(int(budget // max(row, 1)), max(most, 1)))
    # Measured: matrix products are at their best from a few hundred tokens on, and the working set should stay in the
    # cache; a segment costs two attention calls a block, about the time of 3e6 operations.
    fitting = count * length if rows or on_gpu else min(count * length, max(PACKED, length))
    segment_slack = int(min(max(3e6 * lens.depth / (2 * max(body, 1)), 8), 64)) if not on_gpu else slack
    return MemoryPlan(row, count, budget, slack, fitting, segment_slack)
