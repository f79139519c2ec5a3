"""What fits into a budget of time: from the speed of a first pass, from a first scan, and by deadlines that work keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
# Shares of the budget; the rest is for loading, the page, and for being wrong.
SHAPE, LEAK, FLOW, CURE = 0.42, 0.22, 0.05, 0.1
# Passes of the model's text: the scan with its anatomy, the loss; the same of the random twin.
ONE, TWIN = 2.2, 2.0
LEAST, FITTED, PROMPT, PASSAGE, PASSAGES = 1024, 8192, 12, 16, 1024
SAFE, PAGE, LOST = 1.25, 0.04, 8192
"""By how much a scan may take longer than a first one promised; the share of a budget that is kept for the result; tokens that
the loss is of, at most."""
CANDIDATES, TOLD = 256, 32
"""Tokens of a position that the bits are counted over, and that are tried for what an output tells of another token."""


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
        """A progress that raises `OutOfTime` once the time is over: whatever tells it how far it is, stops there, unless it says
        that all is done and no `more` follows."""

        def told(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            progress(stage, done, total, unit)
            if self.left <= 0 and (more or done != total):
                raise OutOfTime(f"{stage}: {done}")

        return told

    def each(self, works: list[Callable[[], T]]) -> list[T]:
        """What pieces of work give, one after another, as many as end in time: none begins for which there is less time than
        the longest took before it."""
        found, longest = list[T](), 0.0
        for work in works:
            start = self.left
            if start <= longest:
                break
            try:
                found.append(work())
            except OutOfTime:
                break
            longest = max(longest, start - self.left) if start < float("inf") else 0.0
        return found


@dataclass(frozen=True)
class ScanCost:
    """Seconds of a scan, from one that was timed: of each token's pass and of its loss, and whatever the tokens.

    >>> cost = ScanCost(fixed=10.0, token=0.01, loss=0.01)
    >>> cost.tokens(1.25 * 50), cost.tokens(1.25 * 1010)
    (2000, 91808)
    """

    fixed: float
    token: float
    loss: float

    @classmethod
    def of(cls, tokens: int, seconds: float, passing: float, losing: float) -> ScanCost:
        """A scan of so many tokens, the seconds that it took, and those of them that its pass and its loss took."""
        return cls(max(0.0, seconds - passing - losing), passing / tokens, losing / tokens)

    def tokens(self, seconds: float) -> int:
        """Of how many tokens a scan takes no longer, even if it is slower by a quarter than the first was."""
        room = seconds / SAFE - self.fixed
        few = room / max(self.token + self.loss, 1e-12)
        return int(few if few <= LOST else (room - LOST * self.loss) / max(self.token, 1e-12))


@dataclass(frozen=True, kw_only=True)
class ExaminationPlan:
    """What is done with one model.

    Attributes:
        tokens: of the text that are read at most; None for all. null: whether the random twin reads them, too, if a first scan
            leaves time for it. first: tokens of that scan.
        prompts: how many, of 12 tokens, are inverted and counted in bits; 0 for none. depth: at which share of the blocks.
        flow: prompts whose tokens are replaced; told: tokens tried for what one output tells of another; 0 for none.
        passages: of 16 tokens, that remedies are tried on; 0 for none. skipped: what there is no time for, as sentences.
    """

    tokens: int | None
    null: bool
    prompts: int
    first: int = LEAST
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


def drawing(weights: int) -> float:
    """Seconds that it takes to draw so many random weights, from a million of them."""
    some, clock = torch.empty(2**20), time.perf_counter()
    some.normal_()
    return weights / len(some) * (time.perf_counter() - clock)


def planned(budget: str, seconds: float, vocabulary: int, tokens: int | None = None) -> ExaminationPlan:
    """The plan of a model that takes so many seconds a token, of at most so many tokens.

    >>> planned("2m", 1e-4, 4096).prompts, planned("2m", 1e-4, 4096).depth
    (4, 0.5)
    >>> large = planned("10m", 0.02, 151_936)               # 1.5 billion parameters on two cores
    >>> large.tokens, large.null, large.prompts, large.depth, large.told, large.passages
    (3000, True, 4, 0.25, 0, 187)
    >>> [one.split(":")[0] for one in planned("2m", 0.02, 151_936).skipped]
    ['Random weights were not scanned for comparison', 'Flow between tokens was not measured', 'No remedy was tried']
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
    # The first scan is made whatever it takes: a slow model reads less in it.
    first = round(min(read, LEAST, max(LEAST / 4, SHAPE * passes / ONE)))
    return ExaminationPlan(
        tokens=read, null=null, prompts=prompts, depth=depth, flow=flow, told=told, passages=passages, skipped=skipped,
        first=first,
    )  # fmt: skip


def afforded(plan: ExaminationPlan, cost: ScanCost, left: float, again: float) -> tuple[ExaminationPlan, list[str]]:
    """The plan with as large a scan as the time that is left has room for, with the random twin where that reads as much as
    the first scan did; and what there is none for. `again`: seconds in which the twin is there.

    >>> plan = planned("10m", 0.02, 151_936)
    >>> afforded(plan, ScanCost(fixed=30.0, token=0.03, loss=0.02), 500, 60)[0].tokens
    2920
    >>> afforded(plan, ScanCost(fixed=60.0, token=0.1, loss=0.02), 300, 60)[1][0][:62]
    'Random weights were not scanned for comparison: two more scans'
    """
    assert plan.tokens is not None  # of a budget
    both, said = cost.tokens((left - again) / 2), list[str]()
    if plan.null and both >= plan.first:
        return replace(plan, tokens=min(plan.tokens, both)), said
    if plan.null:
        seconds = again + 2 * SAFE * (cost.fixed + plan.first * (cost.token + cost.loss))
        said.append(
            f"Random weights were not scanned for comparison: two more scans of {plan.first:,} tokens were to take "
            f"{seconds:.0f} s, and {max(0.0, left):.0f} s were left."
        )
    alone = min(plan.tokens, cost.tokens(left))
    # What a first scan has read is not read again for little more.
    return replace(plan, tokens=alone if alone >= 1.5 * plan.first else plan.first, null=False), said


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


@dataclass(frozen=True, kw_only=True)
class CheckingUp(Loading, Reading):
    """The options of a checkup; see each one's help."""

    text: TextLike | None
    budget: Literal["2m", "10m", "full"]
    fail_on: str | Sequence[str] | None
    contribute: bool
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
