"""Shapley values of the units of a prompt: exact for few, sampled with an error bar for many."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Annotated

import numpy as np
import numpy.typing as npt

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords
from headscan.run import Option

__all__ = ["EXACT_UNITS", "Shapley", "ShapleyValues", "shapley"]

EXACT_UNITS = 12
"""Up to so many units all 2^n prompts are evaluated."""


@METHODS.register("shapley")
@dataclass(frozen=True, kw_only=True)
class Shapley(AttributionMethod):
    """The average of what a token adds, over all orders in which the tokens can arrive."""

    words = MethodWords(
        title="Shapley values",
        sentence="The average of what the token adds, over all orders in which tokens can arrive.",
        formula="Σ_K |K|! (n − |K| − 1)! / n! · (f(K + i) − f(K))",
        cost=f"2ⁿ rows up to {EXACT_UNITS} units; above, two orders of n rows a sample, with a standard error",
        source="Shapley 1953, A value for n-person games; antithetic pairs: Mitchell et al. 2022",
    )
    substitutes = True

    samples: Annotated[int, Option("Pairs of orders of Shapley values, above 12 units.", low=1)] = 64

    def explain(self, task: AttributionTask) -> AttributionMap:
        """See `shapley`."""
        found = shapley(task.game(task.filler), samples=self.samples, seed=task.seed)
        return task.of_units(found.values, evaluations=found.evaluations, exact=found.exact, standard_error=found.error)


@dataclass(frozen=True)
class ShapleyValues:
    """Shapley values [S, n], their standard errors [S, n] (0 where exact), and the number of prompts evaluated."""

    values: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]
    evaluations: int
    exact: bool


def shapley(game: Coalitions, *, samples: int = 64, seed: int = 0, exact: bool | None = None) -> ShapleyValues:
    """The average of what a unit adds, over all orders in which the units can arrive.

    φ_i = Σ_K |K|! (n - |K| - 1)! / n! · (f(K + i) - f(K)). They sum to f(all) - f(none), in each sampled pair of orders
    too.

    Args:
        game: the value of every set of units.
        samples: pairs of an order and its reverse (antithetic), when sampled: 2 samples (n - 1) + 2 evaluations at most.
        seed: of the orders.
        exact: by default, up to `EXACT_UNITS` units.
    """
    n = len(game.units)
    if exact or (exact is None and n <= EXACT_UNITS):
        return _exact(game, n)
    return _sampled(game, n, samples, np.random.default_rng(seed))


def _exact(game: Coalitions, n: int) -> ShapleyValues:
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    values = game.values(sets)
    sizes = sets.sum(1)
    found = []
    for i in range(n):
        without = np.flatnonzero(~sets[:, i])
        weight = np.array([1 / (n * comb(n - 1, int(size))) for size in sizes[without]])
        found.append((weight[:, None] * (values[without | (1 << i)] - values[without])).sum(0))
    scores = np.stack(found, -1)
    return ShapleyValues(scores, np.zeros_like(scores), len(sets), True)


def _sampled(game: Coalitions, n: int, samples: int, random: np.random.Generator) -> ShapleyValues:
    orders = [random.permutation(n) for _ in range(samples)]
    pairs = [order for one in orders for order in (one, one[::-1])]
    # Each order walks from no unit to all; equal sets (the ends, and chance) are evaluated once.
    walks = [np.concatenate([np.zeros((1, n), bool), np.tril(np.ones((n, n), bool))[:, np.argsort(o)]]) for o in pairs]
    unique, back = np.unique(np.concatenate(walks), axis=0, return_inverse=True)
    values = game.values(unique)[back.reshape(len(pairs), n + 1)]  # [orders, n + 1, S]
    gains = np.diff(values, axis=1)
    added = np.empty_like(gains)
    for k, order in enumerate(pairs):
        added[k, order] = gains[k]
    means = added.reshape(samples, 2, n, -1).mean(1)  # antithetic pairs are the independent draws
    error = means.std(0, ddof=1) / np.sqrt(samples) if samples > 1 else np.full(means.shape[1:], np.nan)
    return ShapleyValues(means.mean(0).T, error.T, len(unique), False)
