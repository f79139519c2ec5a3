"""From what a method found to an entry of the result: the tokens are run again and judged by what
comes out.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscan.inversion import reconstruction as proof
from headscan.inversion.methods import Problem
from headscan.inversion.reconstruction import (
    UNCOMPARED,
    Evidence,
    Reconstruction,
    accepts,
    noise_floor,
    relative,
)
from headscan.inversion.result import PromptInversion, certified, checked
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.run import BadInput, Progress
from headscan.text import Prompt, display
from headscan.text.tokens import unknown_token

# ---- What else would give the outputs: other tokens at each position, run under the prefix that was recovered.
#
# Given the tokens before t, those that may stand at t are those whose output there is within the
# tolerance. If at every position only one is, the whole prompt is the only one of its length:
# another would differ from it first at some position, under the same prefix, and its output there
# is farther.

# multiplications a prompt up to which every token is compared unasked: about a second on two cores
AFFORDABLE = 1e10
# tokens whose vector is within this share of the found one's are compared even if not all are
NEAR = 0.05
MOST = 256


def multiplications(cut: SlicedModel, length: int) -> float:
    """Of comparing every token at every position: weights passed on the way, times the vocabulary,
    times the positions.
    """
    positions = length if can_cache(cut) else length * (length + 1) / 2
    return (
        positions
        * cut.vocabulary_size
        * (cut.once("weights passed", lambda: _weights(cut)) + cut.width)
    )


@torch.no_grad()
def _weights(cut: SlicedModel) -> int:
    passed: set[nn.Module] = set()
    with ExitStack() as hooks:
        for module in cut.lens.model.modules():
            if not isinstance(module, nn.Embedding):
                hooks.callback(
                    module.register_forward_pre_hook(lambda module, _: passed.add(module)).remove
                )
        cut.states(torch.zeros(1, 1, dtype=torch.int64))
    return sum(
        parameter.numel() for module in passed for parameter in module.parameters(recurse=False)
    )


@torch.no_grad()
def compare(
    cut: SlicedModel,
    target: Float[Tensor, "kept w"],
    tokens: Int[Tensor, " T"],
    lists: Sequence[Int[Tensor, " N"]],
    *,
    tolerance: float,
    choice: int,
    progress: Progress | None = None,
) -> list[Evidence]:
    """What the tokens of each position's list give there, after the tokens found before it; cut is
    causal. Where a list holds all `choice` tokens that may be returned the position's comparison is
    complete.
    """
    prefix = Prefix(cut, tokens[None, :0])
    found = [UNCOMPARED] * len(tokens)
    step = max(16, min(512, 2**22 // cut.width))
    total = sum(map(len, lists))
    done = 0
    last = max((place for place, names in enumerate(lists) if len(names)), default=-1)
    for place in range(last + 1):
        own = tokens[place : place + 1]
        names = torch.cat([own, lists[place][lists[place] != own]])
        parts = []
        for part in names.split(step) if len(lists[place]) else ():
            outputs = prefix.evaluate(torch.zeros_like(part), part)
            parts.append(relative(outputs, target[place].expand_as(outputs)))
            done += len(part)
            if progress:
                progress("certificate", done, total, "candidates")
        if parts:
            token = int(own)
            twins = tuple(cut.equal_rows.get(int(own), ()))
            found[place] = Evidence.of(
                names, torch.cat(parts), token, tolerance=tolerance, choice=choice, twins=twins
            )
        if place < last:
            prefix.extend(own[None])
    return found


def gives_vectors(cut: SlicedModel) -> bool:
    """Whether the output of a position is its token's vector itself: the tensor put in is the one
    that comes out.
    """

    def same() -> bool:
        vectors = cut.embed(torch.zeros(1, 2, dtype=torch.int64))
        found = cut.states(inputs_embeds=vectors)
        return found.shape == vectors.shape and found.data_ptr() == vectors.data_ptr()

    return cut.once("gives its vectors", same)


@torch.no_grad()
def bound(
    cut: SlicedModel,
    target: Float[Tensor, "kept w"],
    tokens: Int[Tensor, " T"],
    *,
    tolerance: float,
    allowed: Bool[Tensor, " V"] | None = None,
) -> list[Evidence]:
    """The same as `compare` with every token, where `gives_vectors`: distances of vectors by one
    product, none run.

    In float64 the computed ||x||^2 + ||o||^2 - 2 x.o is off by at most g (||x|| + ||o||)^2, g = (w
    + 4) u / (1 - (w + 4) u), u = 2^-53, in whatever order it is summed (Higham, Accuracy and
    Stability of Numerical Algorithms, 2002, section 3.1). A token is farther than the tolerance if
    its distance less that is. Where it is not, its distance is taken as it is.
    """
    goal = target.double()
    error = (cut.width + 4) * 2**-53 * 1.01
    scale = goal.norm(dim=1, keepdim=True)
    parts = []
    for part in cut.vectors.split(8192):
        rows = part.double()
        norms = rows.norm(dim=1)
        squares = norms**2 + scale**2 - 2 * goal @ rows.T
        lowest = squares - error * (norms + scale) ** 2
        near = lowest <= (tolerance * scale) ** 2
        for place, row in near.nonzero().tolist():
            squares[place, row] = (rows[row] - goal[place]).square().sum()
        parts.append(squares.clamp_min(0).sqrt() / scale.clamp_min(1e-30))
    residuals = torch.cat(parts, dim=1)
    names = torch.arange(residuals.shape[1], device=residuals.device)
    names = names if allowed is None else names[allowed]
    found = []
    for own, row in zip(tokens.tolist(), residuals[:, names], strict=False):
        evidence = Evidence.of(
            names,
            row,
            own,
            tolerance=tolerance,
            choice=len(names),
            twins=tuple(cut.equal_rows.get(own, ())),
        )
        found.append(replace(evidence, why="bounded"))
    return found + [UNCOMPARED] * (len(tokens) - len(found))


def near_rows(
    cut: SlicedModel,
    tokens: Int[Tensor, " T"],
    allowed: Bool[Tensor, " V"] | None = None,
    least: int = 0,
) -> list[Int[Tensor, " N"]]:
    """For each token the others whose vector is within 5 % of its own, at most the 256 nearest and
    at least `least`.
    """
    own = cut.vectors[tokens].float()
    # no float32 copy of the whole table
    parts = [torch.cdist(own, part.float()) for part in cut.vectors.split(8192)]
    distances = torch.cat(parts, dim=1)
    distances[torch.arange(len(tokens)), tokens] = float("inf")
    if allowed is not None:
        distances[:, ~allowed] = float("inf")
    near, names = distances.topk(min(MOST, distances.shape[1]), largest=False)
    inside = near <= NEAR * own.norm(dim=1)[:, None]
    inside[:, :least] = True
    return [row[keep] for row, keep in zip(names, inside & near.isfinite(), strict=True)]


PROOFS: dict[str, proof.Proof] = {"all": "exhaustive", "bounded": "bounded", "sampled": "sampled"}


def assess(
    problem: Problem, number: int, prompt: Prompt, found: Reconstruction, *, ask: str = "auto"
) -> PromptInversion:
    """The entry of prompt `number` in the result; only `token_accuracy` uses the true prompt's
    tokens. `ask` is the certificate: "exhaustive", "sampled", or "auto": exhaustive where that is
    affordable.
    """
    cut = problem.cut
    known = problem.known[number]
    tolerance = problem.accepted
    tokens, seen, compared = _compared(problem, number, found, ask)
    length = len(tokens)
    residual = float(seen.max())
    # Where another token that was compared gave another output, the position is seen: no more
    # trials are needed.
    moved = [
        math.isfinite(one.runner_up) and one.runner_up - one.residual > noise_floor(cut)
        for one in compared
    ]
    hidden = (
        [False] * length
        if accepts(residual, tolerance) and all(moved)
        else proof.unseen(cut, tokens)
    )
    given = (
        dict(zip(cut.kept(length), seen.tolist(), strict=True)) if cut.slice.pool is None else {}
    )
    own = [given.get(place) for place in range(length)]
    types = [PROOFS["all" if place in known else one.why] for place, one in enumerate(compared)]
    rivals = [list(one.within) for one in compared]
    verdict = proof.verdict_of(residual, tolerance, rivals, hidden, types)
    ids = tokens.tolist()
    notes = list(found.notes)
    verdicts = _verdicts(residual, own, tolerance, rivals, hidden, types)
    unknown = unknown_token(cut.lens.tokenizer)
    lost = [place for place, token in enumerate(ids) if token == unknown and place not in known]
    if lost and verdict != proof.NOT_RECOVERED:
        verdict = proof.ABSENT
        verdicts = [proof.ABSENT if place in lost else each for place, each in enumerate(verdicts)]
    right = [
        a == b and place not in lost
        for place, (a, b) in enumerate(zip(prompt.ids, ids, strict=bool(prompt.ids)))
    ]
    shared = sum(
        bool(rest) and token in cut.equal_rows for token, rest in zip(ids, rivals, strict=True)
    )
    if shared:
        notes.append(
            f"{shared} tokens share their embedding row with another token: no method can tell "
            "them apart."
        )
    free = [one for place, one in enumerate(compared) if place not in known and not hidden[place]]
    choice = cut.vocabulary_size if problem.allowed is None else int(problem.allowed.sum())
    words = checked(free, choice, restricted=problem.allowed is not None)
    certificate = proof.Certificate(
        type=max(types, key=list(PROOFS.values()).index),
        types=types,
        compared=[one.count for one in compared],
        residual=_finite(residual),
        residuals=[None if value is None else _finite(value) for value in own],
        tolerance=tolerance,
        noise=noise_floor(cut),
        equivalent=rivals,
        unseen=hidden,
        checked=words,
        margin=min([one.runner_up for one in free if math.isfinite(one.runner_up)], default=None),
        margins=[_finite(one.runner_up) for one in compared],
        nearest=[one.token for one in compared],
    )
    return PromptInversion(
        tokens=list(prompt.ids),
        recovered=ids,
        strings=list(prompt.tokens),
        recovered_strings=display(cut.lens.tokenizer, ids),
        top=found.top,
        passes=found.passes,
        notes=notes,
        known=sorted(known),
        lost=lost,
        token_accuracy=sum(right) / length if prompt.ids else None,
        verdict=verdict,
        verdicts=verdicts,
        certified=certified(
            verdict, certificate, compared, found, problem.targets[number], choice, len(lost)
        ),
        certificate=certificate,
        evaluations=found.evaluations,
        evaluations_per_token=found.per_token,
    )


def refuse_incomparable(cut: SlicedModel, lengths: list[int], ordered: bool) -> None:
    """Raise BadInput where no token can be compared under its prefix alone, so that no certificate
    is exhaustive.
    """
    if not (
        ordered
        and cut.causal
        and all(cut.kept(length) == list(range(length)) for length in lengths)
    ):
        raise BadInput(
            "An exhaustive certificate goes from left to right: it needs a causal slice that "
            "gives the output of every position. Here it would have to run every prompt of that "
            "length."
        )


def _compared(
    problem: Problem, number: int, found: Reconstruction, ask: str
) -> tuple[Tensor, Tensor, list[Evidence]]:
    cut = problem.cut
    target = problem.targets[number]
    tolerance = problem.accepted
    tokens = torch.tensor(found.tokens, device=cut.lens.device)
    seen = _run(cut, tokens, target)
    nothing = [UNCOMPARED] * len(tokens)
    if not accepts(float(seen.max()), tolerance):
        return tokens, seen, found.compared or nothing
    kept = cut.kept(len(tokens))
    before = found.compared
    if not cut.causal or cut.slice.pool is not None or kept != list(range(len(kept))):
        return tokens, seen, before or _exchanged(problem, number, tokens, float(seen.max()))
    bounded = ask == "auto" and gives_vectors(cut)
    every = (
        bounded
        or ask == "exhaustive"
        or (ask == "auto" and multiplications(cut, len(kept)) <= AFFORDABLE)
    )
    while True:
        if bounded:
            compared = bound(cut, target, tokens, tolerance=tolerance, allowed=problem.allowed)
        else:
            compared = _under_prefix(problem, target, tokens, every, least=0 if before else 32)
        nearer = [
            one.token is not None and one.runner_up + noise_floor(cut) < one.residual
            for one in compared
        ]
        nearest = [
            own if one.token is None else one.token
            for own, one in zip(tokens.tolist(), compared, strict=True)
        ]
        other = torch.where(torch.tensor(nearer), torch.tensor(nearest), tokens.cpu()).to(tokens)
        again = _run(cut, other, target) if any(nearer) else seen
        if not any(nearer) or not float(again.max()) < float(seen.max()):
            break
        tokens = other
        seen = again
        before = None
    if before is not None and not every:
        compared = [one.and_also(two) for one, two in zip(compared, before, strict=True)]
    return tokens, seen, compared


def _under_prefix(
    problem: Problem, target: Tensor, tokens: Tensor, every: bool, least: int
) -> list[Evidence]:
    cut = problem.cut
    allowed = problem.allowed
    choices = torch.arange(cut.vocabulary_size, device=tokens.device)
    choices = choices if allowed is None else choices[allowed]
    lists = (
        [choices] * len(target) if every else near_rows(cut, tokens[: len(target)], allowed, least)
    )
    accepted = problem.accepted
    progress = problem.progress
    return compare(
        cut, target, tokens, lists, tolerance=accepted, choice=len(choices), progress=progress
    )


def _exchanged(problem: Problem, number: int, tokens: Tensor, residual: float) -> list[Evidence]:
    cut = problem.cut
    lists = [(cut.vectors - cut.vectors[token]).norm(dim=1).argsort() for token in tokens]
    if problem.allowed is not None:
        lists = [names[problem.allowed[names]] for names in lists]
    places = [place for place in range(len(tokens)) if place not in problem.known[number]]
    counter = proof.Residual(cut, problem.targets[number], 10**9)
    return proof.exchanges(counter, tokens, places, lists, residual, tolerance=problem.accepted)


@torch.no_grad()
def _run(cut: SlicedModel, tokens: Tensor, target: Tensor) -> Tensor:
    return relative(cut.run(tokens[None]), target[None])[0]


def _verdicts(
    residual: float,
    own: list[float | None],
    tolerance: float,
    rivals: list[list[int]],
    hidden: list[bool],
    types: list[proof.Proof],
) -> list[proof.Verdict]:
    """The verdict on each position; after the first output that is not right nothing is unique
    under its prefix.
    """
    found: list[proof.Verdict] = []
    whole = accepts(residual, tolerance)
    sound = True
    for value, others, unseen_here, kind in zip(own, rivals, hidden, types, strict=True):
        fits = residual if whole or value is None else value
        sound = sound and accepts(fits, tolerance)
        found.append(
            proof.verdict_of(
                fits, tolerance, [others], [unseen_here], [kind if sound else "sampled"]
            )
        )
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
