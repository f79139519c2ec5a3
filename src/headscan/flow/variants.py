"""The cuts of a model that information between tokens is compared over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscan.errors import BadInput
from headscan.model.slicing import Slice

__all__ = ["VARIANTS", "options_of", "variant"]

VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "attention": {"only": "attention"},
    "mlp": {"only": "mlp"},
    "no-residual": {"residual": False},
    "attention-no-residual": {"only": "attention", "residual": False},
    "causal": {"causal": True},
    "no-mask": {"causal": False},
    "fresh": {"weights": "fresh:0"},
}
"""Name -> what of the model is left (the attributes of a `Slice`). "fresh" is an untrained twin."""


def variant(name: str, sites: Sequence[str]) -> Slice:
    """The slice of that name which ends at `sites`.

    >>> str(variant("attention", ["block.0"]))
    'block.0 only=attention'
    """
    return Slice(sites=tuple(sites), **options_of(name))


def options_of(name: str) -> dict[str, Any]:
    """The attributes of a `Slice` that a cut sets."""
    changes: dict[str, Any] = {}
    for part in name.split("+"):
        if part not in VARIANTS:
            raise BadInput(f"There is no cut '{part}'; there are: {', '.join(VARIANTS)} (joined with +).")
        changes |= VARIANTS[part]
    return changes
