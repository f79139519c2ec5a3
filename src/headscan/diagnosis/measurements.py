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
from headscan.run import BadInput, Run
from headscan.statistics.uncertainty import student, wilson
from headscan.text.source import Reading

NOISE = 0.8
"""Of the audit in bits, in the rms of the states' centred coordinates: a noise that costs a model about a nat a token."""
TOKENS = 4096
"""Of the text's beginning, that prompts are taken of; passages may take more."""
READING = 0.6
"""Of the time of both, what prompts may be inverted for."""


def spread(ids: Sequence[int], pieces: int, length: int) -> list[list[int]]:
    """At most so many pieces of `length` tokens, evenly spaced.

    >>> spread(range(10), 2, 3)
    [[0, 1, 2], [5, 6, 7]]
    """
    step = max(length, len(ids) // max(1, pieces))
    found = [list(ids[k * step :][:length]) for k in range(pieces)]
    return [one for one in found if len(one) == length]


def leaking(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[PromptRead | None, LeakedBits | None, list[str]]:
    """Exact inversion of prompts from the text at one block, bits behind noise there; and why there are none, or fewer."""
    if not plan.prompts:
        return None, None, []
    if not lens.traits.causal:
        return (
            None,
            None,
            ["No prompt was inverted: exact search reads from left to right (headscan invert --method joint)."],
        )
    blocks = [site for site in lens.default_sites if is_block(site)]
    if not blocks:
        return None, None, ["No prompt was inverted: the model has no blocks."]
    prompts = spread(ids, plan.prompts, PROMPT)
    if not prompts:
        return None, None, [f"No prompt was inverted: the text has fewer than {PROMPT} tokens."]
    site, said = blocks[round(plan.depth * (len(blocks) - 1) - 0.01)], list[str]()
    read, bits, share = None, None, LEAK * BUDGETS[settings.budget]
    try:
        read = _read(lens, prompts, site, settings, run, until.within(READING * share))
        if read is None or read.prompts < len(prompts):
            many = f"{read.prompts} of {len(prompts)} prompts were" if read else "No prompt was"
            said.append(f"{many} inverted: there was no time for more in {settings.budget}.")
    except BadInput as error:
        said.append(f"No prompt was inverted: {error}")
    try:
        bits = _bits(lens, site, len(prompts), settings, run, until.within((1 - READING) * share))
    except OutOfTime:
        said.append(f"No bits were counted: there was no time in {settings.budget}.")
    except BadInput as error:
        said.append(f"No bits were counted: {error}")
    return read, bits, said


def _read(
    lens: Lens, prompts: list[list[int]], site: str, settings: CheckingUp, run: Run, until: Deadline
) -> PromptRead | None:
    """Prompt by prompt, as many as there is time for."""
    clock, progress = time.perf_counter(), until.kept(run.progress)
    found = until.each(
        [
            partial(invert, lens, [one], at=site, method="exact", seed=settings.seed, progress=progress)
            for one in prompts
        ]
    )
    if not found:
        return None
    total, accuracy = PROMPT * len(found), sum(one.token_accuracy or 0.0 for one in found) / len(found)
    low, high = wilson(round(accuracy * total), total)
    return PromptRead(
        site=site, prompts=len(found), tokens=total, recovered=accuracy, interval=(low, high),
        verdict=max((one.verdict for one in found), key=VERDICTS.index), seconds=round(time.perf_counter() - clock, 3),
    )  # fmt: skip


def _bits(lens: Lens, site: str, windows: int, settings: CheckingUp, run: Run, until: Deadline) -> LeakedBits:
    assert settings.text is not None  # by `examined_model`'s caller
    progress = until.kept(run.progress)
    progress("bits", 0, None, "tokens")
    reading = settings.part(Reading) | {"max_tokens": min(TOKENS, settings.max_tokens or TOKENS)}
    row = privacy(
        lens, settings.text, sites=site, noise=(NOISE,), windows=windows, length=PROMPT, particles=0, others=0,
        candidates=min(CANDIDATES, lens.vocabulary_size), draws=32, seed=settings.seed, progress=progress, **reading,
    ).rows[0]  # fmt: skip
    if row.bits_lower is None or row.bits_upper is None or not row.prior_bits:
        raise BadInput("the release has none.")
    return LeakedBits(
        site=site, noise=NOISE, tokens=row.tokens, prior_bits=row.prior_bits, lower=row.bits_lower, upper=row.bits_upper,
        interval=row.bits_interval, candidates=row.candidates, guessed=row.guess_accuracy, named=row.attack_accuracy,
    )  # fmt: skip


SMALL = 2 * 2**30
"""Bytes of weights up to which the random twin is made beside the model."""


def flowing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[TokenFlow | None, list[str]]:
    """Leak and recovery at the last block, prompt by prompt; and why there is none, or of fewer prompts."""
    prompts = spread(ids, plan.flow, PROMPT)
    sites = [site for site in lens.default_sites if is_block(site)]
    if not prompts or not sites:
        return None, [] if not plan.flow else ["Flow between tokens was not measured: no blocks, or too short a text."]
    until, said = until.within(FLOW * BUDGETS[settings.budget]), list[str]()
    try:
        shares, told, tried = _measured(lens, prompts, sites[-1], plan.told, settings, run, until)
    except BadInput as error:
        return None, [f"Flow between tokens was not measured: {error}"]
    if len(shares) < len(prompts):
        said.append(
            f"Flow between tokens was measured in {len(shares)} of {len(prompts)} prompts: there was no time for more."
            if shares
            else f"Flow between tokens was not measured: there was no time in {settings.budget}."
        )
    if not shares:
        return None, said
    null = list[float]()
    if (
        plan.null
        and until.left > 0
        and sum(one.numel() * one.element_size() for one in lens.model.parameters()) <= SMALL
    ):
        null, *_ = _measured(lens.twin(settings.seed)(), prompts, sites[-1], 0, settings, run, until)
    mean = sum(shares) / len(shares)
    ends = student(shares) if len(shares) > 2 else None
    return TokenFlow(
        site=sites[-1], prompts=len(shares), length=PROMPT, heard=mean,
        interval=None if ends is None else (max(0.0, ends[0]), ends[1]),
        null=sum(null) / len(null) if null else None, told=told, candidates=tried,
    ), said  # fmt: skip


def _measured(
    lens: Lens, prompts: list[list[int]], site: str, told: int, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[list[float], float | None, int | None]:
    """Of each prompt that there is time for how far others move an output, over how far its own token does; and of all what
    outputs tell."""
    few, progress = min(told, lens.vocabulary_size), until.kept(run.progress)

    def one(prompt: list[int]) -> FlowSummary:
        return (
            measure(
                lens, prompt, at=site, trials=2, recover=bool(few), seed=settings.seed, progress=progress,
                candidates=few or None,
            )
            .parts[0]
            .sites[-1]
        )  # fmt: skip

    found = until.each([partial(one, prompt) for prompt in prompts])
    shares = [_others(lens, each) / max(each.leak_own, 1e-30) for each in found]
    shown = [each.recoverable_of_earlier for each in found if each.recoverable_of_earlier is not None]
    return shares, sum(shown) / len(shown) if shown else None, few or None


def _others(lens: Lens, found: FlowSummary) -> float:
    return found.leak_of_earlier if lens.traits.causal else (found.leak_of_earlier + found.leak_of_later) / 2


TRIED = "centre,standardise,all-but-the-top,whiten-softly,without-rogue"
LEAST, BATCH = 32, 64


def curing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[TriedRemedies | None, list[str]]:
    """Remedies fitted on half of the passages and judged by the others; and why there are none."""
    passages = [list(ids[k : k + PASSAGE]) for k in range(0, len(ids) - PASSAGE + 1, PASSAGE)][: plan.passages]
    pairs = len(passages) // 2
    if not plan.passages:
        return None, []
    if pairs < LEAST:
        return None, [f"No remedy was tried: the text has {pairs} pairs of passages, fewer than {LEAST}."]
    site = lens.default_sites[-1]
    progress = until.within(CURE * BUDGETS[settings.budget]).kept(run.progress)
    try:
        parts = list[npt.NDArray[np.float64]]()
        for start in range(0, 2 * pairs, BATCH):
            progress("passages", start, 2 * pairs, "passages")
            parts.append(mean_states(lens, passages[start : min(start + BATCH, 2 * pairs)], [site])[site])
        vectors = np.concatenate(parts)
    except OutOfTime:
        return None, [f"No remedy was tried: there was no time in {settings.budget}."]
    if not np.isfinite(vectors).all():
        return None, ["No remedy was tried: the vectors are not finite."]
    try:
        found = remedy(
            vectors[1::2], partners=vectors[::2], remedies=TRIED, held_out=pairs, export="none", seed=settings.seed,
            progress=progress,
        )  # fmt: skip
    except OutOfTime:
        return None, [f"No remedy was tried: there was no time in {settings.budget}."]
    except BadInput as error:
        return None, [f"No remedy was tried: {error}"]
    return TriedRemedies(
        site=site, length=PASSAGE, fitted=found.fitted, queries=int(found.rows[0].number("queries") or 0), rows=found.rows
    ), []  # fmt: skip


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


def grid_of(model: nn.Module, until: Deadline) -> tuple[Grid | None, list[str]]:
    """The grid of all matrices of at least 64 columns, None where there is none in floating point; and what was left out."""
    found, said = dict[str, torch.Tensor](), list[str]()
    for name, weight in model.named_parameters():
        if until.left <= 0:
            said.append(
                f"The grid of the weights was looked at in {len(found)} matrices only: there was no time for more."
            )
            break
        if weight.ndim == 2 and weight.is_floating_point():
            counts = levels(weight)
            # A matrix of equal values, such as one that was never trained, was not rounded.
            if len(counts) and counts.float().median() > 1:
                found[name] = counts.float()
    if not found:
        return None, said
    coarsest = min(found, key=lambda name: float(found[name].median()))
    every = torch.cat(list(found.values()))
    return Grid(
        levels=float(every.median()), groups=len(every), coarsest=coarsest,
        coarsest_levels=float(found[coarsest].median()),
    ), said  # fmt: skip
