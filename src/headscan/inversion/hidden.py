"""Exact inversion where the first outputs are not given: the hidden tokens jointly, the rest one after another."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.inversion.exact import Found, Search, exact, tolerance_of
from headscan.inversion.joint import JointSearch, joint
from headscan.inversion.table import Progress
from headscan.model.slicing import SlicedModel

__all__ = ["exact_hidden"]


def exact_hidden(
    cut: SlicedModel,
    target: Tensor,
    length: int,
    search: Search,
    together: JointSearch,
    *,
    allowed: Tensor | None = None,
    progress: Progress | None = None,
) -> tuple[list[int], Found, dict]:
    """One prompt of a causal slice whose outputs are given only at some positions.

    The tokens up to the first output given are searched jointly from that output alone. Then each run of hidden tokens
    ends at an output, and so does each token with an output of its own. Tokens after the last output are absent.

    Args:
        cut: a causal slice; target: [T', w'], its outputs at the positions kept.
        length: T.

    Returns:
        The tokens [T] (0 where nothing is known), what the sequential part found, and counts of the joint part.
    """
    kept = cut.kept(length)
    tolerance = tolerance_of(cut, search)
    tokens: list[int] = []
    joint_part = {"evaluations": 0, "rivals": {}, "checked": "", "margin": float("inf"), "exhausted": False}
    first = kept[0]
    if first > 0:
        found = joint(
            cut.keeping("-1"), target[:1], first + 1, together, tolerance=tolerance, allowed=allowed, progress=progress
        )
        tokens = found.tokens.tolist()
        joint_part |= {
            "evaluations": found.evaluations,
            "rivals": {place: rivals for place, rivals in enumerate(found.rivals) if rivals},
            "checked": found.checked,
            "margin": found.margin,
            "exhausted": found.residual > tolerance,
        }
    begin = len(tokens)
    rest = target[1:] if first > 0 else target
    if len(rest):
        known = torch.tensor([tokens], dtype=torch.int64) if tokens else None
        sequential = exact(cut, [rest], search, known=known, allowed=allowed, progress=progress)[0]
    else:
        sequential = Found()
    tokens += sequential.tokens
    tokens += [0] * (length - len(tokens))
    return tokens, sequential, joint_part | {"first": begin}
