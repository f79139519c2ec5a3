"""The methods: gradient x input, integrated gradients, leave one out, occlusion, their mean, Shapley values."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Annotated

import numpy as np

from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.method import (
    METHODS,
    AttributionMap,
    AttributionMethod,
    AttributionTask,
    Coalitions,
    MethodWords,
)
from headscan.attribution.target import Scores
from headscan.run import Option


@METHODS.register("gradient-x-input")
@dataclass(frozen=True, kw_only=True)
class GradientXInput(AttributionMethod):
    """The slope of the target along each token's embedding: one forward and one backward pass."""

    words = MethodWords(
        title="Gradient × input",
        sentence="The slope of the target along the token's embedding.",
        formula="Σ_k (∂f/∂x_tk) x_tk; without signs, Σ_k |∂f/∂x_tk| |x_tk|",
        cost="one forward pass, and one backward pass a prediction",
        source="Shrikumar, Greenside, Kundaje 2017, Learning important features",
    )
    differentiates = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        return task.of_tokens(gradient_x_input(task.engine, task.embeds, task.target, signed=task.signed))


@METHODS.register("integrated-gradients")
@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(AttributionMethod):
    """The slope averaged on the way from the substitute to the prompt; scores sum to the change of the target."""

    words = MethodWords(
        title="Integrated gradients",
        sentence="The slope averaged on the straight way from the substitute to the token; the scores sum to the change.",
        formula="Σ_k (x − x′)_tk ∫₀¹ ∂f/∂x_tk (x′ + α (x − x′)) dα",
        cost="as many forward and backward passes as completeness takes",
        source="Sundararajan, Taly, Yan 2017, Axiomatic attribution for deep networks",
    )
    substitutes = True
    differentiates = True

    steps: Annotated[
        int | None, Option("Nodes of integrated gradients. Default: as many as completeness to 0.2 % takes.", low=1)
    ] = None

    def explain(self, task: AttributionTask) -> AttributionMap:
        scores, completeness = integrated_gradients(
            task.engine, task.embeds, task.filler, task.target, steps=self.steps, rows=task.plan(grad=True).rows,
            signed=task.signed,
        )  # fmt: skip
        return task.of_tokens(scores, completeness)


@METHODS.register("leave-one-out")
@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(AttributionMethod):
    """The target with each token (or unit) less the target without it, what follows moving up."""

    words = MethodWords(
        title="Leave one out",
        sentence="The target with the token less the target without it; what follows moves up.",
        formula="f(x) − f(x without x_i)",
        cost="one row a unit",
        source="Li, Monroe, Jurafsky 2016, Understanding neural networks through representation erasure",
    )

    def explain(self, task: AttributionTask) -> AttributionMap:
        return task.left_out(None)


@METHODS.register("occlusion")
@dataclass(frozen=True, kw_only=True)
class Occlusion(AttributionMethod):
    """The target with each token (or unit) less the target with a substitute in its place."""

    words = MethodWords(
        title="Occlusion",
        sentence="The target with the token less the target with a substitute in its place.",
        formula="f(x) − f(x with x_i replaced); of all logits, their L1 distance",
        cost="one row a unit, batched behind the shared prefix",
        source="Zeiler, Fergus 2014, Visualizing and understanding convolutional networks",
    )
    substitutes = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        return task.left_out(task.substitute)


@METHODS.register("combined")
@dataclass(frozen=True, kw_only=True)
class Combined(AttributionMethod):
    """The mean of gradient x input and occlusion, each divided by its largest."""

    words = MethodWords(
        title="Gradient × input and occlusion",
        sentence="The mean of gradient × input and occlusion, each divided by its largest size in the prediction.",
        formula="½ (g / max|g| + o / max|o|)",
        cost="both",
        source="Badger, Language Modeling and Discrete Encodings",
    )
    substitutes = True
    differentiates = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        maps = GradientXInput().explain(task), Occlusion().explain(task)
        tokens, units = ([_normalised(getattr(item, kind)) for item in maps] for kind in ("tokens", "units"))
        return AttributionMap((tokens[0] + tokens[1]) / 2, (units[0] + units[1]) / 2)


def _normalised(scores: Scores) -> Scores:
    largest = np.abs(scores).max(-1, keepdims=True)
    shares: Scores = np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0)
    return shares


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
        result = shapley(task.game(task.filler), samples=self.samples, seed=task.seed)
        return task.of_units(
            result.values, evaluations=result.evaluations, exact=result.exact, standard_error=result.error
        )


@dataclass(frozen=True)
class ShapleyValues:
    """Shapley values [S, n], their standard errors [S, n] (0 where exact), and the number of prompts evaluated."""

    values: Scores
    error: Scores
    evaluations: int
    exact: bool


def shapley(game: Coalitions, *, samples: int = 64, seed: int = 0, exact: bool | None = None) -> ShapleyValues:
    """The average of what a unit adds, over all orders in which the units can arrive.

    φ_i = Σ_K |K|! (n - |K| - 1)! / n! · (f(K + i) - f(K)). They sum to f(all) - f(none), in each sampled pair of orders
    too.

    `exact` (by default up to `EXACT_UNITS` units) evaluates all 2^n sets; else `samples` pairs of an order and its reverse
    (antithetic) are drawn, 2 samples (n - 1) + 2 evaluations at most.
    """
    n = len(game.units)
    if exact or (exact is None and n <= EXACT_UNITS):
        return _exact(game, n)
    return _sampled(game, n, samples, np.random.default_rng(seed))


def _exact(game: Coalitions, n: int) -> ShapleyValues:
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    values = game.values(sets)
    sizes = sets.sum(1)
    scores = []
    for i in range(n):
        without = np.flatnonzero(~sets[:, i])
        weight = np.array([1 / (n * comb(n - 1, int(size))) for size in sizes[without]])
        scores.append((weight[:, None] * (values[without | (1 << i)] - values[without])).sum(0))
    exact = np.stack(scores, -1)
    return ShapleyValues(exact, np.zeros_like(exact), len(sets), True)


def _sampled(game: Coalitions, n: int, samples: int, random: np.random.Generator) -> ShapleyValues:
    orders = [random.permutation(n) for _ in range(samples)]
    pairs = [order for drawn in orders for order in (drawn, drawn[::-1])]
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
