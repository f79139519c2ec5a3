"""What a method of attribution is, what it is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine
from headscan.attribution.gradients import Completeness
from headscan.attribution.memory import MemoryPlan, plan
from headscan.attribution.target import AttributionTarget
from headscan.attribution.units import Unit, gathered, spread
from headscan.run import Registry, Settings
from headscan.text.prompts import Prompt

__all__ = ["METHODS", "AttributionMap", "AttributionMethod", "AttributionTask", "MethodWords"]


@dataclass(frozen=True, repr=False)
class AttributionMap:
    """Scores of one method, for S predictions of a prompt of T tokens in n units.

    Attributes:
        tokens: one score a token; of methods that take whole units away, the unit's shared out evenly.
        units: one score a unit.
        completeness: how far the scores are from the sum that they must have, where there is such a sum.
        evaluations: prompts that passed the model, where the method counts them.
        exact: whether sampling was left out, where the method could sample.
        standard_error: of each unit's score, where it was sampled (0 where it was not).
    """

    tokens: npt.NDArray[np.float64]
    units: npt.NDArray[np.float64]
    completeness: Completeness | None = None
    evaluations: int | None = None
    exact: bool | None = None
    standard_error: npt.NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        steps, tokens = self.tokens.shape
        return f"AttributionMap({steps} predictions, {tokens} tokens in {self.units.shape[1]} units)"


@dataclass(frozen=True, repr=False)
class AttributionTask:
    """A prediction to be explained: everything that a method may need.

    Attributes:
        engine: the model. prompt, embeds: its input, as tokens and as the embeddings [T, e]. target: what is explained.
        units: which tokens are looked at together.
        substitute: what stands for an absent token [e], None where it is left out altogether; substitute_name: its name.
        filler: the same where a vector is needed.
        signed: scores with signs, or their sizes.
        seed: of all that is drawn. budget, rows: see `plan`.
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
    budget: int | None = None
    rows: int | None = None

    def __repr__(self) -> str:
        return f"AttributionTask({self.target.kind} of {len(self.target.steps)} predictions, {len(self.units)} units)"

    def plan(self, *, grad: bool = False) -> MemoryPlan:
        """Micro-batches for this prompt."""
        steps = len(self.target.steps)
        return plan(self.engine.lens, len(self.prompt), steps, grad=grad, budget=self.budget, rows=self.rows)

    def game(self, substitute: Float[Tensor, " e"] | None) -> Coalitions:
        """The prompt with units taken away."""
        return Coalitions(self.engine, self.embeds, self.units, self.target, substitute, self.plan())

    def of_tokens(self, scores: npt.NDArray[np.float64], completeness: Completeness | None = None) -> AttributionMap:
        """The map of scores [S, T] of tokens."""
        return AttributionMap(scores, gathered(scores, self.units), completeness)

    def of_units(
        self, scores: npt.NDArray[np.float64], *, evaluations: int | None = None, exact: bool | None = None,
        standard_error: npt.NDArray[np.float64] | None = None,
    ) -> AttributionMap:  # fmt: skip
        """The map of scores [S, n] of units; their sizes, where signs are not wanted."""
        scores = scores if self.signed else np.abs(scores)
        return AttributionMap(
            spread(scores, self.units, len(self.prompt)), scores, None, evaluations, exact, standard_error
        )

    def left_out(self, substitute: Float[Tensor, " e"] | None) -> AttributionMap:
        """score_i = f(prompt) - f(prompt without unit i); for the target "all", the L1 distance of the logits."""
        game = self.game(substitute)
        values = game.values(np.concatenate([game.everything[None], game.without_each()]))
        return self.of_units((values[:1] - values[1:]).T.astype(np.float64), evaluations=len(values))


@dataclass(frozen=True, kw_only=True)
class MethodWords:
    """What a method says of itself: title, what a token's score is, its formula, cost, and where it was published."""

    title: str
    sentence: str
    formula: str
    cost: str
    source: str


@dataclass(frozen=True, kw_only=True)
class AttributionMethod(Settings):
    """A way to score the tokens of a prompt. Its `Option` fields are its parameters.

    A new method is one file in `headscan/attribution/methods`:

        @METHODS.register("my-method")
        @dataclass(frozen=True, kw_only=True)
        class MyMethod(AttributionMethod):
            words = MethodWords(title=..., sentence=..., formula=..., cost=..., source=...)
            power: Annotated[float, Option("Of the scores.", above=0)] = 1.0

            def explain(self, task):
                return task.of_units(...)

    Attributes:
        name: by which it is registered.
        words: what it says of itself; they travel in the result.
        substitutes: whether it asks what stands for an absent token (`--substitute`).
        differentiates: whether gradients pass the model, which keep every layer's activations in memory.
        local: whether it asks for the slope at the prompt itself, which a cosine with its own vector has not.
    """

    words: ClassVar[MethodWords]
    substitutes: ClassVar[bool] = False
    differentiates: ClassVar[bool] = False
    local: ClassVar[bool] = False

    name: str = field(init=False, default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        name = next((name for name, item in METHODS.items() if item is type(self)), type(self).__name__)
        object.__setattr__(self, "name", name)

    def explain(self, task: AttributionTask) -> AttributionMap:
        """The map of the task's prediction."""
        raise NotImplementedError


METHODS: Registry[type[AttributionMethod]] = Registry("attribution method", "headscan.attribution.methods")
"""Name -> method."""
