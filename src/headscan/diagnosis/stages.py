"""The stages of a checkup: what is measured of one model, or of stored states."""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch

from headscan.diagnosis.evidence import ModelEvidence, TokenFlow
from headscan.diagnosis.lookahead import movement_by_later
from headscan.diagnosis.measurements import Measurements, left_out, out_of_time
from headscan.diagnosis.plan import (
    CheckupInputs,
    Deadline,
    ExaminationPlan,
    OutOfTime,
    enough_tokens,
    planned,
    work,
)
from headscan.diagnosis.weights import (
    equal_rows_of,
    fingerprint_of,
    grid_of,
    vocabulary_order,
)
from headscan.model import Lens
from headscan.model.framed import beginning
from headscan.model.lens import ModelLike, open_model
from headscan.run import BadInput, Progress, Row, Run
from headscan.scanner.result import ScanResult
from headscan.scanner.run import scan
from headscan.states import SourceLike, VectorSource, stored_source
from headscan.states.source import reading_window

MEASURES = "anatomy,common_direction,loss"
MEASURES_OF_CONTROL = "common_direction,loss"
LITTLE = 1e-4
"""Seconds a token. A model that takes less runs on one thread: the four of `make scan` took 21 s on
one and 25 s on two.
"""
SAFE = 1.25
"""The factor by which the scan of random weights may take longer than that of the model did."""

Unit = Callable[[str, Any, Callable[[], Any]], Any]
"""`Run.unit` for one source: (stage, type, function) -> the function's result, new or stored."""


def examine(
    source: SourceLike, name: str, number: int, inputs: CheckupInputs, run: Run
) -> ModelEvidence:
    """Return what was measured of one source; torch's threads are left as they were.

    Raises:
        BadInput: for a model without a text to read.
    """
    stored = stored_source(
        source,
        context=inputs.context,
        max_tokens=inputs.reading.max_tokens,
        field=inputs.reading.field,
    )
    if stored is not None:
        return examine_states(stored, name, inputs, run)
    if inputs.text is None:
        raise BadInput(f"Say which text {name} is to read: --text TEXT.")
    threads = torch.get_num_threads()
    try:
        return examine_model(cast(ModelLike, source), name, number, inputs, run)
    finally:
        torch.set_num_threads(threads)


def examine_states(
    source: VectorSource, name: str, inputs: CheckupInputs, run: Run
) -> ModelEvidence:
    """Return the shape of stored states, which is all that can be known of them."""
    clock = time.perf_counter()
    result = scan(source, context=inputs.context, seed=inputs.seed, progress=run.progress)
    return ModelEvidence(
        model=name,
        record=result.models[0] if result.models else None,
        text=result.protocol.text,
        sites=result.sites,
        nulls=result.nulls,
        seconds=round(time.perf_counter() - clock, 3),
        skipped=[
            left_out(
                "states",
                "Only their shape was examined",
                "stored states have no weights, no head and no random-weight control",
                "headscan checkup of the model that they are from",
            )
        ],
    )


@dataclass(frozen=True)
class Control:
    """The measurements of the random-weight control; empty where there was no time for it."""

    scanned: ScanResult | None = None
    flow: float | None = None

    def rows(self, name: str, probe: str | None = None) -> list[Row]:
        """Return the rows of the sites, or of a probe, under the model's name."""
        if self.scanned is None:
            return []
        rows = self.scanned.sites if probe is None else self.scanned.tables.get(probe, [])
        return [Row({**row, "model": name, "null": "random-init"}) for row in rows]


def _opened(source: ModelLike, name: str, number: int, inputs: CheckupInputs, run: Run) -> Lens:
    """Return a model that can read a text, identified to the run."""
    run.progress(f"{name} · loading", 0, None, "steps")
    lens = open_model(source, inputs.loading)
    lens.require_tokenizer()
    lens.identify(run, f"model {number + 1}", named=False)
    return lens


