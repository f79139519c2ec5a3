"""From what a method found to an entry of the result: the tokens are run again and judged by what comes out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headscan.inversion import certificate as proof
from headscan.inversion.certificate import Certificate, Proof, Verdict
from headscan.inversion.comparing import AFFORDABLE, bound, compare, gives_vectors, multiplications, near_rows
from headscan.inversion.losses import relative
from headscan.inversion.method import Problem
from headscan.inversion.reconstruction import UNCOMPARED, Evidence, Reconstruction
from headscan.inversion.result import PromptInversion
from headscan.inversion.sentences import certified, checked
from headscan.inversion.tolerance import accepts, noise_floor
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput
from headscan.text import display
from headscan.text.prompts import Prompt

__all__ = ["assess", "refuse_incomparable"]

PROOFS: dict[str, Proof] = {"all": "exhaustive", "bounded": "bounded", "sampled": "sampled"}


def assess(
    problem: Problem,
    number: int,
    prompt: Prompt,
    found: Reconstruction,
    *,
    ask: str = "auto",
    with_jacobian: bool = False,
) -> PromptInversion:
    """The entry of one prompt in the result's `prompts`.

    Args:
        problem: what was to be inverted.
        number: which of its prompts.
        prompt: the true one; the verdict uses nothing of its tokens, only `token_accuracy` does. It has none
            where they are not known.
        found: what the method found.
        ask: the certificate: "exhaustive", "sampled", or "auto": exhaustive where that is affordable.
        with_jacobian: whether the Jacobian is added.
    """
    cut, known, tolerance = problem.cut, problem.known[number], problem.accepted
    tokens, seen, compared = _compared(problem, number, found, ask)
    length, residual = len(tokens), float(seen.max())
    # Where another token that was compared gave another output, the position is seen: no more trials are needed.
    moved = [math.isfinite(one.runner_up) and one.runner_up - one.residual > noise_floor(cut) for one in compared]
    hidden = [False] * length if accepts(residual, tolerance) and all(moved) else proof.unseen(cut, tokens)
    own = _own_residuals(cut, seen, length)
    types = [PROOFS["all" if place in known else one.why] for place, one in enumerate(compared)]
    rivals = [list(one.within) for one in compared]
    verdict = proof.verdict_of(residual, tolerance, rivals, hidden, types)
    ids, notes = tokens.tolist(), list(found.notes)
    shared = sum(bool(rest) and token in cut.equal_rows for token, rest in zip(ids, rivals, strict=True))
    if shared:
        notes.append(f"{shared} tokens share their embedding row with another token: no method can tell them apart.")
    free = [one for place, one in enumerate(compared) if place not in known and not hidden[place]]
    choice = cut.vocabulary_size if problem.allowed is None else int(problem.allowed.sum())
    words = checked(free, choice, restricted=problem.allowed is not None)
    certificate = Certificate(
        type=max(types, key=list(PROOFS.values()).index), types=types, compared=[one.count for one in compared],
        residual=_finite(residual), residuals=[None if value is None else _finite(value) for value in own],
        tolerance=tolerance, noise=noise_floor(cut), equivalent=rivals, unseen=hidden, checked=words,
        margin=min([one.runner_up for one in free if math.isfinite(one.runner_up)], default=None),
        margins=[_finite(one.runner_up) for one in compared], nearest=[one.token for one in compared],
        jacobian=proof.jacobian(cut, tokens) if with_jacobian else None,
    )  # fmt: skip
    return PromptInversion(
        tokens=list(prompt.ids), recovered=ids, strings=list(prompt.tokens),
        recovered_strings=display(cut.lens.tokenizer, ids),
        top=found.top, passes=found.passes, notes=notes, known=sorted(known),
        token_accuracy=sum(a == b for a, b in zip(prompt.ids, ids, strict=True)) / length if prompt.ids else None,
        verdict=verdict, verdicts=_verdicts(residual, own, tolerance, rivals, hidden, types),
        certified=certified(verdict, certificate, compared, found, problem.targets[number], choice), certificate=certificate,
        evaluations=found.evaluations, evaluations_per_token=found.per_token,
    )  # fmt: skip


def refuse_incomparable(cut: SlicedModel, lengths: list[int], ordered: bool) -> None:
    """Raise BadInput where no token can be compared under its prefix alone, so that no certificate is exhaustive."""
    if not (ordered and cut.causal and all(cut.kept(length) == list(range(length)) for length in lengths)):
        raise BadInput(
            "An exhaustive certificate goes from left to right: it needs a causal slice that gives the output of every "
            "position. Here it would have to run every prompt of that length."
        )


def _compared(problem: Problem, number: int, found: Reconstruction, ask: str) -> tuple[Tensor, Tensor, list[Evidence]]:
    """The tokens found, the residuals of their outputs, and what they were compared with at each position."""
    cut, target, tolerance = problem.cut, problem.targets[number], problem.accepted
    tokens = torch.tensor(found.tokens, device=cut.lens.device)
    seen, nothing = _run(cut, tokens, target), [UNCOMPARED] * len(tokens)
    if not accepts(float(seen.max()), tolerance):
        return tokens, seen, found.compared or nothing
    kept, before = cut.kept(len(tokens)), found.compared
    if not cut.causal or cut.slice.pool is not None or kept != list(range(len(kept))):
        return tokens, seen, before or _exchanged(problem, number, tokens, float(seen.max()))
    bounded = ask == "auto" and gives_vectors(cut)
    every = bounded or ask == "exhaustive" or (ask == "auto" and multiplications(cut, len(kept)) <= AFFORDABLE)
    while True:
        if bounded:
            compared = bound(cut, target, tokens, tolerance=tolerance, allowed=problem.allowed)
        else:
            compared = _under_prefix(problem, target, tokens, every, least=0 if before else 32)
        nearer = [one.token is not None and one.runner_up + noise_floor(cut) < one.residual for one in compared]
        nearest = [own if one.token is None else one.token for own, one in zip(tokens.tolist(), compared, strict=True)]
        other = torch.where(torch.tensor(nearer), torch.tensor(nearest), tokens.cpu()).to(tokens)
        again = _run(cut, other, target) if any(nearer) else seen
        if not any(nearer) or not float(again.max()) < float(seen.max()):
            break
        tokens, seen, before = other, again, None
    if before is not None and not every:
        compared = [one.and_also(two) for one, two in zip(compared, before, strict=True)]
    return tokens, seen, compared


def _under_prefix(problem: Problem, target: Tensor, tokens: Tensor, every: bool, least: int) -> list[Evidence]:
    """Every token at each position, or only those of vectors near to the found one's, `least` of them at least."""
    cut, allowed = problem.cut, problem.allowed
    choices = torch.arange(cut.vocabulary_size, device=tokens.device)
    choices = choices if allowed is None else choices[allowed]
    lists = [choices] * len(target) if every else near_rows(cut, tokens[: len(target)], allowed, least)
    return compare(
        cut, target, tokens, lists, tolerance=problem.accepted, choice=len(choices), progress=problem.progress
    )


