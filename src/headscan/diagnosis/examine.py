"""The examination of one source: what is measured, in which order, and what there is no time for."""

from __future__ import annotations

import time

from headscan.diagnosis.curing import curing
from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.flowing import flowing
from headscan.diagnosis.grid import grid_of
from headscan.diagnosis.leaking import TOKENS, leaking
from headscan.diagnosis.plan import (
    PASSAGE,
    Deadline,
    ExaminationPlan,
    OutOfTime,
    ScanCost,
    afforded,
    drawing,
    pace,
    planned,
)
from headscan.diagnosis.settings import CheckingUp
from headscan.geometry import scan
from headscan.geometry.result import ScanResult
from headscan.model import Lens
from headscan.model.opening import ModelLike, open_model
from headscan.model.settings import Loading
from headscan.run import Progress, Row, Run
from headscan.states import VectorSource
from headscan.text import documents
from headscan.text.settings import Reading
from headscan.text.tokens import tokenise

__all__ = ["examined_model", "examined_states"]

MEASURES = "anatomy,common_direction,loss"


def examined_model(source: ModelLike, name: str, settings: CheckingUp, run: Run) -> ModelEvidence:
    """A first scan, which is timed; leaks, flow and remedies, each until its share of the budget is spent; then as large a
    scan as the rest has room for, whose pass serves shape, anatomy and loss.

    Where random weights are scanned, too, the model is loaded anew for it, so that its random twin has room.
    """
    clock, until = time.perf_counter(), Deadline.of(settings.budget)
    run.progress(f"{name} · loading", 0, None, "steps")
    lens = open_model(source, settings)
    lens.require_tokenizer()
    loading = time.perf_counter() - clock
    plan = planned(settings.budget, pace(lens, settings.context), lens.vocabulary_size, settings.max_tokens)
    run.announce(_said(name, plan))
    first = cost = None
    if until.left < float("inf"):
        first, cost = _timed(lens, settings, run, plan.first)
    grid, skipped = grid_of(lens.model, until)
    skipped += plan.skipped
    ids = _ids(lens, settings, max(TOKENS, PASSAGE * plan.passages))
    read, bits, no_leak = leaking(lens, ids[:TOKENS], plan, settings, run, until)
    flow, no_flow = flowing(lens, ids[:TOKENS], plan, settings, run, until)
    cure, no_cure = curing(lens, ids, plan, settings, run, until)
    skipped += [*no_leak, *no_flow, *no_cure]
    if cost is not None:
        again = loading + drawing(sum(one.numel() for one in lens.model.parameters()))
        plan, no_scan = afforded(plan, cost, until.left, again)
        skipped += no_scan
    found = first
    if first is None or plan.tokens != plan.first or plan.null:
        given = source if plan.null and not isinstance(source, Lens) else lens
        del lens
        progress = run.progress if cost is None else until.within(until.left - cost.fixed).kept(run.progress, more=True)
        try:
            found = _scanned(given, settings, progress, plan.tokens, null=plan.null)
        except OutOfTime:
            skipped.append(f"A scan of {plan.tokens:,} tokens was stopped: it took longer than the first one promised.")
    assert found is not None
    loss, random = (_first(found.tables["loss"], null) for null in (None, "random-init"))
    if loss is None:
        skipped.append(
            "There is no loss: " + next((n for p in found.probes if p.name == "loss" for n in p.notes), "no logits.")
        )
    return ModelEvidence(
        model=name, record=found.models[0], text=found.protocol.text, sites=found.sites, nulls=found.nulls,
        anatomy=[row for row in found.tables["anatomy"] if row.get("null") is None and row["kind"] == "branch"],
        common=found.tables["common_direction"], loss=loss, loss_of_null=random, grid=grid, read=read,
        bits=bits, flow=flow, cure=cure, skipped=skipped, seconds=round(time.perf_counter() - clock, 3),
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
    read = "the whole text" if plan.tokens is None else f"at most {plan.tokens:,} tokens"
    twin = ", with random weights beside it" if plan.null else ""
    return f"{name}: {read}{twin}; {plan.prompts or 'no'} prompt{'s' * (plan.prompts != 1)} to invert."


def _timed(lens: Lens, settings: CheckingUp, run: Run, tokens: int) -> tuple[ScanResult, ScanCost]:
    """A scan of the beginning of the text, and what a larger one will take."""
    clock, passed = time.perf_counter(), 0.0

    def watched(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
        nonlocal passed
        passed = time.perf_counter() - clock
        run.progress(stage, done, total, unit)

    found = _scanned(lens, settings, watched, tokens, null=False)
    losing = sum(probe.seconds or 0.0 for probe in found.probes if probe.name == "loss")
    read = int(found.sites[0].number("tokens") or tokens)
    return found, ScanCost.of(read, time.perf_counter() - clock, passed, losing)


def _scanned(
    source: ModelLike, settings: CheckingUp, progress: Progress, tokens: int | None, *, null: bool
) -> ScanResult:
    most = None if tokens is None else max(settings.context, tokens)
    reading = settings.part(Reading) | {"max_tokens": most}
    return scan(
        source, settings.text, context=settings.context, null=null, measures=MEASURES, sample=0, seed=settings.seed,
        progress=progress, **settings.part(Loading), **reading,
    )  # fmt: skip


def _first(rows: list[Row], null: str | None) -> Row | None:
    return next((row for row in rows if row.get("null") == null), None)


def _ids(lens: Lens, settings: CheckingUp, most: int) -> list[int]:
    """Token ids of the beginning of the text, without special ones."""
    assert settings.text is not None
    most = min(most, settings.max_tokens or most)
    found: list[int] = []
    read = documents(settings.text, documents=settings.documents, field=settings.field)
    for stretch in tokenise(read, lens.require_tokenizer()):
        found += stretch.ids.tolist()
        if len(found) >= most:
            break
    return found[:most]
