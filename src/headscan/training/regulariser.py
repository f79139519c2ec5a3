"""Terms that may be added to any objective, written "cosine:0.1" or "cosine:1,z-loss:1e-4".

A term is one function in one file of `headscan.training.regularisers`, or of a plug-in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from headscan.run import BadInput, Registry
from headscan.training.objective import LossInputs

__all__ = ["REGULARISERS", "parse_regularisers", "penalty_of"]

Term = Callable[[LossInputs], Tensor]
REGULARISERS: Registry[Term] = Registry("regulariser", "headscan.training.regularisers")
"""Functions of what the forward pass left (the model, the states [K, d] that carry loss, the logits): a scalar with gradient."""


def parse_regularisers(text: str | None) -> dict[str, float]:
    """Strengths by name; BadInput says what is wrong with the text.

    >>> parse_regularisers("cosine:0.1, isoscore:-1")
    {'cosine': 0.1, 'isoscore': -1.0}
    >>> parse_regularisers("cosine")
    Traceback (most recent call last):
    headscan.BadInput: A regulariser is written NAME:STRENGTH, as in cosine:0.1, not 'cosine'.
    """
    found: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in (text or "").split(","))):
        name, colon, strength = part.partition(":")
        try:
            value = float(strength)
        except ValueError:
            value = math.nan
        if not colon or not math.isfinite(value):
            raise BadInput(f"A regulariser is written NAME:STRENGTH, as in cosine:0.1, not {part!r}.")
        if name in found:
            raise BadInput(f"The regulariser {name!r} is given twice.")
        _ = REGULARISERS[name]
        found[name] = value
    return found


def penalty_of(strengths: dict[str, float], inputs: LossInputs) -> Float[Tensor, ""]:
    """The sum of the terms, a scalar with gradient; 0 where a batch has too few states to compare."""
    total = inputs.rows.sum() * 0
    for name, strength in strengths.items():
        total = total + strength * REGULARISERS[name](inputs)
    return total
