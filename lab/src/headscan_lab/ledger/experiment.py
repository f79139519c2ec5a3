"""What every experiment of the ledger is: parameters, words, the power it must have, and what it saw."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headscan.run import Interval, Registry
from headscan.statistics.uncertainty import score_interval, student, student_quantile

# ---- The parts of a claim's protocol: documents, verdicts, the values that count, the power asked for, what stands in.

DocumentName: TypeAlias = Literal["slides", "paper", "article", "field", "later"]
DOCUMENTS: dict[DocumentName, str] = {
    "slides": "Godey, Language models have cone-shaped heads",
    "paper": "Zhao, Behnia, Vakilian, Thrampoulidis, arXiv:2408.15417",
    "article": "Badger, Language Modeling and Discrete Encodings",
    "field": "What the field holds of states and leaks",
    "later": "Five later papers: 2404.07647, 2401.12143, 2603.10145, 2510.06477, 2511.14808",
}

Tendency: TypeAlias = Literal["supported", "refuted", "confounded", "undecided"]
"""What an experiment alone can say."""
ClaimVerdict: TypeAlias = Literal["supported", "refuted", "confounded", "misprint", "undecided", "not tested"]
VERDICTS: tuple[ClaimVerdict, ...] = ("supported", "refuted", "confounded", "undecided", "misprint", "not tested")


@dataclass(frozen=True)
class Region:
    """The values of a quantity that count: from `low` to `high`, both included; None is no bound.

    >>> str(Region(0.9, None)), str(Region(None, 0.5)), str(Region(-0.1, 0.1))
    ('at least 0.9', 'at most 0.5', 'from -0.1 to 0.1')
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("a region without bounds cannot fail")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a region runs upwards, not from {self.low} to {self.high}")

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" if self.high is None else f"from {self.low:g} to {self.high:g}"

    def bounds(self) -> list[float]:
        """Those there are, upwards."""
        return [bound for bound in (self.low, self.high) if bound is not None]

    def holds(self, value: float) -> bool:
        """Whether a value lies in it."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Power:
    """The least an experiment must have seen before it may decide: seeds, and tokens an arm."""

    seeds: int = 5
    tokens: int = 200


@dataclass(frozen=True)
class StandIn:
    """A small model or text that is examined in place of the claim's own, and why it may stand in."""

    name: str
    why: str