def _exchanged(problem: Problem, number: int, tokens: Tensor, residual: float) -> list[Evidence]:
    """What single exchanges give, where no position can be judged by its prefix."""
    cut = problem.cut
    lists = [(cut.vectors - cut.vectors[token]).norm(dim=1).argsort() for token in tokens]
    if problem.allowed is not None:
        lists = [names[problem.allowed[names]] for names in lists]
    places = [place for place in range(len(tokens)) if place not in problem.known[number]]
    counter = proof.Residual(cut, problem.targets[number], 10**9)
    return proof.exchanges(counter, tokens, places, lists, residual, tolerance=problem.accepted)


@torch.no_grad()
def _run(cut: SlicedModel, tokens: Tensor, target: Tensor) -> Tensor:
    """The relative residual of each output given."""
    return relative(cut.run(tokens[None]), target[None])[0]


def _verdicts(
    residual: float, own: list[float | None], tolerance: float, rivals: list[list[int]], hidden: list[bool],
    types: list[Proof],
) -> list[Verdict]:  # fmt: skip
    """The verdict on each position: a wrong prompt may still have outputs that are right.

    After the first output that is not, the prefix is a guess, and nothing is unique under it.
    """
    found: list[Verdict] = []
    whole, sound = accepts(residual, tolerance), True
    for value, others, unseen_here, kind in zip(own, rivals, hidden, types, strict=True):
        fits = residual if whole or value is None else value
        sound = sound and accepts(fits, tolerance)
        found.append(proof.verdict_of(fits, tolerance, [others], [unseen_here], [kind if sound else "sampled"]))
    return found


def _own_residuals(cut: SlicedModel, seen: Tensor, length: int) -> list[float | None]:
    """For each position the residual of its own output, None where that is not given."""
    found: list[float | None] = [None] * length
    if cut.slice.pool is None:
        for place, value in zip(cut.kept(length), seen.tolist(), strict=True):
            found[place] = value
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
