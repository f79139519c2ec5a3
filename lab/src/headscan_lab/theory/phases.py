"""Three phases of training: does the effective rank fall, rise and fall again over the checkpoints, beyond what noise would?

Published of the last block (arXiv:2509.23024): a collapse in the warm-up, then a search for entropy (the rank rises, n-grams are
learned by heart), then compression (the rank falls, α of the spectrum rises).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats

LEAST = 4  # checkpoints


@dataclass(frozen=True)
class Phases:
    """Where the three phases of a trajectory meet, and whether they are there.

    Attributes:
        lowest, highest: the steps at which the rank stops falling, and stops rising; the first or the last step where a
            phase is missing.
        fit: share of the variance over checkpoints that falling, rising and falling explains, in [0, 1].
        shuffled: what it explains of the same values in a random order, at the 95th percentile of the draws.
        p: share of shuffles that it explains as much of, (1 + #)/(B + 1).
        present: which of "collapse", "expansion", "compression" have two checkpoints at least and change by more than a tenth
            of the range.
    """

    lowest: int
    highest: int
    fit: float
    shuffled: float
    p: float
    present: tuple[str, ...]


def phases(steps: Sequence[int], ranks: Sequence[float], *, draws: int = 400, seed: int = 0) -> Phases:
    """The best trajectory that falls, rises and falls again, by least squares over both turning points; the null is the order.

    Args:
        steps: of the checkpoints, ascending; at least four. ranks: the effective rank (or another number) at each.

    Raises BadInput: fewer than four checkpoints, steps that do not ascend, values that are no numbers or all equal.

    Cost: O(K²) a draw, K checkpoints: each part is an isotonic regression.

    >>> found = phases([0, 10, 100, 1000, 10000, 20000, 40000, 80000], [30, 8, 5, 12, 25, 24, 17, 11])
    >>> found.lowest, found.highest, round(found.fit, 6), found.present
    (100, 10000, 1.0, ('collapse', 'expansion', 'compression'))
    """
    values, at = np.asarray(ranks, dtype=np.float64), np.asarray(steps)
    if len(values) < LEAST or len(values) != len(at) or (np.diff(at) <= 0).any():
        raise BadInput(f"Phases need {LEAST} checkpoints at least, in the order of their steps, and a number at each.")
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        raise BadInput("Phases need numbers at every checkpoint that are not all equal.")
    fit, low, high = _best(values)
    generator = np.random.default_rng(seed)
    null = np.array([_best(generator.permutation(values))[0] for _ in range(draws)])
    parts = {"collapse": (0, low), "expansion": (low, high), "compression": (high, len(values) - 1)}
    tenth = 0.1 * float(np.ptp(values))
    present = tuple(name for name, (a, b) in parts.items() if b > a and abs(values[b] - values[a]) > tenth)
    reached = int((null >= fit - 1e-12).sum())
    return Phases(int(at[low]), int(at[high]), fit, float(np.quantile(null, 0.95)), (1 + reached) / (draws + 1), present)


def _errors(values: Floats) -> Floats:
    """The squared error of the best rise over every run of checkpoints [a, b), [n + 1, n + 1]: neighbours are pooled where they
    fall, and pooling n and n' of means m and m' costs nn'/(n + n')·(m − m')² (Ayer et al. 1955)."""
    n = len(values)
    errors = np.zeros((n + 1, n + 1))
    for a in range(n):
        pools: list[tuple[float, int]] = []
        error = 0.0
        for b in range(a, n):
            pools.append((float(values[b]), 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (high, many), (low, few) = pools[-2:]
                error += many * few / (many + few) * (high - low) ** 2
                pools[-2:] = [((many * high + few * low) / (many + few), many + few)]
            errors[a, b + 1] = error
    return errors


def _best(values: Floats) -> tuple[float, int, int]:
    """The share explained, and the places of the turning points: the last of the fall, and of the rise."""
    n = len(values)
    rising, falling = _errors(values), _errors(-values)
    least, first, second = np.inf, 0, 0
    for a in range(n + 1):
        for b in range(a, n + 1):
            total = falling[0, a] + rising[a, b] + falling[b, n]
            if total < least - 1e-12:
                least, first, second = total, a, b
    whole = float(np.square(values - values.mean()).sum())
    # The turning points are the lowest and the highest checkpoint of the rise, with its neighbours.
    low = int(np.argmin(values[max(0, first - 1) : second + 1])) + max(0, first - 1)
    high = int(np.argmax(values[low : min(n, second + 1)])) + low
    return 1 - float(least) / whole, low, high
