"""What fits into a budget of time: a preset by the model's speed, and deadlines that work keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch

from headscan.diagnosis.registry import CONDITIONS
from headscan.model import Lens
from headscan.model.settings import Loading
from headscan.run import Progress
from headscan.text.source import Reading, TextLike

T = TypeVar("T")

BUDGETS = {"2m": 120.0, "10m": 600.0, "full": float("inf")}
"""Seconds of each budget, for one source."""
MOST = {"2m": 16_384, "10m": 65_536}
FEWEST, FEW, SCAN = 256, 512, 20
"""Tokens that are always scanned, and that a slow model spends up to half of its budget on; the scan's part of all tokens
that could go through the model, of which each takes some two and a half passes with its statistics."""
PAGE = 0.04
"""The share of a budget that is kept for writing the result."""


class OutOfTime(Exception):
    """The time that a part of an examination has is over."""


@dataclass(frozen=True)
class Deadline:
    """When work has to stop, in seconds of `time.perf_counter`.

    >>> Deadline(float("inf")).left, Deadline(float("inf")).within(-1).left < 0
    (inf, True)
    """

    at: float

    @classmethod
    def of(cls, budget: str) -> Deadline:
        """That of a budget which begins now; what it takes to write the result is kept free."""
        return cls(float("inf")).within((1 - PAGE) * BUDGETS[budget])

    @property
    def left(self) -> float:
        return self.at - time.perf_counter()

    def within(self, seconds: float) -> Deadline:
        """After so many seconds, or when this one is, whichever is earlier."""
        return Deadline(min(self.at, time.perf_counter() + seconds))

    def kept(self, progress: Progress, *, more: bool = False) -> Progress:
        """A progress that raises `OutOfTime` once the time is over, unless it is told that all is done and no `more` follows."""

        def watched(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            progress(stage, done, total, unit)
            if self.left <= 0 and (more or done != total):
                raise OutOfTime(f"{stage}: {done}")

        return watched

    def each(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """The results of pieces of work, as many as end in time: none begins for which there is less time than the longest
        took before it."""
        results, longest = list[T](), 0.0
        for work in works:
            start = self.left
            if start <= longest:
                break
            try:
                results.append(work())
            except OutOfTime:
                break
            longest = max(longest, start - self.left)
        return results


@dataclass(frozen=True, kw_only=True)
class ExaminationPlan:
    """What is done with one model; 0 is not at all."""

    passes: float  # the preset of models of which so many tokens or more go through in the budget
    prompts: int = 0  # how many, of 12 tokens, are inverted and counted in bits
    depth: float = 0.5  # at which share of the blocks
    flow: int = 0  # prompts whose tokens are replaced
    passages: int = 0  # of 16 tokens, that remedies are tried on
    tokens: int | None = None  # of the text that are scanned at most; None for all


PRESETS = (
    ExaminationPlan(passes=float("inf"), prompts=4, flow=4, passages=4096),
    ExaminationPlan(passes=200_000, prompts=4, flow=4, passages=1024),
    ExaminationPlan(passes=60_000, prompts=4, flow=4, passages=384),
    ExaminationPlan(passes=20_000, prompts=4, depth=0.25, flow=4, passages=128),
    ExaminationPlan(passes=5_000, prompts=1, depth=0.1), ExaminationPlan(passes=0),
)  # fmt: skip


def planned(budget: str, seconds: float, tokens: int | None = None) -> ExaminationPlan:
    """The plan of a model that takes so many seconds a token, of at most so many tokens.

    >>> planned("2m", 1e-4).prompts, planned("2m", 1e-4).depth
    (4, 0.5)
    >>> large = planned("10m", 0.02)                        # 1.5 billion parameters on two cores
    >>> large.tokens, large.prompts, large.depth, large.passages
    (1500, 4, 0.25, 128)
    """
    passes = BUDGETS[budget] / seconds
    preset = next(plan for plan in PRESETS if passes >= plan.passes)
    if budget == "full":
        return replace(preset, tokens=tokens)
    size = max(FEWEST, passes / SCAN, min(FEW, passes / 4))
    return replace(preset, tokens=round(min(size, MOST[budget], tokens or MOST[budget])))


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


@dataclass(frozen=True, kw_only=True)
class CheckingUp(Loading, Reading):
    """The options of a checkup; see each one's help."""

    text: TextLike | None
    budget: Literal["2m", "10m", "full"]
    fail_on: str | Sequence[str] | None
    checkpoints: bool
    context: int
    seed: int

    def check(self) -> None:
        super().check()
        self.failing()

    def failing(self) -> list[str]:
        """The codes at which the command fails."""
        if self.fail_on is None:
            return []
        return CONDITIONS.match(self.fail_on if isinstance(self.fail_on, str) else ",".join(self.fail_on))
