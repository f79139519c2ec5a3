"""What else would give the outputs: other tokens at each position, run under the prefix that was recovered.

A causal model's output at position t depends on the tokens up to t. Given those before t, the tokens that may stand at t
are those whose output there is within the tolerance of the one given; with every token of the vocabulary run, that is
known and not sampled. If at every position only one is, the whole prompt is the only one of its length: by induction,
another prompt would differ from it first at some position, under the same prefix, and its output there is farther.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscan.inversion.losses import relative
from headscan.inversion.reconstruction import UNCOMPARED, Evidence
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.run import Progress

__all__ = ["AFFORDABLE", "bound", "compare", "gives_vectors", "multiplications", "near_rows"]

AFFORDABLE = 1e10
"""Multiplications a prompt up to which every token is compared unasked: about a second on two cores."""

# Tokens whose vector is within this share of the found one's are compared even where not all are.
NEAR, MOST = 0.05, 256


def multiplications(cut: SlicedModel, length: int) -> float:
    """What it takes to compare every token of the vocabulary at every position of a prompt.

    Weights that a token passes on its way to the slice's output, times the vocabulary, times the positions (without a
    key-value cache a candidate costs its prefix again).
    """
    positions = length if can_cache(cut) else length * (length + 1) / 2
    return positions * cut.vocabulary_size * (cut.once("weights passed", lambda: _weights(cut)) + cut.width)


@torch.no_grad()
def _weights(cut: SlicedModel) -> int:
    """Parameters of the modules that run on one token, tables of embeddings apart."""
    passed: set[nn.Module] = set()
    modules = [
        module
        for module in cut.lens.model.modules()
        if not isinstance(module, nn.Embedding) and next(module.parameters(recurse=False), None) is not None
    ]
    handles = [module.register_forward_pre_hook(lambda module, _: passed.add(module)) for module in modules]
    try:
        cut.states(torch.zeros(1, 1, dtype=torch.int64))
    finally:
        for handle in handles:
            handle.remove()
    return sum(parameter.numel() for module in passed for parameter in module.parameters(recurse=False))


@torch.no_grad()
def compare(
    cut: SlicedModel, target: Float[Tensor, "kept w"], tokens: Int[Tensor, " T"], lists: Sequence[Int[Tensor, " N"]], *,
    tolerance: float, choice: int, progress: Progress | None = None,
) -> list[Evidence]:  # fmt: skip
    """What the tokens of `lists` give at each position, after the tokens found before it.

    Args:
        cut: a causal slice.
        target: the outputs given at the first positions, all of them up to the last.
        tokens: those found.
        lists: for each position of `target` the tokens to compare.
        tolerance: up to which a residual counts as equal.
        choice: tokens that may be returned; where a list holds all of them the position's comparison is complete.
        progress: told how many were compared.

    Returns:
        For each position of `tokens`; `UNCOMPARED` after the last output given.
    """
    prefix = Prefix(cut, tokens[None, :0])
    found = [UNCOMPARED] * len(tokens)
    step, total, done = max(16, min(2048, 2**22 // cut.width)), sum(map(len, lists)), 0
    last = max((place for place, names in enumerate(lists) if len(names)), default=-1)
    for place in range(last + 1):
        own = tokens[place : place + 1]
        names = torch.cat([own, lists[place][lists[place] != own]])
        parts = []
        for part in names.split(step) if len(lists[place]) else ():
            outputs = prefix.evaluate(torch.zeros_like(part), part)
            parts.append(relative(outputs, target[place].expand_as(outputs)))
            done += len(part)
            if progress:
                progress("certificate", done, total, "candidates")
        if parts:
            token, residuals = int(own), torch.cat(parts)
            one = Evidence.of(
                names, residuals, token, tolerance=tolerance, choice=choice, twins=tuple(cut.equal_rows.get(token, ()))
            )
            found[place] = one
        if place < last:
            prefix.extend(own[None])
    return found


def gives_vectors(cut: SlicedModel) -> bool:
    """Whether the output of a position is its token's vector itself: the tensor put in is the one that comes out."""

    def same() -> bool:
        vectors = cut.embed(torch.zeros(1, 2, dtype=torch.int64))
        found = cut.states(inputs_embeds=vectors)
        return found.shape == vectors.shape and found.data_ptr() == vectors.data_ptr()

    return cut.once("gives its vectors", same)


@torch.no_grad()
def bound(
    cut: SlicedModel, target: Float[Tensor, "kept w"], tokens: Int[Tensor, " T"], *, tolerance: float,
    allowed: Bool[Tensor, " V"] | None = None,
) -> list[Evidence]:  # fmt: skip
    """The same as `compare` with every token, where `gives_vectors`: distances of vectors by one product, none run.

    In float64 the computed ||x||^2 + ||o||^2 - 2 x.o is off by at most g (||x|| + ||o||)^2, g = (w + 4) u / (1 - (w + 4) u),
    u = 2^-53, in whatever order it is summed (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
    A token is farther than the tolerance if its distance less that is. Where it is not, its distance is taken as it is.

    Cost: T V w multiplications.
    """
    goal, error = target.double(), (cut.width + 4) * 2**-53 * 1.01
    scale = goal.norm(dim=1, keepdim=True)
    parts = []
    for part in cut.vectors.split(8192):
        rows = part.double()
        norms = rows.norm(dim=1)
        squares = norms**2 + scale**2 - 2 * goal @ rows.T
        lowest = squares - error * (norms + scale) ** 2
        near = lowest <= (tolerance * scale) ** 2
        for place, row in near.nonzero().tolist():
            squares[place, row] = (rows[row] - goal[place]).square().sum()
        parts.append(squares.clamp_min(0).sqrt() / scale.clamp_min(1e-30))
    residuals = torch.cat(parts, dim=1)
    names = torch.arange(residuals.shape[1], device=residuals.device)
    names = names if allowed is None else names[allowed]
    found = []
    for own, row in zip(tokens.tolist(), residuals[:, names], strict=False):
        twins = tuple(cut.equal_rows.get(own, ()))
        one = Evidence.of(names, row, own, tolerance=tolerance, choice=len(names), twins=twins)
        found.append(replace(one, why="bounded"))
    return found + [UNCOMPARED] * (len(tokens) - len(found))


def near_rows(
    cut: SlicedModel, tokens: Int[Tensor, " T"], allowed: Bool[Tensor, " V"] | None = None, least: int = 0
) -> list[Int[Tensor, " N"]]:
    """For each token the others whose vector is within 5 % of its own, at most the 256 nearest and at least `least`.

    Nothing is nearer to a token's output, as a rule, than what its nearest rows give: those are compared whatever the
    order of the search was. Cost: one product of T and V vectors.
    """
    own = cut.vectors[tokens].float()
    parts = [torch.cdist(own, part.float()) for part in cut.vectors.split(8192)]  # no float32 copy of the whole table
    distances = torch.cat(parts, dim=1)
    distances[torch.arange(len(tokens)), tokens] = float("inf")
    if allowed is not None:
        distances[:, ~allowed] = float("inf")
    near, names = distances.topk(min(MOST, distances.shape[1]), largest=False)
    inside = near <= NEAR * own.norm(dim=1)[:, None]
    inside[:, :least] = True
    inside &= near.isfinite()
    return [row[keep] for row, keep in zip(names, inside, strict=True)]