# ---- What an experiment measured: a number with an interval that never closes by luck, and what it rests on.
#
# Shares are clustered by prompt, and by seed where seeds differ more than their prompts explain (fresh weights, fresh
# training). Their interval is Wilson's score interval on the effective number of tokens p (1 - p)/var, with Student's
# quantile; where every prompt agrees no variance can be seen, and a prompt counts as one observation. Differences join
# two such intervals (Newcombe 1998, method 10), as if unpaired, which is the wider way.


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A measured number.

    Attributes:
        name: of what, in words.
        value, interval: the number and its 95 % interval (equal ends: computed, not sampled).
        unit: "share of tokens", "cosine", "nats", ...
        chance: what chance alone would give; None where chance means nothing.
        tokens, prompts, seeds: what it rests on.
    """

    name: str
    value: float
    interval: Interval
    unit: str = "share of tokens"
    chance: float | None = None
    tokens: int = 0
    prompts: int = 0
    seeds: int = 0

    def __str__(self) -> str:
        low, high = self.interval
        ends = "" if low == high else f" [{low:.3g}, {high:.3g}]"
        return f"{self.name} {self.value:.3g}{ends}"


def share_of(name: str, hits: Sequence[npt.ArrayLike], *, chance: float | None = None) -> Measurement:
    """A share from hits [prompts, tokens] (0 to 1) of each seed.

    >>> found = share_of("found", [[[1.0, 1.0]] * 8] * 5)
    >>> found.value, [round(end, 3) for end in found.interval], found.tokens, found.prompts, found.seeds
    (1.0, [0.907, 1.0], 80, 40, 5)
    """
    seeds = [np.asarray(one, dtype=np.float64) for one in hits]
    prompts = np.concatenate([one.mean(axis=1) for one in seeds])
    p, n, k = float(prompts.mean()), len(prompts), len(seeds)
    tokens = int(sum(one.size for one in seeds))
    effective, freedom = float(n), max(1, n - 1)
    by_prompt = float(prompts.var(ddof=1)) / n if n > 1 else 0.0
    by_seed = float(np.var([one.mean() for one in seeds], ddof=1)) / k if k > 1 else 0.0
    if max(by_prompt, by_seed) > 0 and 0 < p < 1:
        effective = min(float(tokens), max(float(k), p * (1 - p) / max(by_prompt, by_seed)))
        freedom = max(1, k - 1 if by_seed > by_prompt else n - 1)
    low, high = score_interval(p, effective, student_quantile(freedom))
    return Measurement(name=name, value=p, interval=(low, high), chance=chance, tokens=tokens, prompts=n, seeds=k)


def difference_of(name: str, high: Measurement, low: Measurement) -> Measurement:
    """The first share less the second, in [-1, 1].

    >>> ones, none = share_of("a", [[[1.0]] * 40] * 5), share_of("b", [[[0.0]] * 40] * 5)
    >>> [round(end, 3) for end in difference_of("a - b", ones, none).interval]
    [0.973, 1.0]
    """
    value = high.value - low.value
    down = ((high.value - high.interval[0]) ** 2 + (low.interval[1] - low.value) ** 2) ** 0.5
    up = ((high.interval[1] - high.value) ** 2 + (low.value - low.interval[0]) ** 2) ** 0.5
    return Measurement(
        name=name, value=value, interval=(max(-1.0, value - down), min(1.0, value + up)), chance=0.0, unit=high.unit,
        tokens=min(high.tokens, low.tokens), prompts=min(high.prompts, low.prompts), seeds=min(high.seeds, low.seeds),
    )  # fmt: skip


def mean_of(
    name: str, values: Sequence[float], *, unit: str, tokens: int = 0, prompts: int = 0, chance: float | None = None
) -> Measurement:
    """The mean of one number a seed (at least two), with Student's interval; `tokens` and `prompts` are those of all seeds.

    >>> [round(end, 2) for end in mean_of("x", [1.0, 2.0, 3.0], unit="nats").interval]
    [-0.48, 4.48]
    """
    return Measurement(
        name=name, value=float(np.mean(values)), interval=student(values), unit=unit, chance=chance, tokens=tokens,
        prompts=prompts, seeds=len(values),
    )  # fmt: skip


def exactly(name: str, value: float, *, unit: str, seeds: int = 1) -> Measurement:
    """A number that is computed and not sampled: `seeds` says on how many instances."""
    return Measurement(name=name, value=value, interval=(value, value), unit=unit, seeds=seeds)


SEEDS = 5
"""How often an experiment is repeated, each time with a seed of its own."""
PROMPTS = 20
"""Prompts of a repeat at least: where all 100 agree the interval is .038 wide, so that a share of 0 or 1 decides every rule;
at a half it is .1 to either side."""


@dataclass(frozen=True, kw_only=True)
class ExperimentWords:
    """What an experiment says of itself: the quantity, the values it can have, the test, and how far its answer reaches."""

    quantity: str
    test: str
    scope: str
    range: Interval = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ExperimentOutcome:
    """What an experiment saw.

    Attributes:
        effect: the quantity; None where it could not be measured, and `note` says why.
        control: what the effect is measured against to tell its cause; cause: the cause that it would show, a clause.
        works: the control on a case where its answer is known, so that its failing means something.
        beside: what else was measured.
        models: those examined, by their names.
    """

    effect: Measurement | None
    control: Measurement | None = None
    cause: str = ""
    works: Measurement | None = None
    beside: tuple[Measurement, ...] = ()
    models: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A measurement with parameters, which several claims may share.

    A subclass is a frozen dataclass in a file of `headscan_lab.ledger.experiments` under `@EXPERIMENTS.register(name)`.
    """

    words: ClassVar[ExperimentWords]
    power: ClassVar[Power] = Power()
    controlled: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From the options of a claim's row."""
        return cls(**options)

    @abstractmethod
    def observe(self, seed: int) -> ExperimentOutcome:
        """Measure under a master seed, from which everything random follows. Cost: seconds to a few minutes."""

    def closer(self) -> Self | None:
        """The same with four times the prompts; None where that would take too long, or is what it is."""
        return None

    def on(self, model: str) -> "Experiment | None":
        """The same on a trained model (as any verb takes it) in place of the stand-in; None where that cannot be done in
        minutes, or would not be the same."""
        return None

    def stand_ins(self) -> tuple[StandIn, ...]:
        """What is examined in place of the claim's own model and data."""
        return ()


EXPERIMENTS: Registry[type[Experiment]] = Registry("experiment", "headscan_lab.ledger.experiments")
"""Every kind of experiment by its name; `headscan_lab.ledger.experiments` holds them."""


def own_seeds(seed: int) -> list[int]:
    """The seeds of the repeats under a master seed.

    >>> own_seeds(3)
    [3000, 3001, 3002, 3003, 3004]
    """
    return [1000 * seed + k for k in range(SEEDS)]


def enough(scored: int, least: int = PROMPTS) -> int:
    """Prompts of a repeat, so many tokens of each of which are scored, that give the tokens a protocol asks for.

    >>> enough(6), enough(1)
    (20, 40)
    """
    return max(least, math.ceil(Power().tokens / SEEDS / scored))
