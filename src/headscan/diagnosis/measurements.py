"""What the states of one block give away: exact search of prompts, and bits that are left behind noise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headscan.diagnosis.evidence import Grid, LeakedBits, PromptRead, TokenFlow, TriedRemedies
from headscan.diagnosis.plan import (
    BUDGETS,
    CANDIDATES,
    CURE,
    FLOW,
    LEAK,
    PASSAGE,
    PROMPT,
    CheckingUp,
    Deadline,
    ExaminationPlan,
    OutOfTime,
)
from headscan.flow.result import FlowSummary
from headscan.flow.verbs import run as measure
from headscan.inversion import invert
from headscan.inversion.certificate import VERDICTS
from headscan.leaks import privacy
from headscan.measures.pairs import mean_states
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.remedies.run import remedy
from headscan.run import BadInput, Progress, Run
from headscan.statistics.uncertainty import student, wilson
from headscan.text.source import Reading

NOISE = 0.8
"""Of the audit in bits, in the rms of the states' centred coordinates: a noise that costs a model about a nat a token."""
TOKENS = 4096
"""Of the text's beginning, that prompts are taken of; passages may take more."""
READING = 0.6
"""Of the time of both, what prompts may be inverted for."""
SMALL = 2 * 2**30
"""Bytes of weights up to which the random twin is made beside the model."""


