"""The methods: gradient x input, integrated gradients, occlusion, and the mean of gradient x input and occlusion."""

from typing import Annotated

import numpy as np

from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords
from headscan.attribution.target import Scores
from headscan.run import Option


@METHODS.register("gradient-x-input")
class GradientXInput(AttributionMethod):
    """The slope of the target along each token's embedding: one forward and one backward pass."""

    words = MethodWords(
        title="Gradient × input", sentence="The slope of the target along the token's embedding.",
        formula="Σ_k (∂f/∂x_tk) x_tk; without signs, Σ_k |∂f/∂x_tk| |x_tk|",
        cost="one forward pass, and one backward pass a prediction",
        source="Shrikumar, Greenside, Kundaje 2017, Learning important features",
    )  # fmt: skip
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        return task.of_tokens(gradient_x_input(task.engine, task.embeds, task.target, signed=task.signed))


@METHODS.register("integrated-gradients")
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

    steps: Annotated[
        int | None, Option("Nodes of integrated gradients. Default: as many as completeness to 0.2 % takes.", low=1)
    ] = None

    def explain(self, task: AttributionTask) -> AttributionMap:
        scores, completeness = integrated_gradients(
            task.engine, task.embeds, task.filler, task.target, steps=self.steps, rows=task.plan(grad=True).rows,
            signed=task.signed,
        )  # fmt: skip
        return task.of_tokens(scores, completeness)


@METHODS.register("occlusion")
class Occlusion(AttributionMethod):
    """The target with each token (or unit) less the target with a substitute in its place, or (`remove`) without it."""

    words = MethodWords(
        title="Occlusion", sentence="The target with the token less the target with a substitute in its place.",
        formula="f(x) − f(x with x_i replaced); of all logits, their L1 distance",
        cost="one row a unit, batched behind the shared prefix",
        source="Zeiler, Fergus 2014, Visualizing and understanding convolutional networks",
    )  # fmt: skip
    substitutes = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        game = task.game(task.substitute)
        values = game.values(np.concatenate([game.everything[None], game.without_each()]))
        return task.of_units((values[:1] - values[1:]).T.astype(np.float64))


@METHODS.register("combined")
class Combined(AttributionMethod):
    """The mean of gradient x input and occlusion, each divided by its largest."""

    words = MethodWords(
        title="Gradient × input and occlusion",
        sentence="The mean of gradient × input and occlusion, each divided by its largest size in the prediction.",
        formula="½ (g / max|g| + o / max|o|)", cost="both", source="Badger, Language Modeling and Discrete Encodings",
    )  # fmt: skip
    substitutes = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        slope, change = GradientXInput().explain(task), Occlusion().explain(task)
        tokens = _normalised(slope.tokens) + _normalised(change.tokens)
        return AttributionMap(tokens / 2, (_normalised(slope.units) + _normalised(change.units)) / 2)


def _normalised(scores: Scores) -> Scores:
    largest = np.abs(scores).max(-1, keepdims=True)
    return np.asarray(np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0))