def examine_model(
    source: ModelLike, name: str, number: int, inputs: CheckupInputs, run: Run
) -> ModelEvidence:
    """Return what was measured of a model.

    A scan comes first; its size follows from the model's speed, and its pass serves shape, anatomy
    and loss. Then blocks are taken out, and leaks, flow and remedies are measured, each as planned,
    or not at all once the budget is spent. Random weights come last, where there is time. Each
    stage is a unit of the run. The model's weights are given back before random ones are drawn,
    unless the caller holds them.
    """
    clock = time.perf_counter()
    deadline = Deadline.of(inputs.budget)

    def unit(stage: str, kind: Any, make: Callable[[], Any]) -> Any:
        return run.unit(f"source-{number}, {stage}", kind, make)

    lens = _opened(source, name, number, inputs, run)
    plan = _plan(lens, name, inputs, run, unit)

    started = time.perf_counter()
    scanned = _scan_unit(unit, "scan", lens, inputs, run.progress, plan.tokens, MEASURES)
    scan_seconds = time.perf_counter() - started

    measurements = Measurements(
        beginning(lens, inputs.reading.start), plan, inputs, run.progress, deadline, unit
    )
    order, norms = vocabulary_order(lens)
    equal_rows = equal_rows_of(lens, measurements.token_ids)
    grid = grid_of(lens.model)
    weights = fingerprint_of(lens.model)
    later = movement_by_later(lens)
    repeat = measurements.repeat()
    has_loss = bool(scanned.tables["loss"])
    removed = measurements.removed() if has_loss else []
    scale = measurements.scale() if has_loss else None
    read, bits = measurements.leak()
    flow = measurements.flow()
    remedies = measurements.remedies()

    make_control = lens.twin(inputs.seed)
    # The weights are given back, whose modules point to one another.
    measurements.release()
    del lens
    gc.collect()
    control = Control()
    if deadline.left > SAFE * scan_seconds:
        control = _examine_control(
            make_control, measurements, flow, plan, inputs, run.progress, deadline, unit
        )
    if flow is not None and control.flow is not None:
        flow = replace(flow, null=control.flow)

    skipped = measurements.skipped
    if control.scanned is None:
        lacking = "Random weights were not scanned for comparison"
        skipped.append(out_of_time("control", lacking, inputs.budget))
    loss = next(iter(scanned.tables["loss"]), None)
    if loss is None:
        skipped.append(left_out("loss", "There is no loss", _reason_without_loss(scanned)))
    branches = [row for row in scanned.tables["anatomy"] if row["kind"] == "branch"]
    common = [*scanned.tables["common_direction"], *control.rows(name, "common_direction")]
    return ModelEvidence(
        model=name,
        record=scanned.models[0],
        text=scanned.protocol.text,
        sites=scanned.sites,
        nulls=control.rows(name),
        anatomy=branches,
        common=common,
        loss=loss,
        loss_of_null=next(iter(control.rows(name, "loss")), None),
        grid=grid,
        later=later,
        read=read,
        bits=bits,
        flow=flow,
        cure=remedies,
        removed=removed,
        order=order,
        norms=norms,
        repeat=repeat,
        equal_rows=equal_rows,
        scale=scale,
        weights=weights,
        skipped=skipped,
        seconds=round(time.perf_counter() - clock, 3),
    )


def _plan(lens: Lens, name: str, inputs: CheckupInputs, run: Run, unit: Unit) -> ExaminationPlan:
    """Return what is done with a model, and announce it; a small one runs on one thread.

    The seconds that a token takes are a unit of the run: a resumed one has the same plan.
    """
    seconds = unit("seconds a token", float, partial(work, lens, inputs.context))
    enough = enough_tokens(lens, inputs.context)
    plan = planned(inputs.budget, seconds, inputs.reading.max_tokens, enough=enough)
    if seconds < LITTLE and lens.device.type == "cpu":
        torch.set_num_threads(1)
    size = "the whole text" if plan.tokens is None else f"at most {plan.tokens:,} tokens"
    plural = "" if plan.prompts == 1 else "s"
    run.announce(f"{name}: {size}; {plan.prompts or 'no'} prompt{plural} to invert.")
    return plan


def _examine_control(
    make_control: Callable[[], Lens],
    measurements: Measurements,
    flow: TokenFlow | None,
    plan: ExaminationPlan,
    inputs: CheckupInputs,
    progress: Progress,
    deadline: Deadline,
    unit: Unit,
) -> Control:
    """Return what was measured of random weights before the time was over."""
    control = Control()
    with suppress(OutOfTime):
        lens = make_control()
        if flow is not None:
            movement = unit(
                "flow of random weights", float, lambda: measurements.flow_of_control(lens)
            )
            control = replace(control, flow=movement)
        watched = deadline.kept(progress, more=True)
        scanned = _scan_unit(
            unit,
            "scan of random weights",
            lens,
            inputs,
            watched,
            plan.tokens,
            MEASURES_OF_CONTROL,
        )
        control = replace(control, scanned=scanned)
    return control


def _scan_unit(
    unit: Unit,
    stage: str,
    lens: Lens,
    inputs: CheckupInputs,
    progress: Progress,
    tokens: int | None,
    measures: str,
) -> ScanResult:
    """Return a scan as a unit of the run: made now, or read back from its document."""
    _, context = reading_window(lens, inputs.context)
    max_tokens = None if tokens is None else max(context, tokens)
    made: list[ScanResult] = []

    def document() -> object:
        result = scan(
            lens,
            inputs.text,
            context=inputs.context,
            measures=measures,
            sample=0,
            seed=inputs.seed,
            progress=progress,
            **inputs.reading_of(max_tokens),
        )
        made.append(result)
        return result.document

    stored = unit(stage, dict, document)
    return made[0] if made else ScanResult.of_document(stored)


def _reason_without_loss(scanned: ScanResult) -> str:
    """Return why the scan has no loss."""
    for probe in scanned.probes:
        if probe.name == "loss" and probe.notes:
            return probe.notes[0]
    return "no logits."
