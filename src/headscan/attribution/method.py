"""What a method of attribution is, what it is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, MemoryPlan, plan
from headscan.attribution.gradients import Completeness
from headscan.attribution.packed import Segment
from headscan.attribution.target import AttributionTarget, Unit, gathered, spread
from headscan.run import BadInput, Registry, Settings
from headscan.text.prompts import Prompt

# ---- Prompts with some units taken away, evaluated many at once: what occlusion, Shapley and faithfulness are made of.

Subsets = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32 | np.float64]
Group = tuple[list[int], int, int]
"""Rows that are computed from the same token on, the prefix they share with the prompt, and their length."""


@dataclass(repr=False)
class Coalitions:
    """The value of the target when only some units of a prompt are there.

    Attributes:
        engine: the model.
        embeds: the prompt [T, e].
        units: which tokens go together.
        target: what is read.
        substitute: [e] or [T, e], what stands where a unit is missing; None: its tokens are left out altogether, and
            what follows moves up.
        plan: micro-batches.
        cached: share the keys and values of the prompt's first tokens between rows.
    """

    engine: Engine
    embeds: Float[Tensor, "T e"]
    units: Sequence[Unit]
    target: AttributionTarget
    substitute: Float[Tensor, "*T e"] | None
    plan: MemoryPlan
    cached: bool = True

    def __post_init__(self) -> None:
        positions = self.target.positions
        if self.cached and not self.engine.shares:
            self.original = self.engine.share(self.embeds, positions).float()
        else:
            with torch.inference_mode():
                self.original = self.engine.logits(self.embeds[None], positions)[0].float()
        self._first = np.array([unit.first for unit in self.units])
        self._owner = torch.zeros(len(self.embeds), dtype=torch.int64)
        for k, unit in enumerate(self.units):
            self._owner[list(unit.tokens)] = k

    def __repr__(self) -> str:
        return f"Coalitions({len(self.units)} units of {len(self.embeds)} tokens, {self.engine!r})"

    def values(self, keep: Subsets) -> Values:
        """The target [R, S] for each row of `keep` [R, n], True where a unit is there."""
        return self.read(keep, lambda logits: self.target.value(logits, self.original))

    def read(self, keep: Subsets, measure: Callable[[Tensor], Tensor]) -> Values:
        """What `measure` makes of the logits [B, S, V] of each row: [R, S, ...]."""
        keep = np.asarray(keep, dtype=bool)
        found: list[np.ndarray | None] = [None] * len(keep)
        for group in self._passes(self._segments(keep)):
            segments = [self._segment(keep[rows], prefix, length) for rows, prefix, length in group]
            with torch.inference_mode():
                for (rows, _, _), logits in zip(group, self.engine.each(segments), strict=True):
                    for row, value in zip(rows, measure(logits).cpu().numpy(), strict=True):
                        found[row] = value
        return np.stack([value for value in found if value is not None])

    def _segments(self, keep: Subsets) -> list[Group]:
        """The rows in groups.

        Rows are sorted by their first change, so that neighbours share most. Too many segments cost their starts, too
        few recompute what is known; a segment ends where the recomputed tokens cost more than another start.
        """
        lengths = keep @ np.array([len(unit.tokens) for unit in self.units]) if self.substitute is None else None
        last = min(self.target.positions)
        changes = np.where(keep.all(1), len(self.embeds), np.where(keep, len(self.embeds), self._first).min(1))
        # The token that is read must be computed, even where nothing before it changed.
        ceiling = last if lengths is None else np.maximum(np.minimum(last, lengths - 1), 0)
        prefixes = np.minimum(changes, ceiling) if self.engine.shares else np.zeros(len(keep), dtype=int)
        order = np.lexsort((prefixes, lengths)) if lengths is not None else np.argsort(prefixes, kind="stable")
        slack = self.plan.segment_slack if self.engine.packs else self.plan.slack
        most = self.plan.tokens if self.engine.packs else self.plan.rows * len(self.embeds)
        segments: list[Group] = []
        wasted = 0
        for row in order.tolist():
            length = int(lengths[row]) if lengths is not None else len(self.embeds)
            prefix = int(prefixes[row])
            rows, first, shared = segments[-1] if segments else ([], 0, -1)
            wasted += prefix - first
            full = (len(rows) + 1) * (length - first) > most
            if shared != length or wasted > slack or full:
                segments.append(([row], prefix, length))
                wasted = 0
            else:
                rows.append(row)
        return segments

    def _passes(self, segments: list[Group]) -> list[list[Group]]:
        """Segments that go through the model together."""
        if not self.engine.packs:
            return [[segment] for segment in segments]
        passes: list[list[Group]] = []
        room = 0
        for rows, prefix, length in segments:
            tokens = len(rows) * (length - prefix)
            if not passes or tokens > room:
                passes.append([])
                room = self.plan.tokens
            passes[-1].append((rows, prefix, length))
            room -= tokens
        return passes

    def _segment(self, keep: Subsets, prefix: int, length: int) -> Segment:
        there = torch.from_numpy(np.ascontiguousarray(keep))[:, self._owner]
        positions = tuple(self.target.positions)
        if self.substitute is not None:
            there = there[:, prefix:].to(self.embeds.device)
            absent = self.substitute if self.substitute.ndim == 1 else self.substitute[prefix:]
            return Segment(torch.where(there.unsqueeze(-1), self.embeds[prefix:], absent), prefix, positions)
        if length == 0 or not (
            self.engine.translates or (len(positions) == 1 and self.engine.causal) or self.engine.pools
        ):
            raise BadInput(
                "Tokens can be removed only before one prediction of a causal model, or of a sentence vector, and not all; "
                "use a substitute token instead."
            )
        where = there.nonzero()[:, 1].reshape(len(keep), length)[:, prefix:]
        fixed = self.engine.translates or self.engine.pools
        return Segment(self.embeds[where.to(self.embeds.device)], prefix, positions if fixed else (length - 1,))

    @property
    def everything(self) -> Subsets:
        """The row with every unit there, [n]."""
        return np.ones(len(self.units), dtype=bool)

    def without_each(self) -> Subsets:
        """One row a unit, that unit missing: [n, n]."""
        return ~np.eye(len(self.units), dtype=bool)


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
