"""The examination of one source: what is measured, in which order, and what there is no time for."""

from __future__ import annotations

import time

from headscan.diagnosis.evidence import ModelEvidence, PromptRead
from headscan.diagnosis.grid import grid_of
from headscan.diagnosis.plan import PROMPT, ExaminationPlan, pace, planned
from headscan.diagnosis.settings import CheckingUp
from headscan.geometry import scan
from headscan.geometry.interval import wilson
from headscan.geometry.result import ScanResult
from headscan.inversion import invert
from headscan.model import Lens
from headscan.model.opening import ModelLike, open_model
from headscan.model.settings import Loading
from headscan.model.sites import is_block
from headscan.run import BadInput, Run
from headscan.states import VectorSource
from headscan.text import documents
from headscan.text.settings import Reading
from headscan.text.tokens import tokenise

__all__ = ["examined_model", "examined_states"]

MEASURES = "anatomy,common_direction,loss"
TOKENS = 4096


def examined_model(source: ModelLike, name: str, settings: CheckingUp, run: Run) -> ModelEvidence:
    """Weights and inversion first, then the scan, which loads the model anew, so that its random twin has room."""
    clock = time.perf_counter()
    run.progress(f"{name} · loading", 0, None, "steps")
    lens = open_model(source, settings)
    lens.require_tokenizer()
    plan = planned(settings.budget, pace(lens, settings.context), lens.vocabulary_size, settings.max_tokens)
    run.announce(_said(name, plan))
    grid, skipped = grid_of(lens.model), list(plan.skipped)
    read, why = _read(lens, plan, settings, run)
    skipped += [why] if why else []
    if not isinstance(source, Lens):
        del lens
    found = _scanned(source, settings, run, plan)
    losses = [row for row in found.tables["loss"] if row.get("null") is None]
    if not losses:
        skipped.append(
            "There is no loss: " + next((n for p in found.probes if p.name == "loss" for n in p.notes), "no logits.")
        )
    return ModelEvidence(
        model=name, record=found.models[0], text=found.protocol.text, sites=found.sites, nulls=found.nulls,
        anatomy=[row for row in found.tables["anatomy"] if row.get("null") is None and row["kind"] == "branch"],
        common=found.tables["common_direction"], loss=losses[0] if losses else None, grid=grid, read=read,
        skipped=skipped, seconds=round(time.perf_counter() - clock, 3),
    )  # fmt: skip


def examined_states(source: VectorSource, name: str, settings: CheckingUp, run: Run) -> ModelEvidence:
    """Of stored states the shape alone is known."""
    clock = time.perf_counter()
    found = scan(source, context=settings.context, seed=settings.seed, progress=run.progress)
    return ModelEvidence(
        model=name, record=found.models[0] if found.models else None, text=found.protocol.text, sites=found.sites,
        nulls=found.nulls, seconds=round(time.perf_counter() - clock, 3),
        skipped=["Stored states have no weights, no head and no random twin: their shape alone was examined."],
    )  # fmt: skip


def _said(name: str, plan: ExaminationPlan) -> str:
    read = "the whole text" if plan.tokens is None else f"{plan.tokens:,} tokens"
    twin = ", with random weights beside it" if plan.null else ""
    return f"{name}: {read}{twin}; {plan.prompts or 'no'} prompt{'s' * (plan.prompts != 1)} to invert."


def _scanned(source: ModelLike, settings: CheckingUp, run: Run, plan: ExaminationPlan) -> ScanResult:
    most = None if plan.tokens is None else max(settings.context, plan.tokens)
    reading = settings.part(Reading) | {"max_tokens": most}
    return scan(
        source, settings.text, context=settings.context, null=plan.null, measures=MEASURES, sample=0, seed=settings.seed,
        progress=run.progress, **settings.part(Loading), **reading,
    )  # fmt: skip


def _read(lens: Lens, plan: ExaminationPlan, settings: CheckingUp, run: Run) -> tuple[PromptRead | None, str]:
    """Exact inversion of prompts from the text at a middle block; or why there is none."""
    if not plan.prompts:
        return None, ""
    if not lens.traits.causal:
        return (
            None,
            "No prompt was inverted: exact search needs a model that reads from left to right (headscan invert --method joint).",
        )
    blocks = [site for site in lens.default_sites if is_block(site)]
    if not blocks:
        return None, "No prompt was inverted: the model has no blocks."
    site, clock = blocks[(len(blocks) - 1) // 2], time.perf_counter()
    ids = _ids(lens, settings)
    step = max(PROMPT, len(ids) // plan.prompts)
    prompts = [part for k in range(plan.prompts) if len(part := ids[k * step :][:PROMPT]) == PROMPT]
    if not prompts:
        return None, f"No prompt was inverted: the text has fewer than {PROMPT} tokens."
    try:
        found = invert(lens, prompts, at=site, method="exact", seed=settings.seed, progress=run.progress)
    except BadInput as error:
        return None, f"No prompt was inverted: {error}"
    total, accuracy = PROMPT * len(prompts), found.token_accuracy or 0.0
    low, high = wilson(round(accuracy * total), total)
    return PromptRead(
        site=site, prompts=len(prompts), tokens=total, recovered=accuracy, interval=(low, high), verdict=found.verdict,
        seconds=round(time.perf_counter() - clock, 3),
    ), ""  # fmt: skip


def _ids(lens: Lens, settings: CheckingUp) -> list[int]:
    """Token ids of the beginning of the text, without special ones."""
    assert settings.text is not None
    found: list[int] = []
    read = documents(settings.text, documents=settings.documents, field=settings.field)
    for stretch in tokenise(read, lens.require_tokenizer()):
        found += stretch.ids.tolist()
        if len(found) >= TOKENS:
            break
    return found[:TOKENS]
