"""What may be given of a prompt in place of its text."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.inversion.methods import Exact, Method, Problem
from headscan.inversion.reconstruction import (
    FOREIGN,
    NOT_RECOVERED,
    Evidence,
    Reconstruction,
    accepted,
    accepts,
)
from headscan.inversion.result import PromptInversion
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import BadInput, Registry
from headscan.states import Vectors, stored_source
from headscan.states.stored import StoredSource
from headscan.text.prompts import Prompt


@dataclass(frozen=True)
class Observation:
    """Something that is known of a prompt."""

    about: str  # what it is, in words
    # what runs prompts to it, from a model and the slice that the user wants
    on: Callable[[Lens, Slice], SlicedModel]
    sliced: bool = False  # whether the user says which slice of the model it comes from
    ordered: bool = (
        False  # whether it tells positions apart, so that it can be inverted from left to right
    )


class NextTokenSlice(SlicedModel):
    """The log-probabilities of the token after the prompt, [B, 1, V]: all that an interface that
    gives them shows.
    """

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=("head",), tokens="-1"), lens)

    def states(self, *args: Any, **options: Any) -> Tensor:
        return F.log_softmax(super().states(*args, **options).float(), dim=-1)


class EmbeddingSlice(SlicedModel):
    """The mean over positions of the last block's output, of unit length, [B, 1, w]."""

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=(lens.match("block.*")[-1],), pool="mean"), lens)

    def part(self, states: Tensor) -> Tensor:
        return F.normalize(super().part(states).float(), dim=-1)


OBSERVATIONS: Registry[Observation] = Registry("given")
"""All observations by name."""
for name, observation in {
    "states": Observation(
        "The output of a slice.", lambda lens, cut: cut.on(lens), sliced=True, ordered=True
    ),
    "next-token": Observation(
        "The log-probabilities of the token after it.", lambda lens, _: NextTokenSlice(lens)
    ),
    "embedding": Observation(
        "The mean of the last block's states, of unit length.", lambda lens, _: EmbeddingSlice(lens)
    ),
}.items():
    OBSERVATIONS.add(name, observation)


# ---- States that were given, not made here: read from a store, cut into prompts, and inverted through noise that nobody knows.

# The tolerance over the largest residual that was taken for noise; how much nearer than the second
# nearest token the nearest must be for that; how often the tolerance is widened.
WIDER = 1.5
APART = 0.5
ROUNDS = 6


@dataclass(frozen=True)
class LeakedStates:
    """The outputs of each prompt that were given."""

    targets: list[Tensor]  # [T', w'] of each prompt
    lengths: list[int]  # tokens of each prompt
    prompts: list[Prompt]  # with their tokens where the store has them
    rounding: float  # relative error that storing them in their dtype may have made
    sha256: str


def leaked(cut: SlicedModel, given: object) -> LeakedStates:
    """The states of a slice from a store or an array; each window, else each document, else all of
    it is a prompt.
    """
    source = stored_source(given, context=1)
    if not isinstance(source, StoredSource):
        raise BadInput(
            "--states takes stored states: a file, a folder, a URL, or in Python an array or a "
            "dict of arrays."
        )
    vectors = source.vectors
    name = source.name
    site = next(iter(vectors.sites)) if len(vectors.sites) == 1 else "+".join(cut.sites)
    if site not in vectors.sites:
        raise BadInput(
            f"{name} has no states of {site}; it has: {', '.join(vectors.sites)} (choose one with "
            "#SITE behind its name)."
        )
    if source.pooled(site):
        raise BadInput(
            f"{name} holds one vector a text at {site}, and prompts are recovered from those of "
            "tokens: choose another site."
        )
    rows = vectors.sites[site]
    if rows.width != cut.width:
        raise BadInput(
            f"{name} holds vectors of width {rows.width}, and {cut.lens.name} gives {cut.width} "
            f"at {cut.slice}: these states cannot be this model's."
        )
    targets = []
    prompts = []
    digest = hashlib.sha256()
    for first, last in _spans(vectors):
        states = rows.read(first, last).float()
        if broken := (~states.isfinite().all(-1)).nonzero()[:, 0].tolist():
            raise BadInput(f"{name} holds NaN or infinite values at vector {first + broken[0]:,}.")
        targets.append(states)
        digest.update(states.numpy().tobytes())
        ids = [] if vectors.ids is None else vectors.ids.read(first, last).flatten().tolist()
        prompts.append(Prompt.of_ids(cut.lens.tokenizer, ids))
    roundoff = torch.finfo(rows.dtype).eps / 2 if rows.dtype.is_floating_point else 0.0
    return LeakedStates(
        targets, [_length(cut, len(one)) for one in targets], prompts, roundoff, digest.hexdigest()
    )


