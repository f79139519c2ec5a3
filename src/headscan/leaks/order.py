"""The texts of a training step's batch, token after token: the second stage of reading a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.span import GradientTokens, distances, inputs_of, span_of
from headscan.model.lens import Lens
from headscan.run import Progress

__all__ = ["GradientText", "texts_in_gradient"]

BATCH = 512


@dataclass(frozen=True)
class GradientText:
    """The beginning of a text in the batch: its tokens, and the largest distance of any of its inputs from the span."""

    tokens: list[int]
    distance: float


@torch.no_grad()
def texts_in_gradient(
    lens: Lens, gradient: Float[Tensor, "d m"], shown: GradientTokens, length: int, *, tolerance: float = 1e-3,
    most: int = 4096, progress: Progress | None = None,
) -> tuple[list[GradientText], bool]:  # fmt: skip
    """Put the tokens that a gradient shows into texts: every beginning of which all inputs of block 1 lie in its span.

    The input of block 1 at a position depends, in a causal model, on the tokens up to it and on their order. So a beginning of
    a text was in the batch only if the vector that it gives lies in the span of block 1's gradient. Beginnings grow by one
    token at a time, each of those that the first stage listed there, and are given up where they leave the span. Source: the
    second stage of Petrov et al., "DAGER", arXiv:2405.15586.

    Args:
        lens: the model; causal, of two blocks at least.
        gradient: [d, m] of block 1, as `gradients_of` gives it.
        shown: what the first stage lists.
        length: tokens of a row; the last of them has no gradient.
        tolerance: relative distance from the span that counts as inside.
        most: beginnings that are kept at a position, the nearest first.
        progress: told the positions done.

    Returns:
        The beginnings of all but the last tokens, and whether every beginning in the span was followed.

    What is certified: a text of which some beginning is not listed was not in the batch (where no position had more than
    `most` beginnings). That a listed one was there is a guess, as sure as the gap of distances is wide: where a batch has the
    same tokens in several orders and block 0 is nearly linear, sums of its inputs make up others. How often a text was in
    the batch is not told. At full rank nothing is shown.

    Cost: at each position, the beginnings times the tokens listed, runs of one block on the whole beginning.
    """
    basis, rank = span_of(gradient)
    if rank >= len(gradient):
        return [], False
    found, whole = [GradientText([], 0.0)], True
    for place in range(length - 1):
        listed = torch.tensor(shown.tokens[-1 if -1 in shown.tokens else place], dtype=torch.int64)
        if not len(listed):
            return [], whole
        starts = torch.tensor([one.tokens for one in found], dtype=torch.int64).reshape(len(found), place)
        rows = torch.cat([starts.repeat_interleave(len(listed), 0), listed.repeat(len(found))[:, None]], 1)
        last = [inputs_of(lens, some.to(lens.device), 1)[:, -1].double() for some in rows.split(BATCH)]
        away = torch.cat([distances(some, basis).cpu() for some in last])
        inside = (away <= tolerance).nonzero()[:, 0]
        whole = whole and len(inside) <= most
        inside = inside[away[inside].argsort(stable=True)][:most]
        found = [
            GradientText(rows[row].tolist(), max(found[int(row) // len(listed)].distance, float(away[row])))
            for row in inside
        ]
        if progress:
            progress("order of tokens", place + 1, length - 1, "positions")
    return found, whole
