"""What a method of attribution is, what it is asked, and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, MemoryPlan, Segment, plan
from headscan.attribution.gradients import Completeness, gradient_x_input, integrated_gradients
from headscan.attribution.target import AttributionTarget, Scores, Unit, gathered, spread
from headscan.run import BadInput, Named, Option, Registry, Settings
from headscan.text.prompts import Prompt

Subsets = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32 | np.float64]
Group = tuple[list[int], int, int]
"""Rows that are computed from the same token on, the prefix they share with the prompt, and their
length.
"""


@dataclass(repr=False)
class Coalitions:
    """The value of the target when only some units of a prompt are there: what occlusion and
    faithfulness are made of. Many prompts are evaluated at once.
    """

    engine: Engine
    embeds: Float[Tensor, "T e"]
    units: Sequence[Unit]
    target: AttributionTarget
    # What stands where a unit is missing; None: its tokens are left out altogether, and what
    # follows moves up.
    substitute: Float[Tensor, "*T e"] | None
    plan: MemoryPlan
    packed: bool = True  # whether rows may share the keys and values of the prompt's first tokens

    def __post_init__(self) -> None:
        positions = self.target.positions
        if self.packed and not self.engine.packs:
            self.original = self.engine.share(self.embeds, positions).float()
        else:
            with torch.inference_mode():
                self.original = self.engine.logits(self.embeds[None], positions)[0].float()
        self._first = np.array([unit.tokens[0] for unit in self.units])
        self._owner = torch.zeros(len(self.embeds), dtype=torch.int64)
        for k, unit in enumerate(self.units):
            self._owner[list(unit.tokens)] = k

    def values(self, keep: Subsets) -> Values:
        """The target [R, S] for each row of `keep` [R, n], True where a unit is there."""
        return self.read(keep, lambda logits: self.target.value(logits, self.original))

    def read(self, keep: Subsets, measure: Callable[[Tensor], Tensor]) -> Values:
        """What `measure` makes of the logits [B, S, V] of each row: [R, S, ...]."""
        keep = np.asarray(keep, dtype=bool)
        values: list[np.ndarray | None] = [None] * len(keep)
        for group in self._passes(self._groups(keep)):
            segments = [self._segment(keep[rows], prefix, length) for rows, prefix, length in group]
            with torch.inference_mode():
                for (rows, _, _), logits in zip(group, self.engine.each(segments), strict=True):
                    for row, value in zip(rows, measure(logits).cpu().numpy(), strict=True):
                        values[row] = value
        return np.stack([value for value in values if value is not None])

    def _groups(self, keep: Subsets) -> list[Group]:
        """The rows in groups that share a prefix.

        Rows are sorted by their first change, so that neighbours share most. Too many groups cost
        their starts, too few recompute what is known; a group ends where the recomputed tokens cost
        more than another start.
        """
        lengths = (
            keep @ np.array([len(unit.tokens) for unit in self.units])
            if self.substitute is None
            else None
        )
        last = min(self.target.positions)
        changes = np.where(
            keep.all(1), len(self.embeds), np.where(keep, len(self.embeds), self._first).min(1)
        )
        # The token that is read must be computed, even where nothing before it changed.
        ceiling = last if lengths is None else np.maximum(np.minimum(last, lengths - 1), 0)
        prefixes = (
            np.minimum(changes, ceiling) if self.engine.packs else np.zeros(len(keep), dtype=int)
        )
        order = (
            np.lexsort((prefixes, lengths))
            if lengths is not None
            else np.argsort(prefixes, kind="stable")
        )
        most = self.plan.tokens if self.engine.packs else self.plan.rows * len(self.embeds)
        groups: list[Group] = []
        wasted = 0
        for row in order.tolist():
            length = int(lengths[row]) if lengths is not None else len(self.embeds)
            prefix = int(prefixes[row])
            rows, first, shared = groups[-1] if groups else ([], 0, -1)
            wasted += prefix - first
            if (
                shared != length
                or wasted > self.plan.slack
                or (len(rows) + 1) * (length - first) > most
            ):
                groups.append(([row], prefix, length))
                wasted = 0
            else:
                rows.append(row)
        return groups

    def _passes(self, groups: list[Group]) -> list[list[Group]]:
        """Groups that go through the model together."""
        if not self.engine.packs:
            return [[group] for group in groups]
        passes: list[list[Group]] = []
        room = 0
        for group in groups:
            tokens = len(group[0]) * (group[2] - group[1])
            if not passes or tokens > room:
                passes.append([])
                room = self.plan.tokens
            passes[-1].append(group)
            room -= tokens
        return passes

    def _segment(self, keep: Subsets, prefix: int, length: int) -> Segment:
        there = torch.from_numpy(np.ascontiguousarray(keep))[:, self._owner]
        positions = tuple(self.target.positions)
        if self.substitute is not None:
            there = there[:, prefix:].to(self.embeds.device)
            absent = self.substitute if self.substitute.ndim == 1 else self.substitute[prefix:]
            return Segment(
                torch.where(there.unsqueeze(-1), self.embeds[prefix:], absent), prefix, positions
            )
        pools = self.engine.pools
        if length == 0 or not (pools or (len(positions) == 1 and self.engine.causal)):
            only = (
                "Tokens can be removed only before one prediction of a causal model, or of a "
                "sentence vector, and not all"
            )
            raise BadInput(f"{only}; use a substitute token instead.")
        where = there.nonzero()[:, 1].reshape(len(keep), length)[:, prefix:]
        return Segment(
            self.embeds[where.to(self.embeds.device)], prefix, positions if pools else (length - 1,)
        )

    @property
    def everything(self) -> Subsets:
        return np.ones(len(self.units), dtype=bool)

    def without_each(self) -> Subsets:
        """One row a unit, that unit missing: [n, n]."""
        return ~np.eye(len(self.units), dtype=bool)


@dataclass(frozen=True, repr=False)
class AttributionMap:
    """Scores of one method, for S predictions of a prompt of T tokens in n units."""

    tokens: (
        Scores  # [S, T]; of methods that take whole units away, the unit's score shared out evenly
    )
    units: Scores  # [S, n]
    completeness: Completeness | None = (
        None  # how far the scores are from the sum that they must have, if any
    )


@dataclass(frozen=True, repr=False)
class AttributionTask:
    """A prediction to be explained: everything that a method may need."""

    engine: Engine
    prompt: Prompt
    embeds: Float[Tensor, "T e"]
    target: AttributionTarget
    units: list[Unit]
    # what stands for an absent token; None: it is left out altogether
    substitute: Float[Tensor, " e"] | None
    substitute_name: str
    filler: Float[Tensor, " e"]  # the substitute where a vector is needed
    signed: bool = True  # whether scores have signs
    seed: int = 0

    def plan(self, *, grad: bool = False) -> MemoryPlan:
        return plan(self.engine.lens, len(self.prompt), len(self.target.steps), grad=grad)

    def game(self, substitute: Float[Tensor, " e"] | None) -> Coalitions:
        return Coalitions(
            self.engine, self.embeds, self.units, self.target, substitute, self.plan()
        )

    def of_tokens(self, scores: Scores, completeness: Completeness | None = None) -> AttributionMap:
        return AttributionMap(scores, gathered(scores, self.units), completeness)

    def of_units(self, scores: Scores) -> AttributionMap:
        """The map of scores [S, n] of units; their sizes, where signs are not wanted."""
        scores = scores if self.signed else np.abs(scores)
        return AttributionMap(spread(scores, self.units, len(self.prompt)), scores)


@dataclass(frozen=True, kw_only=True)
class MethodWords:
    """What a method says of itself: title, what a token's score is, its formula, cost, and where it
    was published.
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
    """

    words: ClassVar[MethodWords]  # they travel in the result
    substitutes: ClassVar[bool] = (
        False  # whether it asks what stands for an absent token (`--substitute`)
    )
    local: ClassVar[bool] = False  # whether it asks for the slope at the prompt itself

    def explain(self, task: AttributionTask) -> AttributionMap:
        raise NotImplementedError


METHODS: Registry[type[AttributionMethod]] = Registry(
    "attribution method", "headscan.attribution.method"
)
"""Name -> method."""


# ---- The methods: gradient x input, integrated gradients, occlusion, and the mean of gradient x input and occlusion.


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
        return task.of_tokens(
            gradient_x_input(task.engine, task.embeds, task.target, signed=task.signed)
        )


@METHODS.register("integrated-gradients")
class IntegratedGradients(AttributionMethod):
    """The slope averaged on the way from the substitute to the prompt; scores sum to the change of
    the target.
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
    """The target with each token (or unit) less the target with a substitute in its place, or
    (`remove`) without it.
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
        return task.of_units((values[:1] - values[1:]).T.astype(np.float64))


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
        return AttributionMap(
            tokens / 2, (_normalised(slope.units) + _normalised(change.units)) / 2
        )


def _normalised(scores: Scores) -> Scores:
    largest = np.abs(scores).max(-1, keepdims=True)
    return np.asarray(np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0))
