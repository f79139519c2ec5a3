"""Gradient descent on embeddings, and what it shares with that on vectors over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch

from headscan.inversion.decoders import Decoding
from headscan.inversion.descent import descend, refuse_sequential
from headscan.inversion.losses import Loss
from headscan.inversion.method import METHODS, Method, Problem
from headscan.inversion.presets import PRESETS, Descent, Start
from headscan.inversion.reconstruction import Reconstruction
from headscan.model.slicing import SlicedModel
from headscan.run import Option, halving

__all__ = ["Indirect"]


@METHODS.register("indirect")
@dataclass(frozen=True, kw_only=True)
class Indirect(Method):
    """Embeddings are moved by gradients until the output fits, then decoded.

    A field that is None is the preset's.

    >>> Indirect(preset="seed", steps=50).descent(seed=0).optimiser
    'sgd'
    """

    name: ClassVar[Literal["indirect", "direct"]] = "indirect"

    preset: Annotated[
        Literal["adam", "lbfgs", "seed"], Option("Named settings; 'seed' is the published method, exactly.")
    ] = "adam"
    steps: Annotated[int | None, Option("Gradient steps. Default: the preset's.", low=1)] = None
    loss: Annotated[Loss | None, Option("Distance of outputs. Default: the preset's.")] = None
    decoder: Annotated[Decoding | None, Option("From vectors to tokens. Default: the preset's.")] = None
    restarts: Annotated[int | None, Option("Starts per prompt, in one batch. Default: 1.", low=1)] = None
    init: Annotated[Start | None, Option("Begin at embedding scale, at zeros, or at noise (as published).")] = None
    sequential: Annotated[bool, Option("One token after another, those found committed.")] = False
    rate: Annotated[float | None, Option("First learning rate. Default: by optimiser.", above=0)] = None

    def descent(self, seed: int) -> Descent:
        """The settings in full; a seed of 0 leaves the preset's own."""
        base = PRESETS["seed-direct" if self.preset == "seed" and self.name == "direct" else self.preset]
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "preset"}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(base, method=self.name, seed=seed or base.seed, **changes)

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """Itself, where the slice gives what sequential descent needs."""
        if self.sequential:
            refuse_sequential(cut, lengths)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Prompts of one length in a batch."""
        found: dict[int, Reconstruction] = {}
        for length in sorted(set(problem.lengths)):
            rows = [row for row, one in enumerate(problem.lengths) if one == length]
            found |= self._of_length(problem, rows, length)
        return [found[row] for row in range(len(problem.lengths))]

    def _of_length(self, problem: Problem, rows: list[int], length: int) -> dict[int, Reconstruction]:
        settings = self.descent(problem.seed)
        found: dict[int, Reconstruction] = {}

        def work(begin: int, end: int) -> None:
            part = rows[begin:end]
            target = torch.stack([problem.targets[row] for row in part])
            made = descend(problem.cut, target, length, settings, allowed=problem.allowed, progress=problem.progress)
            for place, row in enumerate(part):
                tokens, top = made.tokens[place].tolist(), made.top[place].tolist()
                found[row] = Reconstruction(tokens, made.steps, passes=made.passes // len(part), top=top)

        size = halving(len(rows), work, least="Use a shorter prompt, fewer restarts or a smaller model.")
        if size < len(rows):
            note = f"Memory ran out with {len(rows)} prompts together; {size} are descended at a time."
            return {row: replace(one, notes=(note,)) for row, one in found.items()}
        return found
