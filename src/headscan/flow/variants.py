"""The cuts of a model that information between tokens is compared over."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.model.slicing import Slice
from headscan.run import BadInput

__all__ = ["VARIANTS", "names_of", "variant"]

VARIANTS: dict[str, dict[str, str | bool]] = {
    "whole": {},
    "attention": {"only": "attention"},
    "mlp": {"only": "mlp"},
    "no-residual": {"residual": False},
    "attention-no-residual": {"only": "attention", "residual": False},
    "causal": {"causal": True},
    "no-mask": {"causal": False},
    "fresh": {"weights": "fresh:0"},
}
"""Name -> what of the model is left (the attributes of a `Slice`). "fresh" has random weights."""


def names_of(name: str) -> list[str]:
    """The cuts that a name joins with +; BadInput where one is none.

    >>> names_of("attention+fresh")
    ['attention', 'fresh']
    """
    names = name.split("+")
    for one in names:
        if one not in VARIANTS:
            raise BadInput(f"There is no cut '{one}'; there are: {', '.join(VARIANTS)} (joined with +).")
    return names


def variant(name: str, sites: Sequence[str]) -> Slice:
    """The slice of that name which ends at `sites`.

    >>> str(variant("attention", ["block.0"]))
    'block.0 only=attention'
    """
    cut = Slice(sites=tuple(sites))
    for one in names_of(name):
        cut = cut.but(**VARIANTS[one])
    return cut
