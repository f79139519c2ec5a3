"""From what a method found to an entry of the result: the tokens are run again and judged by what comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headscan.inversion.certificate import (
    ABSENT,
    BUDGET,
    NOT_UNIQUE,
    UNIQUE,
    Residual,
    exchanges,
    jacobian,
    unseen,
    verdict_of,
)
from headscan.inversion.losses import relative
from headscan.model.slicing import SlicedModel
from headscan.text import display

__all__ = ["Outcome", "assess"]


@dataclass
class Outcome:
    """What a method found for one prompt, before it is assessed."""

    tokens: list[int]
    evaluations: int
    rivals: list[list[int]] | None = None
    margins: list[float] | None = None
    per_token: list[int] | None = None
    checked: str = ""
    exhausted: bool = False
    notes: tuple[str, ...] = ()
    passes: int = 0
    top: list[list[int]] | None = None


def assess(
    cut: SlicedModel,
    ids: Tensor,
    target: Tensor,
    outcome: Outcome,
    tolerance: float,
    known: dict[int, int],
    method: str,
    lens: Any,
    with_jacobian: bool,
) -> dict[str, Any]:
    """The entry of one prompt in the result's `prompts`.

    The verdict uses nothing of the true tokens `ids`; only `token_accuracy` does.
    """
    tokens = torch.tensor(outcome.tokens, device=cut.lens.device)
    length = len(tokens)
    with torch.no_grad():
        seen = relative(cut.run(tokens[None]), target[None])[0]
    residual = float(seen.max())
    hidden = unseen(cut, tokens)
    rivals = outcome.rivals
    margins = outcome.margins
    checked = outcome.checked
    if residual <= tolerance and rivals is None:
        lists = [(cut.vectors - cut.vectors[token]).norm(dim=1).argsort() for token in tokens]
        places = [place for place in range(length) if place not in known and not hidden[place]]
        counter = Residual(cut, target, 10**9)
        rivals, margin, checked = exchanges(counter, tokens, places, lists, residual)
        margins = [margin] * length
    rivals = rivals or [[] for _ in range(length)]
    at = _own_residuals(cut, seen, length)
    words = [
        ABSENT if hidden[place] else BUDGET if residual > tolerance and (at[place] is None or at[place] > tolerance)  # type: ignore[operator]
        else NOT_UNIQUE if rivals[place] else UNIQUE
        for place in range(length)
    ]  # fmt: skip
    right = sum(int(a) == int(b) for a, b in zip(ids, tokens, strict=True))
    equal = [token for token, rest in zip(tokens.tolist(), rivals, strict=True) if rest and _equal_rows(cut, token)]
    notes = list(outcome.notes)
    if equal:
        notes.append(
            f"{len(equal)} tokens share their embedding row with another token: no method can tell them apart."
        )
    certificate: dict[str, Any] = {
        "residual": residual,
        "residuals": at,
        "tolerance": tolerance,
        "margin": min([m for m in margins or [] if math.isfinite(m)], default=None),
        "margins": [m if math.isfinite(m) else None for m in margins] if margins else None,
        "equivalent": rivals,
        "unseen": hidden,
        "checked": checked,
    }
    if with_jacobian:
        certificate["jacobian"] = jacobian(cut, tokens)
    verdict = verdict_of(residual, tolerance, rivals, hidden)
    tokenizer = lens.tokenizer
    return {
        "tokens": ids.tolist(),
        "recovered": tokens.tolist(),
        "strings": display(tokenizer, ids.tolist()) if tokenizer else [f"{i}" for i in ids.tolist()],
        "recovered_strings": display(tokenizer, tokens.tolist()) if tokenizer else [f"{i}" for i in tokens.tolist()],
        "top": outcome.top,
        "token_accuracy": right / length,
        "known": sorted(known),
        "verdict": verdict,
        "verdicts": words,
        "certified": _sentence(verdict, checked, method),
        "certificate": certificate,
        "evaluations": outcome.evaluations,
        "evaluations_per_token": outcome.per_token,
        "passes": outcome.passes,
        "notes": notes,
    }


def _own_residuals(cut: SlicedModel, seen: Tensor, length: int) -> list[float | None]:
    """For each position the residual of its own output, None where that is not given."""
    found: list[float | None] = [None] * length
    if cut.slice.pool is None:
        for place, value in zip(cut.kept(length), seen.tolist(), strict=True):
            found[place] = value
    return found


def _equal_rows(cut: SlicedModel, token: int) -> bool:
    return token in cut.equal_rows


def _sentence(verdict: str, checked: str, method: str) -> str:
    if verdict == BUDGET:
        return "Nothing is certified: the tokens shown do not give the output; they are a guess."
    what = "The tokens shown, when run, give the output up to rounding"
    if verdict == ABSENT:
        return f"{what}; some tokens move no output given, and what is shown there is arbitrary."
    tail = f" Tried against them: {checked}." if checked else ""
    if verdict == NOT_UNIQUE:
        return f"{what}, but so do others.{tail}"
    return f"{what}, and no other that was tried does.{tail}"
