"""From what a method found to an entry of the result: the tokens are run again and judged by what comes out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headscan.inversion import certificate as proof
from headscan.inversion.certificate import Certificate, Verdict
from headscan.inversion.losses import relative
from headscan.inversion.reconstruction import UNCOMPARED, Compared, Reconstruction
from headscan.inversion.result import PromptInversion
from headscan.inversion.tolerance import accepts
from headscan.model.slicing import SlicedModel
from headscan.text import display
from headscan.text.prompts import Prompt

__all__ = ["assess"]


def assess(
    cut: SlicedModel, prompt: Prompt, target: Tensor, found: Reconstruction, *, tolerance: float, known: dict[int, int],
    with_jacobian: bool = False,
) -> PromptInversion:  # fmt: skip
    """The entry of one prompt in the result's `prompts`.

    The verdict uses nothing of the true tokens; only `token_accuracy` does.
    """
    tokens = torch.tensor(found.tokens, device=cut.lens.device)
    length = len(tokens)
    with torch.no_grad():
        seen = relative(cut.run(tokens[None]), target[None])[0]
    residual = float(seen.max())
    hidden = proof.unseen(cut, tokens)
    compared = found.compared
    if accepts(residual, tolerance) and compared is None:
        lists = [(cut.vectors - cut.vectors[token]).norm(dim=1).argsort() for token in tokens]
        places = [place for place in range(length) if place not in known and not hidden[place]]
        counter = proof.Residual(cut, target, 10**9)
        compared = proof.exchanges(counter, tokens, places, lists, residual, tolerance=tolerance)
    rivals = [list(one.within) for one in compared or [UNCOMPARED] * length]
    margins = None if compared is None else [one.runner_up for one in compared]
    free = [one for place, one in enumerate(compared or []) if place not in known]
    checked = _counts(free, cut.vocabulary_size)
    own = _own_residuals(cut, seen, length)
    verdict = proof.verdict_of(residual, tolerance, rivals, hidden)
    shared = sum(bool(rest) and token in cut.equal_rows for token, rest in zip(found.tokens, rivals, strict=True))
    notes = list(found.notes)
    if shared:
        notes.append(f"{shared} tokens share their embedding row with another token: no method can tell them apart.")
    certificate = Certificate(
        type="exhaustive" if compared and all(one.why == "all" for one in free) and not any(hidden) else "sampled",
        residual=_finite(residual), residuals=[None if value is None else _finite(value) for value in own],
        tolerance=tolerance, equivalent=rivals, unseen=hidden, checked=checked,
        margin=min([m for m in margins or [] if math.isfinite(m)], default=None),
        margins=None if margins is None else [_finite(m) for m in margins],
        jacobian=proof.jacobian(cut, tokens) if with_jacobian else None,
    )  # fmt: skip
    tokenizer = cut.lens.tokenizer
    return PromptInversion(
        tokens=list(prompt.ids), recovered=found.tokens, strings=list(prompt.tokens),
        recovered_strings=display(tokenizer, found.tokens) if tokenizer else [f"<id {i}>" for i in found.tokens],
        top=found.top, passes=found.passes, notes=notes, known=sorted(known),
        token_accuracy=sum(a == b for a, b in zip(prompt.ids, found.tokens, strict=True)) / length,
        verdict=verdict, verdicts=_verdicts(residual, own, tolerance, rivals, hidden),
        certified=_sentence(verdict, checked), certificate=certificate,
        evaluations=found.evaluations, evaluations_per_token=found.per_token,
    )  # fmt: skip


def _verdicts(
    residual: float, own: list[float | None], tolerance: float, rivals: list[list[int]], hidden: list[bool]
) -> list[Verdict]:
    """The verdict on each position: a wrong prompt may still have outputs that are right."""
    whole = accepts(residual, tolerance)
    fits = [whole or (value is not None and accepts(value, tolerance)) for value in own]
    return [
        proof.ABSENT if unseen_here else proof.BUDGET if not fit else proof.NOT_UNIQUE if others else proof.UNIQUE
        for unseen_here, fit, others in zip(hidden, fits, rivals, strict=True)
    ]


def _own_residuals(cut: SlicedModel, seen: Tensor, length: int) -> list[float | None]:
    """For each position the residual of its own output, None where that is not given."""
    found: list[float | None] = [None] * length
    if cut.slice.pool is None:
        for place, value in zip(cut.kept(length), seen.tolist(), strict=True):
            found[place] = value
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _counts(free: list[Compared], vocabulary: int) -> str:
    """How many tokens each position's was compared with."""
    counts = sorted({one.count for one in free})
    if not counts:
        return ""
    shown = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"at each position {shown} of {vocabulary:,} tokens"


def _sentence(verdict: Verdict, checked: str) -> str:
    if verdict == proof.BUDGET:
        return "Nothing is certified: the tokens shown do not give the output; they are a guess."
    what = "The tokens shown, when run, give the output up to rounding"
    if verdict == proof.ABSENT:
        return f"{what}; some tokens move no output given, and what is shown there is arbitrary."
    tail = f" Tried against them: {checked}." if checked else ""
    if verdict == proof.NOT_UNIQUE:
        return f"{what}, but so do others.{tail}"
    return f"{what}, and no other that was tried does.{tail}"
