"""From a reconstruction to an entry of the result: its tokens are run again and judged."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.comparisons import bound, compare, gives_vectors, multiplications, near_rows
from headscan.inversion.exchanges import PromptResiduals, exchanges, unseen
from headscan.inversion.methods import Problem
from headscan.inversion.reconstruction import (
    ABSENT,
    NOT_RECOVERED,
    UNCOMPARED,
    Certificate,
    Evidence,
    Proof,
    Reconstruction,
    Verdict,
    accepts,
    noise_floor,
    relative,
    verdict_of,
)
from headscan.inversion.result import PromptInversion
from headscan.inversion.wording import certified, compared_phrase
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput
from headscan.text import Prompt, display
from headscan.text.tokens import unknown_token

# Multiplications a prompt up to which every token is compared by default: about a second on two
# cores.
AFFORDABLE = 1e10
LEAST = 32  # nearest tokens that are compared where the method compared none
UNLIMITED = 10**9
PROOFS: dict[str, Proof] = {"all": "exhaustive", "bounded": "bounded", "sampled": "sampled"}
STRENGTH = list(PROOFS.values())


@dataclass(frozen=True)
class _Judged:
    """Tokens that were run, the relative residual of each output, the evidence of each position."""

    tokens: Int[Tensor, " T"]
    residuals: Float[Tensor, " kept"]
    evidence: list[Evidence]

    @property
    def residual(self) -> float:
        return float(self.residuals.max())


def assess(
    problem: Problem,
    number: int,
    prompt: Prompt,
    reconstruction: Reconstruction,
    *,
    ask: str = "auto",
) -> PromptInversion:
    """Return the entry of prompt `number` in the result.

    Only `token_accuracy` uses the true prompt's tokens. `ask` is the certificate: "exhaustive",
    "sampled", or "auto": exhaustive where that is affordable.
    """
    cut = problem.cut
    known = problem.known[number]
    tolerance = problem.accepted
    judged = _judge(problem, number, reconstruction, ask)
    token_ids = judged.tokens.tolist()
    hidden = _hidden(cut, judged, tolerance)
    types: list[Proof] = []
    for position, evidence in enumerate(judged.evidence):
        types.append("exhaustive" if position in known else PROOFS[evidence.why])

    certificate = _certificate(problem, known, judged, types, hidden)
    rivals = certificate.equivalent
    verdict = verdict_of(judged.residual, tolerance, rivals, hidden, types)
    verdicts = _verdicts(judged.residual, certificate)
    lost = _lost(cut, token_ids, known)
    if lost and verdict != NOT_RECOVERED:
        verdict = ABSENT
        for position in lost:
            verdicts[position] = ABSENT
    sentence = certified(
        verdict,
        certificate,
        judged.evidence,
        reconstruction,
        problem.targets[number],
        choice=problem.choice,
        lost=len(lost),
    )
    return PromptInversion(
        tokens=list(prompt.ids),
        recovered=token_ids,
        strings=list(prompt.tokens),
        recovered_strings=display(cut.lens.tokenizer, token_ids),
        top=reconstruction.top,
        passes=reconstruction.passes,
        notes=_notes(cut, token_ids, rivals),
        known=sorted(known),
        lost=lost,
        token_accuracy=_accuracy(prompt, token_ids, lost),
        verdict=verdict,
        verdicts=verdicts,
        certified=sentence,
        certificate=certificate,
        evaluations=reconstruction.evaluations,
        evaluations_per_token=reconstruction.per_token,
    )


def refuse_incomparable(cut: SlicedModel, lengths: list[int], ordered: bool) -> None:
    """Raise BadInput where no token can be compared under its prefix alone.

    No certificate is exhaustive then.
    """
    complete = all(cut.kept(length) == list(range(length)) for length in lengths)
    if not (ordered and cut.causal and complete):
        raise BadInput(
            "An exhaustive certificate goes from left to right: it needs a causal slice that "
            "gives the output of every position. Here it would have to run every prompt of that "
            "length."
        )


def _certificate(
    problem: Problem, known: dict[int, int], judged: _Judged, types: list[Proof], hidden: list[bool]
) -> Certificate:
    cut = problem.cut
    free = [
        evidence
        for position, evidence in enumerate(judged.evidence)
        if position not in known and not hidden[position]
    ]
    runners_up = [evidence.runner_up for evidence in free]
    return Certificate(
        type=max(types, key=STRENGTH.index),
        types=types,
        compared=[evidence.count for evidence in judged.evidence],
        residual=_finite(judged.residual),
        residuals=_residuals_by_position(cut, judged),
        tolerance=problem.accepted,
        noise=noise_floor(cut),
        equivalent=[list(evidence.within) for evidence in judged.evidence],
        unseen=hidden,
        checked=compared_phrase(free, problem.choice, restricted=problem.allowed is not None),
        margin=min(filter(math.isfinite, runners_up), default=None),
        margins=[_finite(evidence.runner_up) for evidence in judged.evidence],
        nearest=[evidence.token for evidence in judged.evidence],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _residuals_by_position(cut: SlicedModel, judged: _Judged) -> list[float | None]:
    """Return the residual of each position's own output; None where that is not given."""
    residuals: list[float | None] = [None] * len(judged.tokens)
    if cut.slice.pool is None:
        positions = cut.kept(len(judged.tokens))
        for position, value in zip(positions, judged.residuals.tolist(), strict=True):
            residuals[position] = _finite(value)
    return residuals