def _spans(vectors: Vectors) -> list[tuple[int, int]]:
    if vectors.lengths is not None:
        ends = np.cumsum(
            vectors.lengths.read(0, vectors.lengths.count).flatten().long().numpy()
        ).tolist()
        return list(pairwise([0, *ends]))
    if vectors.window:
        return [
            (first, first + vectors.window) for first in range(0, vectors.count, vectors.window)
        ]
    if vectors.documents is None:
        return [(0, vectors.count)]
    numbers = vectors.documents.read(0, vectors.count).flatten().numpy()
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), vectors.count]
    return list(pairwise(cuts))


def _length(cut: SlicedModel, outputs: int) -> int:
    longest = cut.lens.context_length
    if longest is not None and outputs > longest:
        raise BadInput(
            f"The states are of {outputs:,} tokens, and {cut.lens.name} reads at most {longest:,}."
        )
    for length in range(outputs, outputs + 65):
        if len(cut.kept(length)) == outputs:
            return length
    raise BadInput(
        f"The slice {cut.slice} gives {outputs} outputs of no prompt: say which positions the "
        "states are of."
    )


def solve_unknown(
    problem: Problem, method: Method, rounding: float
) -> tuple[Problem, list[Reconstruction]]:
    """Invert through noise of unknown size: the problem with the tolerance found, and its
    reconstructions.

    Where no token fits, but one is at least twice as near as every other, its distance is taken for
    noise. A tolerance that was given is used as it is.
    """
    if problem.tolerance is not None:
        return problem, method.solve(problem)
    problem = replace(problem, tolerance=max(accepted(problem.cut), 2 * rounding))
    found = method.solve(problem)
    # Within a wide tolerance the first token that fits need not be the nearest: more are compared
    # after it.
    patient = (
        replace(method, neighbours=max(32, method.neighbours))
        if isinstance(method, Exact)
        else method
    )
    for _ in range(ROUNDS):
        failures = [_failure(one, problem.accepted) for one in found]
        noises = [
            evidence.residual for _, evidence in filter(None, failures) if _stands_out(evidence)
        ]
        if not noises:
            break
        problem = replace(problem, tolerance=WIDER * max(noises))
        found = patient.solve(problem)
    return problem, found


def _failure(found: Reconstruction, tolerance: float) -> tuple[int, Evidence] | None:
    """The first position at which no token fits, with what was compared there, unless only some
    tokens were.
    """
    for place, evidence in enumerate(found.compared or []):
        if evidence.count and not accepts(evidence.residual, tolerance):
            return None if evidence.why == "sampled" else (place, evidence)
    return None


def foreign(
    entry: PromptInversion, found: Reconstruction, cut: SlicedModel, choice: int
) -> PromptInversion:
    """The entry, or that no token fits the first of the states, or stands out, of all tokens at
    this site.
    """
    failed = _failure(found, entry.certificate.tolerance)
    if failed is None or failed[0] > 0 or _stands_out(nearest := failed[1]):
        return entry
    away = (
        f"The nearest is {nearest.residual:.1e} of its norm away, and the second nearest "
        f"{nearest.runner_up:.1e}."
    )
    if nearest.residual > 1e20:
        away = "It is zero, or so near zero that no distance can be given in its norm."
    sentence = (
        f"No token fits: of all {choice:,} tokens none gives the first of these states at "
        f"{cut.slice}. {away} They may be of another site, order, scale or model, begin later "
        "than the prompt's first token, or be drowned by noise."
    )
    return replace(
        entry, verdict=FOREIGN, verdicts=[FOREIGN] * len(entry.verdicts), certified=sentence
    )


def _stands_out(evidence: Evidence) -> bool:
    return evidence.residual < APART * evidence.runner_up


def estimated_noise(entries: list[PromptInversion]) -> float | None:
    """The root mean square of the residuals of the tokens recovered: the noise of the states,
    relative to their norms.
    """
    recovered = [entry for entry in entries if entry.verdict not in (FOREIGN, NOT_RECOVERED)]
    residuals = [
        value for entry in recovered for value in entry.certificate.residuals if value is not None
    ]
    return float(np.sqrt(np.mean(np.square(residuals)))) if residuals else None
