"""The part of an output [B, T, w] that is looked at, written as between numpy's brackets."""

from __future__ import annotations

import re

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.run import BadInput

__all__ = ["axes", "check_features", "features_of", "positions_of", "range_of"]

RANGE = re.compile(r"^\s*(-?\d*)\s*(:?)\s*(-?\d*)\s*$")
RANDOM = re.compile(r"^\s*random\s*\(?\s*(\d+)\s*(?:,\s*(\d+))?\s*\)?\s*$")


def axes(text: str) -> list[str]:
    """Split at the commas that are in no parentheses.

    >>> axes(":, 1:, random(4, 2)")
    [':', ' 1:', ' random(4, 2)']
    """
    return re.split(r",(?![^(]*\))", text)


def range_of(text: str) -> slice:
    """`1:`, `:3`, `2:5` or `-1` as a slice.

    Raises:
        BadInput: it is none of these.

    >>> range_of("2:5"), range_of("-1")
    (slice(2, 5, None), slice(-1, None, None))
    """
    match = RANGE.match(text)
    if match is None or not (match[1] or match[2]) or (match[3] and not match[2]):
        raise BadInput(f"'{text}' is no range of positions or features: write for example 1:, :3, 2:5 or -1.")
    first, colon, last = match.groups()
    if not colon:
        number = int(first)
        return slice(number, number + 1 if number != -1 else None)
    return slice(int(first) if first else None, int(last) if last else None)


def positions_of(text: str, length: int) -> list[int]:
    """The positions that a range keeps of `length`; BadInput for none.

    >>> positions_of("-1", 5), positions_of("1:3", 5)
    ([4], [1, 2])
    """
    found = list(range(length))[range_of(text)]
    if not found:
        raise BadInput(f"[:, {text}, :] leaves nothing of an output of {length} positions.")
    return found


def features_of(text: str, width: int) -> Int[Tensor, " kept"] | slice:
    """The index of the features that a range, or `random(COUNT, SEED)`, keeps of `width`; BadInput for none."""
    if match := RANDOM.match(text):
        count, seed = int(match[1]), int(match[2] or 0)
        if not 0 < count <= width:
            raise BadInput(f"{count} random features cannot be taken from {width}.")
        return torch.randperm(width, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    part = range_of(text)
    if not range(width)[part]:
        raise BadInput(f"[:, :, {text}] leaves nothing of an output of {width} features.")
    return part


def check_features(text: str) -> None:
    """Raise BadInput for what is neither a range nor `random(COUNT, SEED)`."""
    if not RANDOM.match(text):
        range_of(text)
