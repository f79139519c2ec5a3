"""The plan of a checkup follows from its budget and the speed of a short trial; later the clock
only leaves whole stages out.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from headscan.diagnosis.registry import CONDITIONS
from headscan.model import Lens
from headscan.model.settings import Loading
from headscan.run import Progress
from headscan.scanner.cautions import FEW
from headscan.states.source import reading_window
from headscan.text.source import Reading, TextLike

Budget = Literal["2m", "10m", "full"]
BUDGETS = {"2m": 120.0, "10m": 600.0, "full": float("inf")}
"""Seconds of each budget, for one source."""
MOST = {"2m": 16_384, "10m": 65_536}
TRIAL = 2048
"""Tokens that a model reads at most in a trial that shows its speed."""
FIRST = 16
"""Tokens of the pass before it, which is not timed."""
LONG_ENOUGH = 0.05
"""Seconds of a trial that is long enough."""
FEWEST = 256
SCAN = 20
"""Tokens that are always scanned; the scan's part of all tokens that could go through the model. As
many as an alarm needs (`FEW`) are scanned wherever the budget has room for them, before anything
else.
"""
REMOVED = 10
"""The share of a budget's passes, as one over it, that blocks are taken out in turn with, on 512
tokens at least.
"""
SENTENCE_TOKENS = 16
"""Tokens of a sentence that plans for sentence encoders are made with."""
PAGE = 0.04
"""The share of a budget that is kept for writing the result."""


class OutOfTime(Exception):
    """The time that a part of an examination has is over."""


@dataclass(frozen=True)
class Deadline:
    """The time at which work has to stop, in seconds of `time.perf_counter`.

    >>> Deadline(float("inf")).left, Deadline(float("inf")).within(-1).left < 0
    (inf, True)
    """

    at: float

    @classmethod
    def of(cls, budget: str) -> "Deadline":
        """Return the deadline of a budget that begins now, less the time to write the result."""
        return cls(float("inf")).within((1 - PAGE) * BUDGETS[budget])

    @property
    def left(self) -> float:
        """Return the seconds that are left; below 0 once the time is over."""
        return self.at - time.perf_counter()

    def within(self, seconds: float) -> "Deadline":
        """Return a deadline after so many seconds, or this one where it is earlier."""
        return Deadline(min(self.at, time.perf_counter() + seconds))

    def kept(self, progress: Progress, *, more: bool = False) -> Progress:
        """Return a progress that raises `OutOfTime` once the time is over, unless it is told that
        all is done and no `more` follows.

        A stage that was begun is then left out whole: no result is of a part of what was planned.
        """

        def watched(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            progress(stage, done, total, unit)
            if self.left <= 0 and (more or done != total):
                raise OutOfTime(f"{stage}: {done}")

        return watched


@dataclass(frozen=True, kw_only=True)
class ExaminationPlan:
    """The measurements that are done with one model; a part with 0 is left out."""

    passes: float  # the preset of models of which so many tokens or more go through in the budget
    prompts: int = 0  # how many, of 12 tokens, are inverted and counted in bits
    depth: float = 0.5  # at which share of the blocks
    flow: int = 0  # prompts whose tokens are replaced
    passages: int = 0  # of 16 tokens, that remedies are tried on
    # tokens that go through the model without each of its blocks, over the number of blocks
    removed: int = 0
    tokens: int | None = None  # of the text that are scanned at most; None for all


PRESETS = (
    ExaminationPlan(passes=float("inf"), prompts=4, flow=4, passages=4096),
    ExaminationPlan(passes=200_000, prompts=4, flow=4, passages=1024),
    ExaminationPlan(passes=60_000, prompts=4, flow=4, passages=384),
    ExaminationPlan(passes=20_000, prompts=2, depth=0.25, flow=4, passages=128),
    ExaminationPlan(passes=5_000, prompts=1, depth=0.1),
    ExaminationPlan(passes=0),
)


def planned(
    budget: str, seconds: float, tokens: int | None = None, *, enough: int = FEW
) -> ExaminationPlan:
    """The plan of a model that takes so many seconds a token, of at most so many tokens.

    `enough` tokens are planned for the scan wherever the budget has room for them: without them no
    alarm can be raised.

    >>> planned("2m", 1e-4).prompts, planned("2m", 1e-4).depth
    (4, 0.5)
    >>> large = planned("10m", 0.02)                        # 1.5 billion parameters on two cores
    >>> large.tokens, large.prompts, large.depth, large.passages
    (2048, 2, 0.25, 128)
    >>> planned("2m", 0.05).tokens                          # 102 seconds for what an alarm needs
    2048
    >>> planned("2m", 0.1).tokens                           # the same would take 205 seconds
    256
    """
    passes = BUDGETS[budget] / seconds
    preset = next(plan for plan in PRESETS if passes >= plan.passes)
    if budget == "full":
        return replace(preset, tokens=tokens, removed=2**62)
    affordable = passes * (1 - PAGE)
    needed = next((size for size in (enough, FEW) if size <= affordable), FEWEST)
    size = max(needed, min(passes / SCAN, MOST[budget]))
    return replace(
        preset,
        tokens=round(min(size, tokens or size)),
        removed=round(passes / REMOVED),
    )


def enough_tokens(lens: Lens, context: int | None) -> int:
    """Return how many tokens to ask for so that at least `FEW` are read: only whole windows are.

    A sentence encoder is judged by its sentence vectors: `FEW` documents of `SENTENCE_TOKENS`
    tokens, each read by itself. `context`: tokens of a window, None: by default.
    """
    alone, length = reading_window(lens, context)
    if alone:
        return FEW * min(length, SENTENCE_TOKENS)
    return math.ceil(FEW / length) * length


def work(lens: Lens, context: int | None = None) -> float:
    """Return the seconds that a token of a forward pass takes on the model's device, for a plan.

    They are those of a short trial, rounded to a power of two: trials of one machine differ by some
    hundredths, and it shall make the same plan again. `context`: tokens of a window, None: by
    default.
    """
    _, length = reading_window(lens, context)
    if lens.context_length is not None:
        length = min(length, lens.context_length)
    return 2.0 ** round(math.log2(_timed(lens, length)))


def _timed(lens: Lens, length: int) -> float:
    """Return the seconds a token takes in a trial of windows of this length, which is so long that
    it can be timed.
    """
    _seconds(lens, 1, min(length, FIRST))  # the first pass reads the weights and makes tables
    windows = 1
    seconds = _seconds(lens, windows, length)
    while seconds < LONG_ENOUGH and 4 * windows * length <= TRIAL:
        windows *= 4
        seconds = _seconds(lens, windows, length)
    if seconds < 10 * LONG_ENOUGH:
        seconds = min(seconds, _seconds(lens, windows, length))
    return max(seconds, 1e-9) / (windows * length)


def _seconds(lens: Lens, windows: int, length: int) -> float:
    """Return the seconds of a forward pass through the whole model."""
    ids = torch.arange(windows * length).reshape(windows, length) % lens.vocabulary_size
    start = time.perf_counter()
    lens.run(ids, sites=lens.sites[-1:], each=_wait)
    return time.perf_counter() - start


def _wait(_: str, states: torch.Tensor) -> None:
    """Wait until a device has computed these states: one number of them is read."""
    float(states.flatten()[0])


@dataclass(frozen=True, kw_only=True)
class CheckupInputs:
    """The inputs that every stage of a checkup reads.

    Attributes:
        text: what models read; None where only stored states are examined.
        reading: how the text falls into documents, and how much of it is read.
        loading: how models are loaded.
        context: tokens of a window; None: by default.
        budget: what a model may cost.
    """

    text: TextLike | None
    reading: Reading
    loading: Loading
    context: int | None
    budget: Budget
    seed: int

    def reading_of(self, max_tokens: int | None) -> dict[str, Any]:
        """Return the options of a verb that reads at most so many tokens of the text."""
        reading = self.reading
        return {
            "documents": reading.documents,
            "field": reading.field,
            "max_tokens": max_tokens,
            "start": reading.start,
        }

    def require_text(self) -> TextLike:
        """Return the text; there is one wherever a model is examined."""
        assert self.text is not None
        return self.text


def failing_codes(fail_on: str | Sequence[str] | None) -> list[str]:
    """Return the codes at which the command fails.

    Raises:
        BadInput: for a glob that matches no code.
    """
    if fail_on is None:
        return []
    return CONDITIONS.match(fail_on if isinstance(fail_on, str) else ",".join(fail_on))
