"""Inversion of one token after another by gradients: a descent a position.

As published, each token is descended on by itself, without the tokens before it and without its
position, against an output that was computed with both: from the second token on no vector reaches
it. With the tokens that were found committed as a prefix, the target can be reached.
"""

from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.continuous import Descent, descend
from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.methods import METHODS, Indirect, Method, Problem
from headscan.inversion.reconstruction import Reconstruction
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Option


class _NextPosition:
    """The output at the position after a prefix, as a slice of one token."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix
        self.vectors = prefix.cut.vectors

    def run(
        self,
        input_ids: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        grad: bool = False,
    ) -> Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.prefix.cut.embed(torch.as_tensor(input_ids))
        rows = torch.arange(len(self.prefix.ids), device=inputs_embeds.device)
        return self.prefix.outputs(rows, inputs_embeds[:, 0], grad=grad)[:, None]


def one_after_another(
    cut: SlicedModel,
    target: Float[Tensor, "B T w"],
    length: int,
    settings: Descent,
    *,
    prefix: bool = True,
    allowed: Bool[Tensor, "*B V"] | None = None,
    decode_with: Float[Tensor, "V e"] | None = None,
) -> Int[Tensor, "B T"]:
    """Return tokens [B, `length`] by one descent a position of a causal slice.

    Args:
        target: the outputs at every position.
        prefix: whether the tokens that were found are committed before a position; without, each
            token is run alone at the first position, as published.
        allowed, decode_with: as of `descend`.
    """
    no_ids = torch.zeros(len(target), 0, dtype=torch.int64, device=target.device)
    found = Prefix(cut, no_ids)
    columns = []
    for position in range(length):
        runs = _NextPosition(found if prefix else Prefix(cut, no_ids))
        tokens = descend(
            runs,
            target[:, position : position + 1],
            1,
            replace(settings, seed=settings.seed + position),
            allowed=allowed,
            decode_with=decode_with,
        ).tokens
        columns.append(tokens)
        if prefix:
            found.extend(tokens)
    return torch.cat(columns, 1)


@METHODS.register("sequential")
class Sequential(Indirect):
    """One token after another, each by a descent of its own, behind the tokens found so far.

    `prefix=false` gives a token neither prefix nor position, as published. Source: Badger,
    "Language Modeling and Discrete Encodings", Sequential Input Representation.
    """

    prefix: Annotated[
        bool, Option("Commit the tokens found so far before a position (false: as published).")
    ] = True

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        super().chosen(cut, lengths, ordered=ordered)
        refuse_unordered(cut)
        if any(cut.kept(length) != list(range(length)) for length in lengths):
            raise BadInput(
                "Sequential inversion needs the output of every position; use 'indirect' or "
                "'joint'."
            )
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Return one reconstruction a prompt; prompts of one length are descended together."""
        settings = self.descent(problem.seed)
        reconstructions: dict[int, Reconstruction] = {}
        for length in sorted(set(problem.lengths)):
            prompts = [index for index, size in enumerate(problem.lengths) if size == length]
            tokens = one_after_another(
                problem.cut,
                torch.stack([problem.targets[index] for index in prompts]),
                length,
                settings,
                prefix=self.prefix,
                allowed=problem.allowed,
                decode_with=self.table(problem.cut),
            )
            for row, index in enumerate(prompts):
                steps = settings.steps * length
                reconstructions[index] = Reconstruction(tokens[row].tolist(), steps)
        return [reconstructions[index] for index in range(len(problem.lengths))]
