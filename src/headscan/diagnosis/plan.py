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
SHAPE, INVERSION = 0.55, 0.3
# Passes of the model's text: the scan with its anatomy, the loss; the same of the random twin.
ONE, TWIN = 2.2, 2.0
LEAST, FITTED, PROMPT = 1024, 8192, 12


@dataclass(frozen=True, kw_only=True)
class ExaminationPlan:
    """What is done with one model.

    Attributes:
        tokens: of the text that are read; None for all. null: whether the random twin reads them, too.
        prompts: how many, of 12 tokens, are inverted; 0 for none. skipped: what there is no time for, as sentences.
    """

    tokens: int | None
    null: bool
    prompts: int
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

    >>> planned("2m", 1e-4, 4096)
    ExaminationPlan(tokens=16384, null=True, prompts=4, skipped=[])
    >>> small = planned("2m", 0.02, 151_936)                # 1.5 billion parameters on two cores
    >>> small.tokens, small.null, small.prompts, len(small.skipped)
    (1500, False, 0, 2)
    """
    if budget == "full":
        return ExaminationPlan(tokens=tokens, null=True, prompts=4)
    share, skipped = SHAPE * BUDGETS[budget] / seconds, list[str]()
    most = min(MOST[budget], tokens or MOST[budget])
    null = share / (ONE + TWIN) >= min(2 * LEAST, most)
    if not null:
        skipped.append(f"Random weights were not scanned for comparison: a pass takes {1000 * seconds:.1f} ms a token.")
    # Beyond some thousand tokens candidates are ordered by a readout, which one pass of 8,192 tokens fits.
    fitting = FITTED if vocabulary > FITTED else 0
    possible = (INVERSION * BUDGETS[budget] / seconds - fitting) / (64 * PROMPT)
    prompts = max(0, min(4, int(possible)))
    if not prompts:
        skipped.append(f"No prompt was inverted: there was no time in {budget}.")
    read = round(min(most, max(LEAST, share / (ONE + TWIN * null))))
    return ExaminationPlan(tokens=read, null=null, prompts=prompts, skipped=skipped)
