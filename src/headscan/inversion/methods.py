"""The inversion methods: exact, joint, indirect, direct, and auto, which chooses among them.

A method takes the outputs of prompts and returns their tokens.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.continuous import PRESETS, Descent, Loss, Start, descend
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.left_to_right import Search, exact, refuse_unordered
from headscan.inversion.reconstruction import UNCOMPARED, Reconstruction, accepted
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Named, Option, Progress, Registry, Settings


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Outputs of prompts that are to be inverted.

    Attributes:
        cut: the slice.
        targets: the output of each prompt.
        lengths: tokens of each prompt.
        known: of each prompt the tokens that are given, by position.
        allowed: the vocabulary to choose from; None: all of it.
        tolerance: relative residual up to which an output counts as equal; None: by precision.
        certain: residual that ends the search of a position at once; None: a tolerance that is
            given.
        seed: seed of random starts and orders.
        progress: called as the work goes on.

    Raises:
        BadInput: a tolerance below what rounding does. Equal outputs could not be told from unequal
            ones then, and a token would look unique that is not.
    """

    cut: SlicedModel
    targets: list[Float[Tensor, "kept w"]]
    lengths: list[int]
    known: list[dict[int, int]]
    allowed: Bool[Tensor, " V"] | None = None
    tolerance: float | None = None
    certain: float | None = None
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.tolerance is None:
            return
        least = accepted(self.cut)
        if self.tolerance < least:
            raise BadInput(
                f"--tolerance {self.tolerance:.2g} is less than rounding may do at "
                f"{self.cut.slice}: the least is {least:.2g}."
            )

    @property
    def accepted(self) -> float:
        """Return the tolerance, chosen by precision where none is given."""
        return accepted(self.cut) if self.tolerance is None else self.tolerance

    @property
    def choice(self) -> int:
        """Return the number of tokens that may be returned."""
        return self.cut.vocabulary_size if self.allowed is None else int(self.allowed.sum())


