"""Isotropy as part of the loss: terms added to any objective, given as "cosine:0.1" or "cosine:1,isoscore:0.5".

cosine          mean cosine between the rows of the output table: the head's, or without a head the input
                embeddings (Gao et al. 2019, with strength 1)
cosine-states   mean cosine between the last hidden states that carry loss: the cone itself
isoscore        1 - IsoScore* of the same states (I-STAR, Rudman and Eickhoff 2024); a negative strength lowers
                isotropy, which that paper found to help
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from headscan.errors import BadInput
from headscan.geometry.losses import cosine_regulariser, isoscore_loss
from headscan.training.heads import head_of

__all__ = ["REGULARISERS", "parse_regulariser", "penalty_of"]

REGULARISERS = ("cosine", "cosine-states", "isoscore")


def parse_regulariser(text: str | None) -> dict[str, float]:
    """Strengths by name; BadInput says what is wrong with the text.

    >>> parse_regulariser("cosine:0.1, isoscore:-1")
    {'cosine': 0.1, 'isoscore': -1.0}
    >>> parse_regulariser("cosine")
    Traceback (most recent call last):
    headscan.BadInput: A regulariser is written NAME:STRENGTH, as in cosine:0.1, not 'cosine'.
    """
    found: dict[str, float] = {}
    for part in (text or "").split(","):
        name, colon, strength = part.strip().partition(":")
        if not part.strip():
            continue
        try:
            value = float(strength)
        except ValueError:
            value = math.nan
        if not colon or not math.isfinite(value):
            raise BadInput(f"A regulariser is written NAME:STRENGTH, as in cosine:0.1, not {part.strip()!r}.")
        if name not in REGULARISERS:
            raise BadInput(f"There is no regulariser {name!r}; there are {', '.join(REGULARISERS)}.")
        if name in found:
            raise BadInput(f"The regulariser {name!r} is given twice.")
        found[name] = value
    return found


def penalty_of(strengths: dict[str, float], model: Any, states: Tensor) -> Tensor:
    """The sum of the terms, a scalar with gradient: states [K, d] are the last hidden states that carry loss.

    0 where a batch has too few states to compare. Cost: O(V d) for "cosine" (and a dense gradient of the table),
    O(K d) for "cosine-states", O(K d^2) for "isoscore".
    """
    total = states.sum() * 0
    for name, strength in strengths.items():
        if name == "cosine":
            table = model.get_input_embeddings().weight
            if model.get_output_embeddings() is not None:
                table = head_of(model).rows
            total = total + strength * cosine_regulariser(table)
        elif len(states) > 1:
            wide = states.float()  # squares of half-precision numbers overflow
            term = cosine_regulariser(wide) if name == "cosine-states" else isoscore_loss([wide], strength=1.0)
            total = total + strength * term
    return total