def _hidden(cut: SlicedModel, judged: _Judged, tolerance: float) -> list[bool]:
    """Return for each position whether no output depends on it.

    Where another token that was compared gave another output, the position is seen: no more trials
    are needed.
    """
    margins = [evidence.runner_up - evidence.residual for evidence in judged.evidence]
    moved = [math.isfinite(margin) and margin > noise_floor(cut) for margin in margins]
    if accepts(judged.residual, tolerance) and all(moved):
        return [False] * len(judged.tokens)
    return unseen(cut, judged.tokens)


def _lost(cut: SlicedModel, token_ids: list[int], known: dict[int, int]) -> list[int]:
    """Return the positions of the tokenizer's unknown token."""
    unknown = unknown_token(cut.lens.tokenizer)
    return [
        position
        for position, token in enumerate(token_ids)
        if token == unknown and position not in known
    ]


def _notes(cut: SlicedModel, token_ids: list[int], rivals: list[list[int]]) -> list[str]:
    shared = 0
    for token, equivalent in zip(token_ids, rivals, strict=True):
        if equivalent and token in cut.equal_rows:
            shared += 1
    if not shared:
        return []
    return [
        f"{shared} tokens share their embedding row with another token: no method can "
        "distinguish them."
    ]


def _accuracy(prompt: Prompt, token_ids: list[int], lost: list[int]) -> float | None:
    """Return the share of tokens recovered; None where the true tokens are not known."""
    if not prompt.ids:
        return None
    pairs = enumerate(zip(prompt.ids, token_ids, strict=True))
    right = [truth == token and position not in lost for position, (truth, token) in pairs]
    return sum(right) / len(token_ids)


def _verdicts(residual: float, certificate: Certificate) -> list[Verdict]:
    """Return the verdict on each position.

    After the first output that is not right nothing is unique under its prefix.
    """
    tolerance = certificate.tolerance
    accepted = accepts(residual, tolerance)
    sound = True
    verdicts: list[Verdict] = []
    for position, proof in enumerate(certificate.types):
        value = certificate.residuals[position]
        if accepted or value is None:
            value = residual
        sound = sound and accepts(value, tolerance)
        verdicts.append(
            verdict_of(
                value,
                tolerance,
                [certificate.equivalent[position]],
                [certificate.unseen[position]],
                [proof if sound else "sampled"],
            )
        )
    return verdicts