@dataclass(frozen=True, kw_only=True)
class Method(Settings, Named, ABC):
    """A way from outputs to tokens. Its fields are its parameters: options of the command line."""

    @property
    def target_scale(self) -> float:
        """Return the number with which a prompt's embeddings are multiplied to make the target."""
        return 1.0

    def chosen(self, _cut: SlicedModel, _lengths: list[int], *, ordered: bool) -> "Method":
        """Return the method that is used for prompts of these lengths.

        `ordered`: whether the observation tells positions apart.

        Raises:
            BadInput: for an output that the method cannot invert.
        """
        return self

    @abstractmethod
    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Return one reconstruction a prompt."""


METHODS: Registry[type[Method]] = Registry("method", "headscan.inversion.sequential")
"""All inversion methods by name."""

_JOINT = JointSearch()


@METHODS.register("exact")
class Exact(Search, Method):
    """Token by token from left to right, every candidate being run: causal slices that give
    positions.

    Tokens before the first output given are searched jointly. Source: Nikolaou et al.,
    arXiv:2510.15511 (SipIt).
    """

    hidden: Annotated[
        JointSearch, Option("How tokens without an output of their own are searched.", python=True)
    ] = _JOINT

    def chosen(self, cut: SlicedModel, _lengths: list[int], *, ordered: bool) -> Method:
        if not ordered:
            raise BadInput(
                "What is given carries no position (one vector stands for all of them), so it "
                "cannot be inverted token by token: use the method 'joint'."
            )
        refuse_unordered(cut)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        if all(problem.cut.kept(length) == list(range(length)) for length in problem.lengths):
            return self._ordered(problem, problem.targets, None)
        return [
            self._partly_hidden(problem, target, length)
            for target, length in zip(problem.targets, problem.lengths, strict=True)
        ]

    def _ordered(
        self, problem: Problem, targets: list[Tensor], known: Tensor | None
    ) -> list[Reconstruction]:
        """Search all prompts in step; every output after the known tokens is given."""
        traces = exact(
            problem.cut,
            targets,
            self,
            known=known,
            allowed=problem.allowed,
            tolerance=problem.tolerance,
            certain=problem.certain,
            seed=problem.seed,
            progress=problem.progress,
        )
        return [_reconstruction(trace) for trace in traces]

    def _partly_hidden(self, problem: Problem, target: Tensor, length: int) -> Reconstruction:
        """Search a prompt whose outputs are given at some positions only.

        Tokens before the first output are searched jointly, those after it in order. Tokens that
        neither reaches are reported as token 0.
        """
        first = problem.cut.kept(length)[0]
        hidden = Reconstruction([], 0)
        known = None
        if first > 0:
            hidden = joint(
                problem.cut.keeping("-1"),
                target[:1],
                first + 1,
                self.hidden,
                tolerance=problem.accepted,
                allowed=problem.allowed,
                seed=problem.seed,
                progress=problem.progress,
            )
            known = torch.tensor([hidden.tokens], dtype=torch.int64)
            target = target[1:]
        ordered = _reconstruction(SearchTrace())
        if len(target):
            ordered = self._ordered(problem, [target], known)[0]

        absent = length - len(hidden.tokens) - len(ordered.tokens)
        compared = list(hidden.compared or [UNCOMPARED] * len(hidden.tokens))
        compared += ordered.compared or []
        return replace(
            ordered,
            tokens=hidden.tokens + ordered.tokens + [0] * absent,
            evaluations=hidden.evaluations + ordered.evaluations,
            compared=compared + [UNCOMPARED] * absent,
            per_token=None,
            stopped=hidden.stopped or ordered.stopped,
        )


def _reconstruction(trace: SearchTrace) -> Reconstruction:
    return Reconstruction(
        trace.tokens,
        sum(trace.evaluations),
        [step.evidence for step in trace.steps],
        trace.evaluations,
        stopped=bool(trace.failed) and not trace.exhausted,
        passes=trace.passes,
    )


@METHODS.register("indirect")
class Indirect(Method):
    """Embeddings are moved by gradients until the output fits, then decoded; a field that is None
    is the preset's.
    """

    moves: ClassVar[Literal["indirect", "direct"]] = "indirect"

    preset: Annotated[
        Literal["adam", "seed"], Option("Named settings; 'seed' is the published method, exactly.")
    ] = "adam"
    steps: Annotated[int | None, Option("Gradient steps. Default: the preset's.", low=1)] = None
    loss: Annotated[Loss | None, Option("Distance of outputs. Default: the preset's.")] = None
    init: Annotated[
        Start | None, Option("Begin at embedding scale, at zeros, or at noise (as published).")
    ] = None
    rate: Annotated[
        float | None, Option("First learning rate. Default: by optimiser.", above=0)
    ] = None
    alpha: Annotated[
        float | None, Option("Weight of the cosine distance in loss=linear. Default: 1.", low=0)
    ] = None
    beta: Annotated[float | None, Option("Weight of L1 in loss=linear. Default: 1.", low=0)] = None
    decode_with: Annotated[
        Literal["slice", "model"],
        Option(
            "Decode with the embedding table that the slice ran with, or with the model's own "
            "(they differ in a slice with embedding=random:SEED)."
        ),
    ] = "slice"

    def descent(self, seed: int) -> Descent:
        """Return the settings in full; a seed of 0 leaves the preset's own."""
        weighted = self.alpha is not None or self.beta is not None
        if weighted and self.loss != "linear":
            raise BadInput("alpha and beta weight the two parts of loss=linear; give it too.")
        published_direct = self.preset == "seed" and self.moves == "direct"
        base = PRESETS["seed-direct" if published_direct else self.preset]
        names = {field.name for field in fields(Descent)}
        changes = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in names and getattr(self, field.name) is not None
        }
        return replace(base, method=self.moves, seed=seed or base.seed, **changes)

    def chosen(self, _cut: SlicedModel, _lengths: list[int], *, ordered: bool) -> "Method":
        self.descent(0)
        return self

    def table(self, cut: SlicedModel) -> Tensor | None:
        """Return the table that answers are decoded with; None: the slice's."""
        return cut.lens.input_embeddings if self.decode_with == "model" else None

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Return one reconstruction a prompt; prompts of one length are descended together."""
        settings = self.descent(problem.seed)
        reconstructions: dict[int, Reconstruction] = {}
        for length in sorted(set(problem.lengths)):
            prompts = [index for index, size in enumerate(problem.lengths) if size == length]
            descended = descend(
                problem.cut,
                torch.stack([problem.targets[index] for index in prompts]),
                length,
                settings,
                allowed=problem.allowed,
                decode_with=self.table(problem.cut),
                progress=problem.progress,
            )
            for row, index in enumerate(prompts):
                reconstructions[index] = Reconstruction(
                    descended.tokens[row].tolist(),
                    descended.steps,
                    passes=descended.passes // len(prompts),
                    top=descended.top[row].tolist(),
                )
        return [reconstructions[index] for index in range(len(problem.lengths))]


@METHODS.register("direct")
class Direct(Indirect):
    """Vectors over the vocabulary are moved by gradients; the token is the largest entry.

    As published (preset 'seed') it fails by its random start, whose part in the null space of the
    embedding no gradient moves.
    """

    moves: ClassVar[Literal["indirect", "direct"]] = "direct"

    scale: Annotated[
        float,
        Option(
            "Entry of a prompt's own token in the one-hot vector that makes the target; "
            "published are 1 and 10.",
            above=0,
        ),
    ] = 1.0

    @property
    def target_scale(self) -> float:
        return self.scale


@METHODS.register("joint")
class Joint(JointSearch, Method):
    """All tokens of a prompt together: gradient descents, then exchanges of one token after
    another; any slice.
    """

    def solve(self, problem: Problem) -> list[Reconstruction]:
        prompts = zip(problem.targets, problem.lengths, problem.known, strict=True)
        return [
            joint(
                problem.cut,
                target,
                length,
                self,
                known=known,
                tolerance=problem.accepted,
                allowed=problem.allowed,
                seed=problem.seed,
                progress=problem.progress,
            )
            for target, length, known in prompts
        ]


@METHODS.register("auto")
class Auto(Method):
    """Exact search where the slice is causal and gives positions, joint search elsewhere."""

    def chosen(self, cut: SlicedModel, _lengths: list[int], *, ordered: bool) -> Method:
        return Exact() if cut.causal and ordered else Joint()

    def solve(self, problem: Problem) -> list[Reconstruction]:
        ordered = problem.cut.slice.pool is None
        return self.chosen(problem.cut, problem.lengths, ordered=ordered).solve(problem)
