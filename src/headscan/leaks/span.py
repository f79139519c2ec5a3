"""Which tokens a training step's gradient shows: those whose input vectors lie in its span."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.model.lens import Lens
from headscan.model.record import Stop
from headscan.model.verify import evaluating
from headscan.run import BadInput

__all__ = ["GradientTokens", "distances", "gradients_of", "inputs_of", "span_of", "tokens_in_gradient"]


@dataclass(frozen=True)
class GradientTokens:
    """Which tokens a gradient shows.

    Attributes:
        tokens: for each position the tokens whose input vector lies in the gradient's span (position -1 if the model
            adds no positions before its first attention: then only membership is seen).
        residuals: of these, in the same order.
        rank: of the gradient; width: of the inputs. At rank = width everything is in the span and nothing is shown.
        nearest_other: the smallest residual of a token that was not taken: the margin.
    """

    tokens: dict[int, list[int]]
    residuals: dict[int, list[float]]
    rank: int
    width: int
    nearest_other: float


def _reading_map(lens: Lens, number: int = 0) -> nn.Module:
    """The linear map of a block whose gradient shows most: the last of those that get the same input as the first.

    Queries, keys and values share theirs. The values come last, and only in their gradient does the first token of a
    row appear: attending to itself alone, its query and key have no influence.
    """
    seen: list[tuple[nn.Module, Tensor]] = []
    handles = []
    block = lens.stacks[0].blocks[number]
    for module in block.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding):
            handles.append(module.register_forward_pre_hook(lambda module, args: seen.append((module, args[0]))))
    try:
        lens.run(torch.zeros(1, 1, dtype=torch.int64), sites=f"block.{number}")
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise BadInput(f"Block {number} of '{lens.name}' has no linear map whose gradient could be read.")
    return [module for module, given in seen if given is seen[0][1]][-1]


def gradients_of(lens: Lens, input_ids: Int[Tensor, "B T"], blocks: Sequence[int] = (0,)) -> list[Float[Tensor, "d m"]]:
    """The gradients of one step's next-token loss by each block's value (or joint) projection, inputs first [d, m]."""
    modules: list[Any] = [_reading_map(lens, number) for number in blocks]
    weights = [module.weight for module in modules]
    before = [weight.requires_grad for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with evaluating(lens.model), torch.enable_grad():
            logits = lens.model(input_ids=input_ids).logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())
            found = torch.autograd.grad(loss, weights)
    finally:
        for weight, wanted in zip(weights, before, strict=True):
            weight.requires_grad_(wanted)
    return [one if type(module).__name__ == "Conv1D" else one.T for module, one in zip(modules, found, strict=True)]


def span_of(gradient: Float[Tensor, "d m"]) -> tuple[Float[Tensor, "d r"], int]:
    """An orthonormal basis of a gradient's columns, float64, and its rank r."""
    basis, values, _ = torch.linalg.svd(gradient.double(), full_matrices=False)
    rank = int((values > 1e-6 * values[0]).sum())
    return basis[:, :rank], rank


def distances(vectors: Float[Tensor, "N d"], basis: Float[Tensor, "d r"]) -> Float[Tensor, " N"]:
    """Relative distances of vectors from the span of an orthonormal basis, 0 (inside) to 1."""
    away: Tensor = (vectors - (vectors @ basis) @ basis.T).norm(dim=1) / vectors.norm(dim=1).clamp_min(1e-30)
    return away


@torch.no_grad()
def inputs_of(lens: Lens, rows: Int[Tensor, "B T"], number: int = 0) -> Float[Tensor, "B T d"]:
    """What the linear map of a block, whose gradient is read, is given for token rows."""
    place: dict[str, Tensor] = {}

    def read(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        place["x"] = args[0]
        raise Stop

    handle = lens.once(("reading map", number), lambda: _reading_map(lens, number)).register_forward_pre_hook(read)
    try:
        with evaluating(lens.model), contextlib.suppress(Stop):
            lens.model(input_ids=rows)
    finally:
        handle.remove()
    return place["x"].reshape(*rows.shape, -1)


@torch.no_grad()
def tokens_in_gradient(
    lens: Lens, gradient: Float[Tensor, "d m"], length: int, *, tolerance: float = 1e-3
) -> GradientTokens:
    """Which tokens were in the batch whose gradient is given: the span check.

    The gradient of a linear map x -> x W is X^T D: its columns lie in the span of the inputs X, one row a token of the
    batch. As long as the batch has fewer tokens than the width, a token is in it only if its input vector lies in that
    span. Source: Petrov et al., "DAGER: Exact Gradient Inversion for Large Language Models", arXiv:2405.15586.

    Args:
        lens: the model whose step it was.
        gradient: [d, m] as `gradients_of` gives it.
        length: tokens of a row, for models with position embeddings.
        tolerance: relative distance from the span that counts as inside.

    What is certified: a token whose vector is farther than the tolerance from the span was not among the inputs, apart
    from tokens whose loss gradient vanishes (the last of a row never has one of its own). A token inside the span was
    in the batch unless its vector is by accident a combination of others.
    """
    basis, rank = span_of(gradient)
    inputs = [
        inputs_of(lens, tokens[:, None].repeat(1, length))
        for tokens in torch.arange(lens.vocabulary_size, device=lens.device).split(512)
    ]
    vectors = torch.cat(inputs).double()
    positions = range(length) if not torch.allclose(vectors[:, 0], vectors[:, -1], rtol=1e-4, atol=1e-6) else [-1]
    found: dict[int, list[int]] = {}
    residuals: dict[int, list[float]] = {}
    other = float("inf")
    for position in positions:
        distance = distances(vectors[:, position], basis)
        inside = (distance <= tolerance).nonzero()[:, 0]
        found[position], residuals[position] = inside.tolist(), distance[inside].tolist()
        outside = distance[distance > tolerance]
        other = min(other, float(outside.min())) if len(outside) else other
    return GradientTokens(found, residuals, rank, gradient.shape[0], other)
