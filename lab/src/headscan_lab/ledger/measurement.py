"""What an experiment measured: a number with an interval that never closes by luck, and what it
rests on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.run import Interval
from headscan.statistics.uncertainty import score_interval, student, student_quantile

# Shares are clustered by prompt, and by seed where seeds differ more than their prompts explain
# (fresh weights, fresh training). Their interval is Wilson's score interval on the effective number
# of tokens p (1 - p)/var, with Student's quantile; where every prompt agrees no variance can be
# seen, and a prompt counts as one observation. Differences join two such intervals (Newcombe 1998,
# method 10), as if unpaired, which is the wider way.
SHARE_TEST = "Wilson's interval on the effective number of tokens, clustered by prompt and seed"
DIFFERENCE_TEST = "Newcombe's interval of a difference of two shares, clustered by prompt and seed"


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


def share_of(
    name: str, hits: Sequence[npt.ArrayLike], *, chance: float | None = None
) -> Measurement:
    """A share from hits [prompts, tokens] (0 to 1) of each seed.

    >>> found = share_of("found", [[[1.0, 1.0]] * 8] * 5)
    >>> found.value, [round(end, 3) for end in found.interval], found.tokens, found.prompts, found.seeds
    (1.0, [0.907, 1.0], 80, 40, 5)
    """
    seeds = [np.asarray(one, dtype=np.float64) for one in hits]
    prompts = np.concatenate([one.mean(axis=1) for one in seeds])
    p = float(prompts.mean())
    n = len(prompts)
    k = len(seeds)
    tokens = int(sum(one.size for one in seeds))
    effective = float(n)
    freedom = max(1, n - 1)
    by_prompt = float(prompts.var(ddof=1)) / n if n > 1 else 0.0
    by_seed = float(np.var([one.mean() for one in seeds], ddof=1)) / k if k > 1 else 0.0
    if max(by_prompt, by_seed) > 0 and 0 < p < 1:
        effective = min(float(tokens), max(float(k), p * (1 - p) / max(by_prompt, by_seed)))
        freedom = max(1, k - 1 if by_seed > by_prompt else n - 1)
    low, high = score_interval(p, effective, student_quantile(freedom))
    return Measurement(
        name=name, value=p, interval=(low, high), chance=chance, tokens=tokens, prompts=n, seeds=k
    )


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
        name=name,
        value=value,
        interval=(max(-1.0, value - down), min(1.0, value + up)),
        chance=0.0,
        unit=high.unit,
        tokens=min(high.tokens, low.tokens),
        prompts=min(high.prompts, low.prompts),
        seeds=min(high.seeds, low.seeds),
    )


def mean_of(
    name: str,
    values: Sequence[float],
    *,
    unit: str,
    tokens: int = 0,
    prompts: int = 0,
    chance: float | None = None,
    bounds: Interval = (-np.inf, np.inf),
) -> Measurement:
    """The mean of one number a seed (at least two), with Student's interval; `tokens` and `prompts`
    are those of all seeds.

    Numbers that lie between two `bounds` get the score interval of a share, which lies between
    them, too: Student's covers too rarely near a bound. Where all are equal a prompt (without
    prompts a seed) counts as one observation of a share.

    >>> [round(end, 2) for end in mean_of("x", [1.0, 2.0, 3.0], unit="nats").interval]
    [-0.48, 4.48]
    >>> [round(end, 2) for end in mean_of("x", [0.9, 1.0, 1.0], unit="cosine", bounds=(-1.0, 1.0)).interval]
    [0.47, 1.0]
    """
    mean, k, (low, high) = float(np.mean(values)), len(values), bounds
    one, other = np.clip(student(values), low, high).tolist()
    if np.isfinite(high - low):
        share = (mean - low) / (high - low)
        error = float(np.var(values, ddof=1)) / k / (high - low) ** 2
        count, freedom = (
            (max(k, share * (1 - share) / error), k - 1)
            if error > 0
            else (max(k, prompts), max(k, prompts) - 1)
        )
        one, other = (
            low + end * (high - low)
            for end in score_interval(share, count, student_quantile(freedom))
        )
    return Measurement(
        name=name,
        value=mean,
        interval=(one, other),
        unit=unit,
        chance=chance,
        tokens=tokens,
        prompts=prompts,
        seeds=k,
    )


def exactly(name: str, value: float, *, unit: str, seeds: int = 1) -> Measurement:
    """A number that is computed and not sampled: `seeds` says on how many instances."""
    return Measurement(name=name, value=value, interval=(value, value), unit=unit, seeds=seeds)


SEEDS = 5
"""How often an experiment is repeated, each time with a seed of its own."""
PROMPTS = 20
"""Prompts of a repeat at least: where all 100 agree the interval is .038 wide, so that a share of 0
or 1 decides every rule; at a half it is .1 to either side.
"""


def own_seeds(seed: int, times: int = 1) -> list[int]:
    """The seeds of the repeats, so many times five, under a master seed.

    >>> own_seeds(3)
    [3000, 3001, 3002, 3003, 3004]
    """
    return [1000 * seed + k for k in range(SEEDS * times)]
