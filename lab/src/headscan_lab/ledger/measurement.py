"""Measurements: a number with an interval that never closes by luck, and its sample.

Shares are clustered by prompt, and by seed where seeds differ more than their prompts explain
(fresh weights, fresh training). Their interval is Wilson's score interval on the effective number
of tokens p (1 - p)/var, with Student's quantile; where every prompt agrees no variance can be seen,
and a prompt counts as one observation. Differences join two such intervals (Newcombe 1998, method
10), as if unpaired, which is the wider way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.run import Interval
from headscan.statistics.uncertainty import score_interval, student, student_quantile


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A measured number.

    Attributes:
        name: what the number is of, in words.
        value, interval: the number and its 95 % interval (equal ends: computed, not sampled).
        unit: "share of tokens", "cosine", "nats", ...
        chance: what chance alone would give; None where chance means nothing.
        tokens, prompts, seeds: the sample.
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
    """Return a share from the hits [prompts, tokens] (0 to 1) of each seed.

    >>> share = share_of("found", [[[1.0, 1.0]] * 8] * 5)
    >>> share.value, [round(end, 3) for end in share.interval]
    (1.0, [0.907, 1.0])
    >>> share.tokens, share.prompts, share.seeds
    (80, 40, 5)
    """
    by_seed = [np.asarray(seed_hits, dtype=np.float64) for seed_hits in hits]
    prompt_means = np.concatenate([seed_hits.mean(axis=1) for seed_hits in by_seed])
    seed_means = [seed_hits.mean() for seed_hits in by_seed]
    p = float(prompt_means.mean())
    n = len(prompt_means)
    k = len(by_seed)
    tokens = int(sum(seed_hits.size for seed_hits in by_seed))

    effective = float(n)
    freedom = max(1, n - 1)
    prompt_variance = float(prompt_means.var(ddof=1)) / n if n > 1 else 0.0
    seed_variance = float(np.var(seed_means, ddof=1)) / k if k > 1 else 0.0
    variance = max(prompt_variance, seed_variance)
    if variance > 0 and 0 < p < 1:
        effective = min(float(tokens), max(float(k), p * (1 - p) / variance))
        freedom = max(1, k - 1 if seed_variance > prompt_variance else n - 1)
    low, high = score_interval(p, effective, student_quantile(freedom))
    return Measurement(
        name=name, value=p, interval=(low, high), chance=chance, tokens=tokens, prompts=n, seeds=k
    )


def difference_of(name: str, high: Measurement, low: Measurement) -> Measurement:
    """Return the first share less the second, in [-1, 1].

    >>> ones = share_of("a", [[[1.0]] * 40] * 5)
    >>> zeros = share_of("b", [[[0.0]] * 40] * 5)
    >>> [round(end, 3) for end in difference_of("a - b", ones, zeros).interval]
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
    """Return the mean of one number a seed (at least two), with Student's interval.

    Numbers between two finite `bounds` get the score interval of a share, which lies between them,
    too: Student's interval covers too rarely near a bound. Where all numbers are equal, a prompt
    (without prompts a seed) counts as one observation of a share.

    Args:
        tokens, prompts: those of all seeds.

    >>> [round(end, 2) for end in mean_of("x", [1.0, 2.0, 3.0], unit="nats").interval]
    [-0.48, 4.48]
    >>> bounded = mean_of("x", [0.9, 1.0, 1.0], unit="cosine", bounds=(-1.0, 1.0))
    >>> [round(end, 2) for end in bounded.interval]
    [0.47, 1.0]
    """
    mean = float(np.mean(values))
    low, high = bounds
    if np.isfinite(high - low):
        interval = _bounded_interval(values, prompts, bounds)
    else:
        start, end = np.clip(student(values), low, high).tolist()
        interval = (start, end)
    return Measurement(
        name=name,
        value=mean,
        interval=interval,
        unit=unit,
        chance=chance,
        tokens=tokens,
        prompts=prompts,
        seeds=len(values),
    )


def _bounded_interval(values: Sequence[float], prompts: int, bounds: Interval) -> Interval:
    """Return the interval of a mean of numbers between two bounds, as that of a share."""
    low, high = bounds
    k = len(values)
    share = (float(np.mean(values)) - low) / (high - low)
    variance = float(np.var(values, ddof=1)) / k / (high - low) ** 2
    if variance > 0:
        count = max(k, share * (1 - share) / variance)
        freedom = k - 1
    else:
        count = max(k, prompts)
        freedom = count - 1
    start, end = score_interval(share, count, student_quantile(freedom))
    return low + start * (high - low), low + end * (high - low)


def exactly(name: str, value: float, *, unit: str, seeds: int = 1) -> Measurement:
    """Return a number that is computed and not sampled, on `seeds` instances."""
    return Measurement(name=name, value=value, interval=(value, value), unit=unit, seeds=seeds)
