"""Attribution methods: the registry, a method's task and its map, and the methods themselves."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine, MemoryPlan, plan
from headscan.attribution.gradients import Completeness, gradient_x_input, integrated_gradients
from headscan.attribution.target import AttributionTarget, Scores
from headscan.attribution.units import Unit, gathered, spread
from headscan.run import Named, Option, Registry, Settings
from headscan.text.prompts import Prompt


@dataclass(frozen=True, repr=False)
class AttributionMap:
    """Scores of one method, for S predictions of a prompt of T tokens in n units.

    Attributes:
        tokens: [S, T]; of methods that take whole units away, the unit's score shared out evenly.
        units: [S, n].
        completeness: how far the scores are from the sum that they must have, if any.
    """

    tokens: Scores
    units: Scores
    completeness: Completeness | None = None


@dataclass(frozen=True, repr=False)
class AttributionTask:
    """A prediction to be explained: everything that a method may need.

    Attributes:
        substitute: what stands for an absent token; None: it is left out altogether.
        filler: the substitute where a vector is needed.
        signed: whether scores have signs.
    """

    engine: Engine
    prompt: Prompt
    embeds: Float[Tensor, "T e"]
    target: AttributionTarget
    units: list[Unit]
    substitute: Float[Tensor, " e"] | None
    substitute_name: str
    filler: Float[Tensor, " e"]
    signed: bool = True
    seed: int = 0

    def plan(self, *, grad: bool = False) -> MemoryPlan:
        """Return how many rows of the prompt go through the model together."""
        return plan(self.engine.lens, len(self.prompt), len(self.target.steps), grad=grad)

    def game(self, substitute: Float[Tensor, " e"] | None) -> Coalitions:
        """Return the target as a function of the units that are present."""
        return Coalitions(
            self.engine, self.embeds, self.units, self.target, substitute, self.plan()
        )

    def of_tokens(self, scores: Scores, completeness: Completeness | None = None) -> AttributionMap:
        """Return the map of scores [S, T] of tokens."""
        return AttributionMap(scores, gathered(scores, self.units), completeness)

    def of_units(self, scores: Scores) -> AttributionMap:
        """Return the map of scores [S, n] of units, of their sizes where scores have no signs."""
        if not self.signed:
            scores = np.abs(scores)
        return AttributionMap(spread(scores, self.units, len(self.prompt)), scores)


@dataclass(frozen=True, kw_only=True)
class MethodWords:
    """The description of a method by itself.

    Attributes:
        sentence: what a token's score is.
        source: where the method was published.
    """

    title: str
    sentence: str
    formula: str
    cost: str
    source: str


@dataclass(frozen=True, kw_only=True)
class AttributionMethod(Settings, Named):
    """A way to score the tokens of a prompt. Its `Option` fields are its parameters.

    @METHODS.register("my-method")
    @dataclass(frozen=True, kw_only=True)
    class MyMethod(AttributionMethod):
        words = MethodWords(title=..., sentence=..., formula=..., cost=..., source=...)
        power: Annotated[float, Option("Exponent of the scores.", above=0)] = 1.0

        def explain(self, task):
            return task.of_units(...)

    Attributes:
        words: they are stored in the result.
        substitutes: whether the method needs a substitute for an absent token (`--substitute`).
        local: whether it needs the slope at the prompt itself.
    """

    words: ClassVar[MethodWords]
    substitutes: ClassVar[bool] = False
    local: ClassVar[bool] = False

    def explain(self, task: AttributionTask) -> AttributionMap:
        """Return the scores of the prompt's tokens."""
        raise NotImplementedError


METHODS: Registry[type[AttributionMethod]] = Registry(
    "attribution method", "headscan.attribution.method"
)
"""The attribution methods by name."""


@METHODS.register("gradient-x-input")
class GradientXInput(AttributionMethod):
    """The slope of the target along each token's embedding: one forward and one backward pass."""

    words = MethodWords(
        title="Gradient × input",
        sentence="The slope of the target along the token's embedding.",
        formula="Σ_k (∂f/∂x_tk) x_tk; without signs, Σ_k |∂f/∂x_tk| |x_tk|",
        cost="one forward pass, and one backward pass a prediction",
        source="Shrikumar, Greenside, Kundaje 2017, Learning important features",
    )
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        scores = gradient_x_input(task.engine, task.embeds, task.target, signed=task.signed)
        return task.of_tokens(scores)


@METHODS.register("integrated-gradients")
class IntegratedGradients(AttributionMethod):
    """The slope averaged on the way from the substitute to the prompt.

    Scores sum to the change of the target.
    """

    words = MethodWords(
        title="Integrated gradients",
        sentence="The slope averaged on the straight way from the substitute to the token; the "
        "scores sum to the change.",
        formula="Σ_k (x − x′)_tk ∫₀¹ ∂f/∂x_tk (x′ + α (x − x′)) dα",
        cost="as many forward and backward passes as completeness takes",
        source="Sundararajan, Taly, Yan 2017, Axiomatic attribution for deep networks",
    )
    substitutes = True

    steps: Annotated[
        int | None,
        Option(
            "Nodes of integrated gradients. Default: as many as completeness to 0.2 % takes.", low=1
        ),
    ] = None

    def explain(self, task: AttributionTask) -> AttributionMap:
        scores, completeness = integrated_gradients(
            task.engine,
            task.embeds,
            task.filler,
            task.target,
            steps=self.steps,
            rows=task.plan(grad=True).rows,
            signed=task.signed,
        )
        return task.of_tokens(scores, completeness)


@METHODS.register("occlusion")
class Occlusion(AttributionMethod):
    """The target with each token (or unit) less the target with a substitute in its place.

    With the substitute `remove` the token is left out.
    """

    words = MethodWords(
        title="Occlusion",
        sentence="The target with the token less the target with a substitute in its place.",
        formula="f(x) − f(x with x_i replaced); of all logits, their L1 distance",
        cost="one row a unit, batched behind the shared prefix",
        source="Zeiler, Fergus 2014, Visualizing and understanding convolutional networks",
    )
    substitutes = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        game = task.game(task.substitute)
        values = game.values(np.concatenate([game.everything[None], game.without_each()]))
        changes = values[:1] - values[1:]
        return task.of_units(changes.T.astype(np.float64))


@METHODS.register("combined")
class Combined(AttributionMethod):
    """The mean of gradient x input and occlusion, each divided by its largest."""

    words = MethodWords(
        title="Gradient × input and occlusion",
        sentence="The mean of gradient × input and occlusion, each divided by its largest size in "
        "the prediction.",
        formula="½ (g / max|g| + o / max|o|)",
        cost="both",
        source="Badger, Language Modeling and Discrete Encodings",
    )
    substitutes = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        slope = GradientXInput().explain(task)
        change = Occlusion().explain(task)
        tokens = _normalised(slope.tokens) + _normalised(change.tokens)
        units = _normalised(slope.units) + _normalised(change.units)
        return AttributionMap(tokens / 2, units / 2)


def _normalised(scores: Scores) -> Scores:
    """Return scores divided by the largest size in each prediction."""
    largest = np.abs(scores).max(-1, keepdims=True)
    return np.asarray(np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0))
