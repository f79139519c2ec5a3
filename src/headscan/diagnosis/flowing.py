"""What one token's output knows of the other tokens: how far it moves with them, and whether it tells them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headscan.diagnosis.evidence import TokenFlow
from headscan.diagnosis.leaking import spread
from headscan.diagnosis.plan import BUDGETS, FLOW, PROMPT, Deadline, ExaminationPlan
from headscan.diagnosis.settings import CheckingUp
from headscan.flow.result import FlowSummary
from headscan.flow.verbs import run as measure
from headscan.geometry.interval import student
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.run import BadInput, Run

__all__ = ["SMALL", "flowing"]

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
    """The mean over the tokens that an output may see."""
    return found.leak_of_earlier if lens.traits.causal else (found.leak_of_earlier + found.leak_of_later) / 2