def _judge(problem: Problem, number: int, reconstruction: Reconstruction, ask: str) -> _Judged:
    """Run the tokens, and compare them with others where they give the output."""
    cut = problem.cut
    target = problem.targets[number]
    tokens = torch.tensor(reconstruction.tokens, device=cut.lens.device)
    residuals = _residuals(cut, tokens, target)
    evidence = reconstruction.compared
    judged = _Judged(tokens, residuals, evidence or [UNCOMPARED] * len(tokens))
    if not accepts(judged.residual, problem.accepted):
        return judged
    positions = cut.kept(len(tokens))
    if cut.causal and cut.slice.pool is None and positions == list(range(len(positions))):
        return _compared_under_prefix(problem, target, tokens, residuals, evidence, ask)
    if not evidence:
        evidence = _exchange_evidence(problem, number, tokens, judged.residual)
    return _Judged(tokens, residuals, evidence)


def _compared_under_prefix(
    problem: Problem,
    target: Tensor,
    tokens: Tensor,
    residuals: Tensor,
    evidence: list[Evidence] | None,
    ask: str,
) -> _Judged:
    """Compare tokens with others at each position, under the prefix.

    Where others are nearer, they are taken and compared in turn. `evidence` is what the method
    compared the tokens with.
    """
    cut = problem.cut
    bounded = ask == "auto" and gives_vectors(cut)
    complete = bounded or ask == "exhaustive"
    if ask == "auto" and not complete:
        complete = multiplications(cut, len(target)) <= AFFORDABLE
    while True:
        if bounded:
            compared = bound(
                cut, target, tokens, tolerance=problem.accepted, allowed=problem.allowed
            )
        else:
            least = 0 if evidence else LEAST
            compared = _compared(problem, target, tokens, complete=complete, least=least)
        nearer = _nearer(cut, tokens, compared)
        if torch.equal(nearer, tokens):
            break
        nearer_residuals = _residuals(cut, nearer, target)
        if not float(nearer_residuals.max()) < float(residuals.max()):
            break
        tokens = nearer
        residuals = nearer_residuals
        evidence = None
    if evidence is not None and not complete:
        pairs = zip(compared, evidence, strict=True)
        compared = [first.merged(second) for first, second in pairs]
    return _Judged(tokens, residuals, compared)


def _nearer(cut: SlicedModel, tokens: Tensor, evidence: list[Evidence]) -> Tensor:
    """Return the tokens, each replaced where another one is nearer by more than noise."""
    nearer = tokens.clone()
    for position, row in enumerate(evidence):
        if row.token is not None and row.runner_up + noise_floor(cut) < row.residual:
            nearer[position] = row.token
    return nearer


def _compared(
    problem: Problem, target: Tensor, tokens: Tensor, *, complete: bool, least: int
) -> list[Evidence]:
    """Run every token, or those with near vectors, at each position."""
    cut = problem.cut
    choices = torch.arange(cut.vocabulary_size, device=tokens.device)
    if problem.allowed is not None:
        choices = choices[problem.allowed]
    lists = [choices] * len(target)
    if not complete:
        lists = near_rows(cut, tokens[: len(target)], problem.allowed, least)
    return compare(
        cut,
        target,
        tokens,
        lists,
        tolerance=problem.accepted,
        choice=len(choices),
        progress=problem.progress,
    )


def _exchange_evidence(
    problem: Problem, number: int, tokens: Tensor, residual: float
) -> list[Evidence]:
    """Exchange one token at a time, those with the nearest vectors first."""
    cut = problem.cut
    lists = []
    for token in tokens:
        nearest = (cut.vectors - cut.vectors[token]).norm(dim=1).argsort()
        if problem.allowed is not None:
            nearest = nearest[problem.allowed[nearest]]
        lists.append(nearest)
    known = problem.known[number]
    positions = [position for position in range(len(tokens)) if position not in known]
    residuals_of = PromptResiduals(cut, problem.targets[number], UNLIMITED)
    return exchanges(residuals_of, tokens, positions, lists, residual, tolerance=problem.accepted)


@torch.no_grad()
def _residuals(cut: SlicedModel, tokens: Tensor, target: Tensor) -> Tensor:
    return relative(cut.run(tokens[None]), target[None])[0]
