"""States that were given, not made here: read from a store, cut into prompts, and inverted through
noise of unknown size.
"""

import hashlib
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
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
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput
from headscan.states import Vectors, stored_source
from headscan.states.rows import Rows
from headscan.states.stored import StoredSource
from headscan.text.prompts import Prompt

WIDER = 1.5  # the tolerance over the largest residual that was taken for noise
# The nearest token's residual is taken for noise if it is below this share of the second nearest's.
APART = 0.5
ROUNDS = 6  # times that the tolerance is widened
PATIENCE = 32  # neighbours that are compared within a wide tolerance
LONGER = 65  # prompt lengths that are tried for a number of outputs
VANISHED = 1e20  # relative residual from which a state is as good as zero


@dataclass(frozen=True)
class LeakedStates:
    """The outputs of each prompt that were given.

    Attributes:
        targets: [T', w'] of each prompt.
        lengths: tokens of each prompt.
        prompts: with their tokens where the store has them.
        rounding: relative error that storing them in their dtype may have made.
        sha256: of all states.
    """

    targets: list[Tensor]
    lengths: list[int]
    prompts: list[Prompt]
    rounding: float
    sha256: str


def opened_states(states: object) -> StoredSource:
    """Return stored states; raise BadInput for what are none."""
    source = stored_source(states, context=1)
    if not isinstance(source, StoredSource):
        raise BadInput(
            "--states takes stored states: a file, a folder, a URL, or in Python an array or a "
            "dict of arrays."
        )
    return source


def leaked(cut: SlicedModel, source: StoredSource) -> LeakedStates:
    """Return the states of a slice from a store or an array, cut into prompts.

    A prompt is each window, else each document, else all of it.
    """
    vectors = source.vectors
    rows = _rows_of(cut, source)
    targets = []
    prompts = []
    digest = hashlib.sha256()
    for first, last in _spans(vectors):
        target = rows.read(first, last).float()
        broken = (~target.isfinite().all(-1)).nonzero()[:, 0].tolist()
        if broken:
            raise BadInput(
                f"{source.name} holds NaN or infinite values at vector {first + broken[0]:,}."
            )
        targets.append(target)
        digest.update(target.numpy().tobytes())
        token_ids = []
        if vectors.ids is not None:
            token_ids = vectors.ids.read(first, last).flatten().tolist()
        prompts.append(Prompt.of_ids(cut.lens.tokenizer, token_ids))
    return LeakedStates(
        targets=targets,
        lengths=[_length(cut, len(target)) for target in targets],
        prompts=prompts,
        rounding=torch.finfo(rows.dtype).eps / 2 if rows.dtype.is_floating_point else 0.0,
        sha256=digest.hexdigest(),
    )


def _rows_of(cut: SlicedModel, source: StoredSource) -> Rows:
    """Return the stored vectors of the slice's site; of the only site where there is one."""
    sites = source.vectors.sites
    name = source.name
    site = next(iter(sites)) if len(sites) == 1 else "+".join(cut.sites)
    if site not in sites:
        raise BadInput(
            f"{name} has no states of {site}; it has: {', '.join(sites)} (choose one with #SITE "
            "behind its name)."
        )
    if source.pooled(site):
        raise BadInput(
            f"{name} holds one vector a text at {site}, and prompts are recovered from those of "
            "tokens: choose another site."
        )
    rows = sites[site]
    if rows.width != cut.width:
        raise BadInput(
            f"{name} holds vectors of width {rows.width}, and {cut.lens.name} gives {cut.width} "
            f"at {cut.slice}: these states cannot be this model's."
        )
    return rows


def _spans(vectors: Vectors) -> list[tuple[int, int]]:
    """Return the first vector of each prompt and the one after its last."""
    if vectors.lengths is not None:
        lengths = vectors.lengths.read(0, vectors.lengths.count).flatten().long()
        return list(pairwise([0, *np.cumsum(lengths.numpy()).tolist()]))
    if vectors.window:
        starts = range(0, vectors.count, vectors.window)
        return [(start, start + vectors.window) for start in starts]
    if vectors.documents is None:
        return [(0, vectors.count)]
    documents = vectors.documents.read(0, vectors.count).flatten().numpy()
    borders = (np.flatnonzero(np.diff(documents)) + 1).tolist()
    return list(pairwise([0, *borders, vectors.count]))