def spread(ids: Sequence[int], pieces: int, length: int) -> list[list[int]]:
    """At most so many pieces of `length` tokens, evenly spaced.

    >>> spread(range(10), 2, 3)
    [[0, 1, 2], [5, 6, 7]]
    """
    step = max(length, len(ids) // max(1, pieces))
    found = [list(ids[k * step :][:length]) for k in range(pieces)]
    return [one for one in found if len(one) == length]


def leaking(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline, skipped: list[str]
) -> tuple[PromptRead | None, LeakedBits | None]:  # fmt: skip
    """Exact inversion of prompts from the text at one block, and bits behind noise there; `skipped` says what was left out."""
    if not plan.prompts:
        return None, None
    blocks = [site for site in lens.default_sites if is_block(site)]
    prompts = spread(ids, plan.prompts, PROMPT)
    for missing, reason in (
        (not lens.traits.causal, "exact search reads from left to right (headscan invert --method joint)"),
        (not blocks, "the model has no blocks"),
        (not prompts, f"the text has fewer than {PROMPT} tokens"),
    ):
        if missing:
            skipped.append(f"No prompt was inverted: {reason}.")
            return None, None
    site, share = blocks[round(plan.depth * (len(blocks) - 1) - 0.01)], LEAK * BUDGETS[settings.budget]
    read, bits = None, None
    try:
        read = _read(lens, prompts, site, settings.seed, run.progress, until.within(READING * share))
        if read is None or read.prompts < len(prompts):
            many = f"{read.prompts} of {len(prompts)} prompts were" if read else "No prompt was"
            skipped.append(f"{many} inverted: there was no time for more in {settings.budget}.")
    except BadInput as error:
        skipped.append(f"No prompt was inverted: {error}")
    try:
        bits = _bits(lens, site, len(prompts), settings, run.progress, until.within((1 - READING) * share))
    except OutOfTime:
        skipped.append(f"No bits were counted: there was no time in {settings.budget}.")
    except BadInput as error:
        skipped.append(f"No bits were counted: {error}")
    return read, bits


def _read(
    lens: Lens, prompts: list[list[int]], site: str, seed: int, progress: Progress, until: Deadline
) -> PromptRead | None:
    """Prompt by prompt, as many as there is time for."""
    clock, progress = time.perf_counter(), until.kept(progress)
    inversions = until.each(
        [partial(invert, lens, [prompt], at=site, method="exact", seed=seed, progress=progress) for prompt in prompts]
    )
    if not inversions:
        return None
    total, accuracy = PROMPT * len(inversions), sum(each.token_accuracy or 0.0 for each in inversions) / len(inversions)
    low, high = wilson(round(accuracy * total), total)
    return PromptRead(
        site=site, prompts=len(inversions), tokens=total, recovered=accuracy, interval=(low, high),
        verdict=max((each.verdict for each in inversions), key=VERDICTS.index), seconds=round(time.perf_counter() - clock, 3),
    )  # fmt: skip


def _bits(lens: Lens, site: str, windows: int, settings: CheckingUp, progress: Progress, until: Deadline) -> LeakedBits:
    assert settings.text is not None  # by `examined_model`'s caller
    progress = until.kept(progress)
    progress("bits", 0, None, "tokens")
    reading = settings.part(Reading) | {"max_tokens": min(TOKENS, settings.max_tokens or TOKENS)}
    row = privacy(
        lens, settings.text, sites=site, noise=(NOISE,), windows=windows, length=PROMPT,
        candidates=min(CANDIDATES, lens.vocabulary_size), draws=32, seed=settings.seed, progress=progress, **reading,
    ).rows[0]  # fmt: skip
    if row.bits_lower is None or row.bits_upper is None or not row.prior_bits:
        raise BadInput("the release has none.")
    return LeakedBits(
        site=site, noise=NOISE, tokens=row.tokens, prior_bits=row.prior_bits, lower=row.bits_lower, upper=row.bits_upper,
        interval=row.bits_interval, candidates=row.candidates, guessed=row.guess_accuracy, named=row.attack_accuracy,
    )  # fmt: skip


def flowing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline, skipped: list[str]
) -> TokenFlow | None:  # fmt: skip
    """Leak and recovery between tokens at the last block, prompt by prompt; `skipped` says what was left out."""
    if not plan.flow:
        return None
    prompts = spread(ids, plan.flow, PROMPT)
    sites = [site for site in lens.default_sites if is_block(site)]
    if not prompts or not sites:
        skipped.append("Flow between tokens was not measured: no blocks, or too short a text.")
        return None
    until = until.within(FLOW * BUDGETS[settings.budget])
    measured = partial(
        _measured, prompts=prompts, site=sites[-1], seed=settings.seed, progress=run.progress, until=until
    )
    tried = min(plan.told, lens.vocabulary_size)
    try:
        shares, told = measured(lens, candidates=tried)
    except BadInput as error:
        skipped.append(f"Flow between tokens was not measured: {error}")
        return None
    if not shares:
        skipped.append(f"Flow between tokens was not measured: there was no time in {settings.budget}.")
        return None
    if len(shares) < len(prompts):
        skipped.append(
            f"Flow between tokens was measured in {len(shares)} of {len(prompts)} prompts: there was no time for more."
        )
    null = list[float]()
    weights = sum(weight.numel() * weight.element_size() for weight in lens.model.parameters())
    if plan.null and until.left > 0 and weights <= SMALL:
        null, _ = measured(lens.twin(settings.seed)(), candidates=0)
    ends = student(shares) if len(shares) > 2 else None
    return TokenFlow(
        site=sites[-1], prompts=len(shares), length=PROMPT, heard=sum(shares) / len(shares),
        interval=None if ends is None else (max(0.0, ends[0]), ends[1]),
        null=sum(null) / len(null) if null else None, told=told, candidates=tried or None,
    )  # fmt: skip


def _measured(
    lens: Lens, prompts: list[list[int]], site: str, seed: int, progress: Progress, until: Deadline, *, candidates: int
) -> tuple[list[float], float | None]:
    """How far other tokens move an output over how far its own does, of each prompt that there is time for; and the mean share
    of other tokens that outputs tell."""
    progress = until.kept(progress)

    def summary(prompt: list[int]) -> FlowSummary:
        result = measure(
            lens, prompt, at=site, trials=2, recover=bool(candidates), seed=seed, progress=progress, candidates=candidates or None
        )  # fmt: skip
        return result.parts[0].sites[-1]

    def others(flow: FlowSummary) -> float:
        return flow.leak_of_earlier if lens.traits.causal else (flow.leak_of_earlier + flow.leak_of_later) / 2

    flows = until.each([partial(summary, prompt) for prompt in prompts])
    shown = [flow.recoverable_of_earlier for flow in flows if flow.recoverable_of_earlier is not None]
    return [others(flow) / max(flow.leak_own, 1e-30) for flow in flows], sum(shown) / len(shown) if shown else None


