"""The tokens and texts that a training step's gradient shows: those whose inputs lie in its span.

Source: Petrov et al., "DAGER: Exact Gradient Inversion for Large Language Models",
arXiv:2405.15586.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.model.lens import Lens
from headscan.model.recording import Kwargs, Stop, before_call, evaluating
from headscan.run import BadInput, Progress

TOLERANCE = 1e-3  # relative distance from the gradient's span up to which a vector counts as inside
RANK = 1e-6  # singular values below this share of the largest do not count
INFINITE = float("inf")
TOKENS = 512  # tokens that are run at once
ROWS = 512  # beginnings of texts that are run at once
ANYWHERE = -1
"""In place of a position where the model adds none before its first attention."""


@dataclass(frozen=True)
class GradientTokens:
    """The tokens that a gradient shows.

    Attributes:
        tokens: the tokens of each position whose input vector lies in the gradient's span, with
            their distances from it. Position -1 if the model adds no positions before its first
            attention: then only membership is seen.
        rank: of the gradient.
        width: of the inputs. At rank = width everything is in the span and nothing is shown.
        nearest_other: the least distance of a token that was not taken: the margin.
    """

    tokens: dict[int, dict[int, float]]
    rank: int
    width: int
    nearest_other: float

    def at(self, position: int) -> list[int]:
        """Return the tokens that are listed at a position."""
        return list(self.tokens[ANYWHERE if ANYWHERE in self.tokens else position])


def _reading_map(lens: Lens, block: int = 0) -> nn.Module:
    """Return the linear map of a block whose gradient shows most.

    It is the last of those that get the same input as the first. Queries, keys and values share
    theirs. The values come last, and only in their gradient does the first token of a row appear:
    attending to itself alone, its query and key have no influence.
    """
    calls: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, args: tuple[Any, ...], _kwargs: Kwargs) -> None:
        calls.append((module, args[0]))

    maps = [module for module in lens.stacks[0].blocks[block].modules() if _is_linear(module)]
    with before_call(maps, note):
        lens.run(torch.zeros(1, 1, dtype=torch.int64), sites=f"block.{block}")
    if not calls:
        raise BadInput(
            f"Block {block} of '{lens.name}' has no linear map whose gradient could be read."
        )
    first_input = calls[0][1]
    return [module for module, value in calls if value is first_input][-1]


def _is_linear(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.Embedding) or not isinstance(weight, Tensor):
        return False
    return weight.ndim == 2


def gradients_of(
    lens: Lens, input_ids: Int[Tensor, "B T"], blocks: Sequence[int] = (0,)
) -> list[Float[Tensor, "d m"]]:
    """Return the gradients of one step's next-token loss by each block's value projection.

    It is the joint projection of queries, keys and values where there is one. Inputs come first.
    """
    modules: list[Any] = [_reading_map(lens, block) for block in blocks]
    weights = [module.weight for module in modules]
    required = [weight.requires_grad for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with evaluating(lens.model), torch.enable_grad():
            logits = lens.model(input_ids=input_ids).logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())
            gradients = torch.autograd.grad(loss, weights)
    finally:
        for weight, value in zip(weights, required, strict=True):
            weight.requires_grad_(value)
    return [
        gradient if type(module).__name__ == "Conv1D" else gradient.T
        for module, gradient in zip(modules, gradients, strict=True)
    ]


def span_of(gradient: Float[Tensor, "d m"]) -> tuple[Float[Tensor, "d r"], int]:
    """Return an orthonormal basis of a gradient's columns, float64, and its rank r."""
    basis, singular_values, _ = torch.linalg.svd(gradient.double(), full_matrices=False)
    rank = int((singular_values > RANK * singular_values[0]).sum())
    return basis[:, :rank], rank


def distances(vectors: Float[Tensor, "N d"], basis: Float[Tensor, "d r"]) -> Float[Tensor, " N"]:
    """Return relative distances of vectors from the span of a basis, 0 (inside) to 1."""
    outside = (vectors - (vectors @ basis) @ basis.T).norm(dim=1)
    return torch.as_tensor(outside / vectors.norm(dim=1).clamp_min(1e-30))


@torch.no_grad()
def inputs_of(lens: Lens, rows: Int[Tensor, "B T"], block: int = 0) -> Float[Tensor, "B T d"]:
    """Return the inputs of the linear map of a block, whose gradient is read, for token rows.

    Where memory runs out, rows are run in smaller pieces.
    """
    pieces: list[Tensor] = []

    def run_piece(begin: int, end: int) -> None:
        pieces.append(_inputs_at_once(lens, rows[begin:end], block))

    lens.limit.run(len(rows), run_piece)
    return torch.cat(pieces)


def _inputs_at_once(lens: Lens, rows: Tensor, block: int) -> Tensor:
    inputs: list[Tensor] = []

    def read(_module: nn.Module, args: tuple[Any, ...], _kwargs: Kwargs) -> None:
        inputs.append(args[0])
        raise Stop

    module = lens.once(("reading map", block), lambda: _reading_map(lens, block))
    with before_call(module, read), evaluating(lens.model), suppress(Stop):
        lens.model(input_ids=rows)
    return inputs[0].reshape(*rows.shape, -1)