def _length(cut: SlicedModel, outputs: int) -> int:
    """Return the length of the prompt that gives so many outputs."""
    longest = cut.lens.context_length
    if longest is not None and outputs > longest:
        raise BadInput(
            f"The states are of {outputs:,} tokens, and {cut.lens.name} reads at most {longest:,}."
        )
    for length in range(outputs, outputs + LONGER):
        if len(cut.kept(length)) == outputs:
            return length
    raise BadInput(
        f"The slice {cut.slice} gives {outputs} outputs of no prompt: say which positions the "
        "states are of."
    )


def solve_unknown(
    problem: Problem, method: Method, rounding: float
) -> tuple[Problem, list[Reconstruction]]:
    """Invert through noise of unknown size.

    Where no token fits, but one is at least twice as near as every other, its distance is taken for
    noise. A tolerance that was given is used as it is.

    Returns:
        The problem with the tolerance that was reached, and one reconstruction a prompt.
    """
    if problem.tolerance is not None:
        return problem, method.solve(problem)
    problem = replace(problem, tolerance=max(accepted(problem.cut), 2 * rounding))
    reconstructions = method.solve(problem)
    # Within a wide tolerance the first token that fits need not be the nearest: further ones are
    # compared.
    if isinstance(method, Exact):
        method = replace(method, neighbours=max(PATIENCE, method.neighbours))
    for _ in range(ROUNDS):
        noises = []
        for reconstruction in reconstructions:
            failure = _first_failure(reconstruction, problem.accepted)
            if failure is not None and _stands_out(failure.evidence):
                noises.append(failure.evidence.residual)
        if not noises:
            break
        problem = replace(problem, tolerance=WIDER * max(noises))
        reconstructions = method.solve(problem)
    return problem, reconstructions


@dataclass(frozen=True)
class _Failure:
    """A position at which no token fits, and what was compared there."""

    position: int
    evidence: Evidence


def _first_failure(reconstruction: Reconstruction, tolerance: float) -> _Failure | None:
    """Return the first position at which no token fits; None if only some were compared there."""
    for position, evidence in enumerate(reconstruction.compared or []):
        if evidence.count and not accepts(evidence.residual, tolerance):
            return None if evidence.why == "sampled" else _Failure(position, evidence)
    return None


def _stands_out(evidence: Evidence) -> bool:
    return evidence.residual < APART * evidence.runner_up


def foreign(
    entry: PromptInversion, reconstruction: Reconstruction, cut: SlicedModel, choice: int
) -> PromptInversion:
    """Return the entry, with the verdict "no token fits" where that holds.

    It holds where of all tokens none fits the first of the states, and none stands out.
    """
    failure = _first_failure(reconstruction, entry.certificate.tolerance)
    if failure is None or failure.position > 0 or _stands_out(failure.evidence):
        return entry
    nearest = failure.evidence
    distance = (
        f"The nearest is {nearest.residual:.1e} of its norm away, and the second nearest "
        f"{nearest.runner_up:.1e}."
    )
    if nearest.residual > VANISHED:
        distance = "It is zero, or so near zero that no distance can be given in its norm."
    sentence = (
        f"No token fits: of all {choice:,} tokens none gives the first of these states at "
        f"{cut.slice}. {distance} They may be of another site, order, scale or model, begin later "
        "than the prompt's first token, or be drowned by noise."
    )
    verdicts = [FOREIGN] * len(entry.verdicts)
    return replace(entry, verdict=FOREIGN, verdicts=verdicts, certified=sentence)


def estimated_noise(entries: list[PromptInversion]) -> float | None:
    """Return the noise of given states, relative to their norms; None where nothing was recovered.

    It is the root mean square of the residuals of the tokens recovered.
    """
    residuals: list[float] = []
    for entry in entries:
        if entry.verdict not in (FOREIGN, NOT_RECOVERED):
            residuals += [value for value in entry.certificate.residuals if value is not None]
    return float(np.sqrt(np.mean(np.square(residuals)))) if residuals else None