TRIED = "centre,standardise,all-but-the-top,whiten-softly"
LEAST, BATCH = 32, 64


def curing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline, skipped: list[str]
) -> TriedRemedies | None:  # fmt: skip
    """Remedies fitted on half of the passages and judged by the others; `skipped` says why there are none."""
    if not plan.passages:
        return None
    passages = [list(ids[k : k + PASSAGE]) for k in range(0, len(ids) - PASSAGE + 1, PASSAGE)][: plan.passages]
    pairs, site = len(passages) // 2, lens.default_sites[-1]
    progress = until.within(CURE * BUDGETS[settings.budget]).kept(run.progress)
    try:
        if pairs < LEAST:
            raise BadInput(f"the text has {pairs} pairs of passages, fewer than {LEAST}.")
        parts = list[npt.NDArray[np.float64]]()
        for start in range(0, 2 * pairs, BATCH):
            progress("passages", start, 2 * pairs, "passages")
            parts.append(mean_states(lens, passages[start : min(start + BATCH, 2 * pairs)], [site])[site])
        vectors = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise BadInput("the vectors are not finite.")
        result = remedy(
            vectors[1::2], partners=vectors[::2], remedies=TRIED, held_out=pairs, export="none", seed=settings.seed,
            progress=progress,
        )  # fmt: skip
    except OutOfTime:
        skipped.append(f"No remedy was tried: there was no time in {settings.budget}.")
        return None
    except BadInput as error:
        skipped.append(f"No remedy was tried: {error}")
        return None
    queries = int(result.rows[0].number("queries") or 0)
    return TriedRemedies(site=site, length=PASSAGE, fitted=result.fitted, queries=queries, rows=result.rows)


GROUP, ROWS = 64, 64


def levels(weight: torch.Tensor) -> torch.Tensor:
    """Numbers of different values in groups of 64 neighbouring weights of some 64 rows of a matrix [n, d]; empty for d < 64.

    A format of b bits with one scale for 64 weights or more leaves at most 2^b; float32 and bfloat16 leave about 64 and 40.

    >>> levels(torch.randn(8, 64).mul(4).round().clamp(-7, 8)).max().item() <= 16
    True
    """
    groups = weight.shape[1] // GROUP
    if not groups or not len(weight):
        return torch.zeros(0)
    rows = weight.detach()[:: max(1, len(weight) // ROWS)][:ROWS, : groups * GROUP].float().reshape(-1, GROUP)
    ordered = rows.sort(1).values
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)


def grid_of(model: nn.Module, until: Deadline, skipped: list[str]) -> Grid | None:
    """The grid of all matrices of at least 64 columns, None where there is none in floating point."""
    matrices = dict[str, torch.Tensor]()
    for name, weight in model.named_parameters():
        if until.left <= 0:
            skipped.append(
                f"The grid of the weights was looked at in {len(matrices)} matrices only: there was no time for more."
            )
            break
        if weight.ndim == 2 and weight.is_floating_point():
            counts = levels(weight)
            # A matrix of equal values, such as one that was never trained, was not rounded.
            if len(counts) and counts.float().median() > 1:
                matrices[name] = counts.float()
    if not matrices:
        return None
    medians = {name: float(counts.median()) for name, counts in matrices.items()}
    coarsest = min(medians, key=medians.__getitem__)
    every = torch.cat(list(matrices.values()))
    return Grid(levels=float(every.median()), groups=len(every), coarsest=coarsest, coarsest_levels=medians[coarsest])
