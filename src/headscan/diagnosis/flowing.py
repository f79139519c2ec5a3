"""What one token's output knows of the other tokens: how far it moves with them, and whether it tells them."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.diagnosis.evidence import TokenFlow
from headscan.diagnosis.leaking import spread
from headscan.diagnosis.plan import PROMPT, ExaminationPlan
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
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run
) -> tuple[TokenFlow | None, list[str]]:
    """Leak and recovery at the last block, prompt by prompt; and why there is none."""
    prompts = spread(ids, plan.flow, PROMPT)
    sites = [site for site in lens.default_sites if is_block(site)]
    if not prompts or not sites:
        return None, [] if not plan.flow else ["Flow between tokens was not measured: no blocks, or too short a text."]
    try:
        shares, told, tried = _measured(lens, prompts, sites[-1], plan.told, settings, run)
    except BadInput as error:
        return None, [f"Flow between tokens was not measured: {error}"]
    null = None
    if plan.null and sum(one.numel() * one.element_size() for one in lens.model.parameters()) <= SMALL:
        null, *_ = _measured(lens.twin(settings.seed)(), prompts, sites[-1], 0, settings, run)
    mean = sum(shares) / len(shares)
    ends = student(shares) if len(shares) > 2 else None
    return TokenFlow(
        site=sites[-1], prompts=len(prompts), length=PROMPT, heard=mean,
        interval=None if ends is None else (max(0.0, ends[0]), ends[1]),
        null=None if null is None else sum(null) / len(null), told=told, candidates=tried,
    ), []  # fmt: skip


def _measured(
    lens: Lens, prompts: list[list[int]], site: str, told: int, settings: CheckingUp, run: Run
) -> tuple[list[float], float | None, int | None]:
    """Of each prompt how far others move an output, over how far its own token does; and of all what outputs tell."""
    few = min(told, lens.vocabulary_size)
    shares, shown = list[float](), list[float]()
    for prompt in prompts:
        part = measure(
            lens,
            prompt,
            at=site,
            trials=2,
            recover=bool(few),
            seed=settings.seed,
            progress=run.progress,
            candidates=few or None,
        ).parts[0]
        found = part.sites[-1]
        shares.append(_others(lens, found) / max(found.leak_own, 1e-30))
        if found.recoverable_of_earlier is not None:
            shown.append(found.recoverable_of_earlier)
    return shares, sum(shown) / len(shown) if shown else None, few or None


def _others(lens: Lens, found: FlowSummary) -> float:
    """The mean over the tokens that an output may see."""
    return found.leak_of_earlier if lens.traits.causal else (found.leak_of_earlier + found.leak_of_later) / 2
