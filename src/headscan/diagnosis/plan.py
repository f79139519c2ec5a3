"""What fits into a budget of time: from the speed of a first pass, before any of the work is done."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from headscan.model import Lens

__all__ = ["BUDGETS", "ExaminationPlan", "pace", "planned"]

BUDGETS = {"2m": 120.0, "10m": 600.0, "full": float("inf")}
"""Seconds of each budget, for one source."""
MOST = {"2m": 16_384, "10m": 65_536}
# Shares of the budget; the rest is for loading, the page, and for being wrong.
SHAPE, LEAK, FLOW, CURE = 0.42, 0.22, 0.05, 0.1
# Passes of the model's text: the scan with its anatomy, the loss; the same of the random twin.
ONE, TWIN = 2.2, 2.0
LEAST, FITTED, PROMPT, PASSAGE, PASSAGES = 1024, 8192, 12, 16, 1024
CANDIDATES, TOLD = 256, 32
"""Tokens of a position that the bits are counted over, and that are tried for what an output tells of another token."""


@dataclass(frozen=True, kw_only=True)
class ExaminationPlan:
    """What is done with one model.

    Attributes:
        tokens: of the text that are read; None for all. null: whether the random twin reads them, too.
        prompts: how many, of 12 tokens, are inverted and counted in bits; 0 for none. depth: at which share of the blocks.
        flow: prompts whose tokens are replaced; told: tokens tried for what one output tells of another; 0 for none.
        passages: of 16 tokens, that remedies are tried on; 0 for none. skipped: what there is no time for, as sentences.
    """

    tokens: int | None
    null: bool
    prompts: int
    depth: float = 0.5
    flow: int = 4
    told: int = TOLD
    passages: int = PASSAGES
    skipped: list[str] = field(default_factory=list)


def pace(lens: Lens, context: int) -> float:
    """Seconds a token of a forward pass of one window; the second of two, since the first allocates."""
    length = min(context, lens.context_length or context)
    ids = torch.arange(length, device=lens.device)[None] % lens.vocabulary_size
    took = 0.0
    for _ in range(2):
        clock = time.perf_counter()
        lens.run(ids, sites=lens.default_sites[-1])
        took = time.perf_counter() - clock
    return took / length


def planned(budget: str, seconds: float, vocabulary: int, tokens: int | None = None) -> ExaminationPlan:
    """The plan of a model that takes so many seconds a token, of at most so many tokens.

    >>> planned("2m", 1e-4, 4096).prompts, planned("2m", 1e-4, 4096).depth
    (4, 0.5)
    >>> large = planned("10m", 0.02, 151_936)               # 1.5 billion parameters on two cores
    >>> large.tokens, large.null, large.prompts, large.depth, large.told, large.passages
    (3000, True, 4, 0.25, 0, 187)
    >>> [one.split(":")[0] for one in planned("2m", 0.02, 151_936).skipped]
    ['Random weights were not scanned for comparison', 'No prompt was inverted', 'No remedy was tried']
    """
    if budget == "full":
        return ExaminationPlan(tokens=tokens, null=True, prompts=4, passages=4 * PASSAGES)
    passes, skipped = BUDGETS[budget] / seconds, list[str]()  # tokens that go through the model in that time
    most = min(MOST[budget], tokens or MOST[budget])
    null = SHAPE * passes / (ONE + TWIN) >= min(2 * LEAST, most)
    if not null:
        skipped.append(f"Random weights were not scanned for comparison: a pass takes {1000 * seconds:.1f} ms a token.")
    prompts, depth = _inverted(LEAK * passes, vocabulary)
    if not prompts:
        skipped.append(f"No prompt was inverted: there was no time in {budget}.")
    pairs = PROMPT * (PROMPT + 1) / 2
    told = TOLD if FLOW * passes >= 4 * TOLD * pairs else 0
    flow = 4 if FLOW * passes >= 4 * 2 * pairs else 3 if FLOW * passes >= 3 * 2 * pairs else 0
    if not flow:
        skipped.append(f"Flow between tokens was not measured: there was no time in {budget}.")
    passages = min(PASSAGES, int(CURE * passes / PASSAGE))
    if passages < 64:
        passages = 0
        skipped.append(f"No remedy was tried: there was no time in {budget}.")
    read = round(min(most, max(LEAST, SHAPE * passes / (ONE + TWIN * null))))
    return ExaminationPlan(
        tokens=read, null=null, prompts=prompts, depth=depth, flow=flow, told=told, passages=passages, skipped=skipped
    )


def _inverted(passes: float, vocabulary: int) -> tuple[int, float]:
    """How many prompts, at which depth: a middle block where two can be afforded, else an earlier one; 0 for none."""
    # Beyond some thousand tokens candidates are ordered by a readout, which one pass of 8,192 tokens fits.
    fitting = FITTED if vocabulary > FITTED else 0
    for least in (2, 1):
        for depth in (0.5, 0.25, 0.1):
            prompts = min(4, int((passes / depth - fitting) / (PROMPT * (64 + min(CANDIDATES, vocabulary)))))
            if prompts >= least:
                return prompts, depth
    return 0, 0.5