@torch.no_grad()
def tokens_in_gradient(lens: Lens, gradient: Float[Tensor, "d m"], length: int) -> GradientTokens:
    """Return the tokens of the batch whose gradient is given: the span check.

    The gradient of a linear map x -> x W is X^T D: its columns lie in the span of the inputs X, one
    row a token of the batch. As long as the batch has fewer tokens than the width, a token is in it
    only if its input vector lies in that span.

    What is certified: a token whose vector is farther than `TOLERANCE` from the span was not among
    the inputs, apart from tokens whose loss gradient vanishes (the last of a row never has one of
    its own). A token inside the span was in the batch unless its vector is by accident a
    combination of others.
    """
    basis, rank = span_of(gradient)
    parts = []
    for tokens in torch.arange(lens.vocabulary_size, device=lens.device).split(TOKENS):
        parts.append(inputs_of(lens, tokens[:, None].repeat(1, length)))
    vectors = torch.cat(parts).double()
    positions = [ANYWHERE]
    if not torch.allclose(vectors[:, 0], vectors[:, -1], rtol=1e-4, atol=1e-6):
        positions = list(range(length))

    listed: dict[int, dict[int, float]] = {}
    nearest_other = INFINITE
    for position in positions:
        distance = distances(vectors[:, position], basis)
        is_inside = distance <= TOLERANCE
        inside = is_inside.nonzero()[:, 0]
        listed[position] = dict(zip(inside.tolist(), distance[inside].tolist(), strict=True))
        outside = distance[distance > TOLERANCE].tolist()
        nearest_other = min([nearest_other, *outside])
    return GradientTokens(listed, rank, gradient.shape[0], nearest_other)


@dataclass(frozen=True)
class GradientTexts:
    """The beginnings of texts that a gradient shows.

    Attributes:
        beginnings: all but the last tokens of each text, with the largest distance of any of its
            inputs from the span.
        complete: whether every beginning in the span was followed.
    """

    beginnings: dict[tuple[int, ...], float]
    complete: bool


@torch.no_grad()
def texts_in_gradient(
    lens: Lens,
    gradient: Float[Tensor, "d m"],
    shown: GradientTokens,
    length: int,
    *,
    most: int = 4096,
    progress: Progress | None = None,
) -> GradientTexts:
    """Put the tokens that a gradient shows into texts: the second stage of DAGER.

    The input of block 1 at a position depends, in a causal model, on the tokens up to it and on
    their order. So a beginning of a text was in the batch only if the vector that it gives lies in
    the span of block 1's gradient. Beginnings grow by one token at a time, each of those that the
    first stage listed there, and are given up where they leave the span.

    What is certified: a text of which some beginning is not listed was not in the batch (where no
    position had more than `most` beginnings). That a listed one was there is a guess, as sure as
    the gap of distances is wide: where a batch has the same tokens in several orders and block 0 is
    nearly linear, sums of its inputs make up others. How often a text was in the batch is not told.
    At full rank nothing is shown.

    Cost: at each position, the beginnings times the tokens listed, runs of one block on the whole
    beginning.

    Args:
        lens: the model.
        gradient: of block 1.
        shown: the tokens that block 0's gradient shows.
        length: tokens of each text.
        most: beginnings that are followed at each position, the nearest.
        progress: called as the work goes on.
    """
    basis, rank = span_of(gradient)
    if rank >= len(gradient):
        return GradientTexts({}, complete=False)
    beginnings: dict[tuple[int, ...], float] = {(): 0.0}
    complete = True
    for position in range(length - 1):
        listed = torch.tensor(shown.at(position), dtype=torch.int64)
        if not len(listed):
            return GradientTexts({}, complete)
        starts = torch.tensor([*beginnings], dtype=torch.int64).reshape(len(beginnings), position)
        repeated = listed.repeat(len(beginnings))[:, None]
        rows = torch.cat([starts.repeat_interleave(len(listed), 0), repeated], 1)
        parts = []
        for part in rows.split(ROWS):
            vectors = inputs_of(lens, part.to(lens.device), 1)[:, -1].double()
            parts.append(distances(vectors, basis).cpu())
        distance = torch.cat(parts)

        inside = (distance <= TOLERANCE).nonzero()[:, 0]
        complete = complete and len(inside) <= most
        inside = inside[distance[inside].argsort(stable=True)][:most]
        grown: dict[tuple[int, ...], float] = {}
        for index in inside.tolist():
            tokens = tuple(rows[index].tolist())
            grown[tokens] = max(beginnings[tokens[:-1]], float(distance[index]))
        beginnings = grown
        if progress:
            progress("order of tokens", position + 1, length - 1, "positions")
    return GradientTexts(beginnings, complete)
