"""Other tokens that would give the outputs, at each position under the prefix that was recovered.

Given the tokens before t, those that may stand at t are those whose output there is within the
tolerance. If at every position only one is, the whole prompt is the only one of its length: another
would differ from it first at some position, under the same prefix, and its output there is farther.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscan.inversion.reconstruction import INFINITE, UNCOMPARED, Evidence, relative
from headscan.model.recording import Kwargs, before_call
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.run import Progress

# Tokens whose vector is within this share of the found one's are compared even if not all are, the
# nearest MOST of them.
NEAR = 0.05
MOST = 256
ROWS = 8192  # rows of the embedding table whose distances are computed at once


def multiplications(cut: SlicedModel, length: int) -> float:
    """Return the multiplications of comparing every token at every position.

    They are the weights passed on the way, times the vocabulary, times the positions.
    """
    positions = length if can_cache(cut) else length * (length + 1) / 2
    weights = cut.once("weights passed", lambda: _weights_passed(cut))
    return positions * cut.vocabulary_size * (weights + cut.width)


@torch.no_grad()
def _weights_passed(cut: SlicedModel) -> int:
    passed: set[nn.Module] = set()

    def note(module: nn.Module, _args: tuple[Any, ...], _kwargs: Kwargs) -> None:
        passed.add(module)

    modules = [part for part in cut.lens.model.modules() if not isinstance(part, nn.Embedding)]
    with before_call(modules, note):
        cut.states(torch.zeros(1, 1, dtype=torch.int64))
    return sum(weight.numel() for module in passed for weight in module.parameters(recurse=False))


@torch.no_grad()
def compare(
    cut: SlicedModel,
    target: Float[Tensor, "kept w"],
    tokens: Int[Tensor, " T"],
    lists: Sequence[Int[Tensor, " N"]],
    *,
    tolerance: float,
    choice: int,
    progress: Progress | None = None,
) -> list[Evidence]:
    """Run the tokens of each position's list after the tokens found before it; return the evidence.

    Where a list holds all `choice` tokens that may be returned, the comparison of its position is
    complete. The slice is causal.
    """
    prefix = Prefix(cut, tokens[None, :0])
    evidence = [UNCOMPARED] * len(tokens)
    batch = max(16, min(512, 2**22 // cut.width))
    total = sum(map(len, lists))
    done = 0
    last = max((position for position, names in enumerate(lists) if len(names)), default=-1)
    for position in range(last + 1):
        token = tokens[position : position + 1]
        if len(lists[position]):
            candidates = torch.cat([token, lists[position][lists[position] != token]])
            residuals = []
            for part in candidates.split(batch):
                outputs = prefix.evaluate(torch.zeros_like(part), part)
                residuals.append(relative(outputs, target[position].expand_as(outputs)))
                done += len(part)
                if progress:
                    progress("certificate", done, total, "candidates")
            evidence[position] = Evidence.of(
                candidates,
                torch.cat(residuals),
                int(token),
                tolerance=tolerance,
                choice=choice,
                twins=tuple(cut.equal_rows.get(int(token), ())),
            )
        if position < last:
            prefix.extend(token[None])
    return evidence


def gives_vectors(cut: SlicedModel) -> bool:
    """Return whether the output of a position is its token's vector itself.

    Then the tensor that is put in is the one that comes out.
    """

    def is_same() -> bool:
        vectors = cut.embed(torch.zeros(1, 2, dtype=torch.int64))
        states = cut.states(inputs_embeds=vectors)
        return states.shape == vectors.shape and states.data_ptr() == vectors.data_ptr()

    return cut.once("gives its vectors", is_same)


@torch.no_grad()
def bound(
    cut: SlicedModel,
    target: Float[Tensor, "kept w"],
    tokens: Int[Tensor, " T"],
    *,
    tolerance: float,
    allowed: Bool[Tensor, " V"] | None = None,
) -> list[Evidence]:
    """Return the evidence of comparing every token, where `gives_vectors`, without running any.

    Distances of vectors are computed by one product. In float64 the computed ||x||^2 + ||o||^2 - 2
    x.o is off by at most g (||x|| + ||o||)^2, g = (w + 4) u / (1 - (w + 4) u), u = 2^-53, in
    whatever order it is summed (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    section 3.1). A token is farther than the tolerance if its distance less that is. Where it is
    not, its distance is computed from the difference.
    """
    residuals = _vector_residuals(cut, target.double(), tolerance)
    names = torch.arange(residuals.shape[1], device=residuals.device)
    if allowed is not None:
        names = names[allowed]
    evidence = []
    for token, row in zip(tokens.tolist(), residuals[:, names], strict=False):
        twins = tuple(cut.equal_rows.get(token, ()))
        complete = Evidence.of(
            names, row, token, tolerance=tolerance, choice=len(names), twins=twins
        )
        evidence.append(replace(complete, why="bounded"))
    return evidence + [UNCOMPARED] * (len(tokens) - len(evidence))


def _vector_residuals(cut: SlicedModel, goal: Tensor, tolerance: float) -> Float[Tensor, "kept V"]:
    """Return relative distances of all tokens' vectors from the goals, exact near the tolerance."""
    error = (cut.width + 4) * 2**-53 * 1.01
    scale = goal.norm(dim=1, keepdim=True)
    parts = []
    for part in cut.vectors.split(ROWS):
        vectors = part.double()
        norms = vectors.norm(dim=1)
        squares = norms**2 + scale**2 - 2 * goal @ vectors.T
        lowest = squares - error * (norms + scale) ** 2
        for position, row in (lowest <= (tolerance * scale) ** 2).nonzero().tolist():
            squares[position, row] = (vectors[row] - goal[position]).square().sum()
        parts.append(squares.clamp_min(0).sqrt() / scale.clamp_min(1e-30))
    return torch.cat(parts, dim=1)


def near_rows(
    cut: SlicedModel,
    tokens: Int[Tensor, " T"],
    allowed: Bool[Tensor, " V"] | None = None,
    least: int = 0,
) -> list[Int[Tensor, " N"]]:
    """Return for each token the others whose vector is within 5 % of its own.

    They are at most the 256 nearest, and at least the `least` nearest.
    """
    vectors = cut.vectors[tokens].float()
    # In parts, so that there is no float32 copy of the whole table.
    parts = [torch.cdist(vectors, part.float()) for part in cut.vectors.split(ROWS)]
    distances = torch.cat(parts, dim=1)
    distances[torch.arange(len(tokens)), tokens] = INFINITE
    if allowed is not None:
        distances[:, ~allowed] = INFINITE
    nearest, names = distances.topk(min(MOST, distances.shape[1]), largest=False)
    inside = nearest <= NEAR * vectors.norm(dim=1)[:, None]
    inside[:, :least] = True
    inside &= nearest.isfinite()
    return [row[mask] for row, mask in zip(names, inside, strict=True)]
