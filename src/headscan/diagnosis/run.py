"""`checkup`: the four questions of one or more models in one run, with findings that have codes."""

import gc
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, cast

import torch

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.lookahead import movement_by_later
from headscan.diagnosis.measurements import Measurements, grid_of, vocabulary_order
from headscan.diagnosis.plan import CheckingUp, Deadline, OutOfTime, enough_tokens, planned, work
from headscan.diagnosis.publish import markdown
from headscan.diagnosis.registry import CONDITIONS, Condition, Seen, alarming
from headscan.diagnosis.result import (
    CheckupResult,
    Examination,
    Observation,
    beside,
    edition,
    ordered,
    percentile,
    summary,
)
from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model, prepare_model
from headscan.model.settings import Device, Dtype, TokenizerName
from headscan.run import BadInput, Progress, Row, Run, verb, write_atomic
from headscan.run.settings import (
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
    Seed,
)
from headscan.run.verbs import Given
from headscan.scanner.cautions import on_few
from headscan.scanner.result import ScanResult
from headscan.scanner.run import scan
from headscan.states import SourceLike, SourcesLike, VectorSource, given_sources, stored_source
from headscan.states.source import reading_window
from headscan.text import documents as read_documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    SeveralTokensContext,
    TextLike,
    check_text,
)

MEASURES = "anatomy,common_direction,loss"
MEASURES_OF_CONTROL = "common_direction,loss"
LITTLE = 1e-4
"""Seconds a token; a model that takes less runs on one thread: the four of `make scan` took 21 s on
one and 25 s on two.
"""
TEXT_CHARACTERS = 2**24
"""Characters of the text that a resumed checkup compares with those of the interrupted one: more
than its scans read, but for `--budget full`.
"""
SAFE = 1.25
"""By how much the scan of random weights may take longer than that of the model did."""


def examined_model(
    source: ModelLike, name: str, settings: CheckingUp, run: Run, number: int
) -> ModelEvidence:
    """A scan, whose size the model's size sets and whose pass serves shape, anatomy and loss; then
    blocks taken out, leaks, flow and remedies, each as planned or, once the budget is spent, not at
    all; then, where there is time, random weights.

    The model's weights are given back before random ones are drawn, unless whoever called holds it.
    Each stage is a unit of the run.
    """

    def unit(stage: str, kind: Any, make: Callable[[], Any]) -> Any:
        return run.unit(f"source-{number}, {stage}", kind, make)

    def scanning(stage: str, make: Callable[[], ScanResult]) -> ScanResult:
        made = list[ScanResult]()

        def document() -> object:
            made.append(make())
            return made[0].document

        held = unit(stage, dict, document)
        return made[0] if made else ScanResult.of_document(held)

    clock = time.perf_counter()
    until = Deadline.of(settings.budget)
    run.progress(f"{name} · loading", 0, None, "steps")
    lens = open_model(source, settings)
    lens.require_tokenizer()
    lens.identify(run, f"model {number + 1}", named=False)
    seconds = work(lens)
    plan = planned(
        settings.budget, seconds, settings.max_tokens, enough=enough_tokens(lens, settings.context)
    )
    if seconds < LITTLE and lens.device.type == "cpu":
        torch.set_num_threads(1)
    size = "the whole text" if plan.tokens is None else f"at most {plan.tokens:,} tokens"
    run.announce(
        f"{name}: {size}; {plan.prompts or 'no'} prompt{'s' * (plan.prompts != 1)} to invert."
    )
    started = time.perf_counter()
    scanned = scanning(
        "scan", lambda: _scanned(lens, settings, run.progress, plan.tokens, MEASURES)
    )
    took = time.perf_counter() - started
    measurements = Measurements(lens, plan, settings, run.progress, until, unit)
    grid, (order, norms), later = (
        grid_of(lens.model),
        vocabulary_order(lens),
        movement_by_later(lens),
    )
    removed = measurements.removed() if scanned.tables["loss"] else []
    read, bits = measurements.leak()
    flow = measurements.flow()
    cure = measurements.cure()
    control = lens.twin(settings.seed)
    random = None
    # gives the weights back, whose modules point to one another
    measurements.lens = lens = cast(Lens, None)
    gc.collect()
    if until.left > SAFE * took:
        with suppress(OutOfTime):
            weights = control()
            if flow is not None:
                flow = replace(
                    flow,
                    null=unit(
                        "flow of random weights",
                        float,
                        lambda: measurements.flow_of_control(weights),
                    ),
                )
            more = until.kept(run.progress, more=True)
            random = scanning(
                "scan of random weights",
                lambda: _scanned(weights, settings, more, plan.tokens, MEASURES_OF_CONTROL),
            )
    skipped = measurements.skipped
    if random is None:
        skipped.append(
            "Random weights were not scanned for comparison: there was no time in "
            f"{settings.budget}."
        )
    tables = random.tables if random else {}
    nulls, common, losses = (
        [Row({**row, "model": name, "null": "random-init"}) for row in rows]
        for rows in (
            random.sites if random else [],
            tables.get("common_direction", []),
            tables.get("loss", []),
        )
    )
    if (loss := next(iter(scanned.tables["loss"]), None)) is None:
        reasons = (note for probe in scanned.probes if probe.name == "loss" for note in probe.notes)
        skipped.append(f"There is no loss: {next(reasons, 'no logits.')}")
    return ModelEvidence(
        model=name,
        record=scanned.models[0],
        text=scanned.protocol.text,
        sites=scanned.sites,
        nulls=nulls,
        anatomy=[row for row in scanned.tables["anatomy"] if row["kind"] == "branch"],
        common=[*scanned.tables["common_direction"], *common],
        loss=loss,
        loss_of_null=next(iter(losses), None),
        grid=grid,
        later=later,
        read=read,
        bits=bits,
        flow=flow,
        cure=cure,
        removed=removed,
        order=order,
        norms=norms,
        skipped=skipped,
        seconds=round(time.perf_counter() - clock, 3),
    )


def _scanned(
    lens: Lens, settings: CheckingUp, progress: Progress, tokens: int | None, measures: str
) -> ScanResult:
    _, context = reading_window(lens, settings.context)
    reading = settings.part(Reading) | {
        "max_tokens": None if tokens is None else max(context, tokens)
    }
    return scan(
        lens,
        settings.text,
        context=settings.context,
        measures=measures,
        sample=0,
        seed=settings.seed,
        progress=progress,
        **reading,
    )


def examined_states(
    source: VectorSource, name: str, settings: CheckingUp, run: Run
) -> ModelEvidence:
    """Of stored states the shape alone is known."""
    clock = time.perf_counter()
    found = scan(source, context=settings.context, seed=settings.seed, progress=run.progress)
    return ModelEvidence(
        model=name,
        record=found.models[0] if found.models else None,
        text=found.protocol.text,
        sites=found.sites,
        nulls=found.nulls,
        seconds=round(time.perf_counter() - clock, 3),
        skipped=[
            "Stored states have no weights, no head and no random-weight control: only their "
            "shape was examined."
        ],
    )


@verb("checkup")
def checkup(
    run: Run,
    sources: SourcesLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    budget: Annotated[
        Literal["2m", "10m", "full"],
        Option(
            "What a model may cost: about two or ten minutes on two cores, by its size (the more, "
            "the more tokens are read and the more is tried), or all of the text, the "
            "random-weight control and every search.",
            group="Limits",
        ),
    ] = "2m",
    fail_on: Annotated[
        str | Sequence[str] | None,
        Option(
            "Exit with status 3 where one of these was found: globs of codes, comma-separated, "
            "such as 'HS101,HS2*'.",
            metavar="CODES",
            identity=False,
        ),
    ] = None,
    checkpoints: Annotated[
        bool,
        Option(
            "The sources are checkpoints of one training run, in its order: that order is "
            "examined, too.",
            group="Input",
        ),
    ] = False,
    context: SeveralTokensContext = None,
    documents: Documents = "whole",
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> CheckupResult:
    """What shape a model's states have, what caused it, what they give away and what would help, in
    one run.

    Args:
        sources: one or several models or stored states, as `headscan.scan` takes them; with
            `checkpoints`, of one training run in its order.
        text: what the models read; a file or name, for it is read more than once.

    Returns:
        A `CheckupResult`. Each finding rests on one number with its threshold (docs/checkup.md says
        how these were set). With `out`, the folder has `card.md`, too, for a model card.

    Raises:
        BadInput: a source or text that cannot be used; `-` as text.

    Cost: by `budget`, of each source; an interrupted run goes on with the stage that was
        interrupted.

    >>> from headscan.diagnosis import checkup
    >>> found = checkup("gpt-vanilla", "stories", max_tokens=1024, context=64)
    >>> [one.code for one in found.findings][:1], found.examinations[0].observations[0].title
    (['HS301'], 'Narrow cone')
    """
    asked = Given(locals())
    settings = asked.chosen(CheckingUp)
    if not (given := given_sources(sources)):
        raise BadInput("No source was named: name at least one model, or stored states.")
    if settings.text == "-":
        raise BadInput(
            "A checkup reads its text more than once: give a file in place of standard input."
        )
    if settings.text is not None:
        check_text(settings.text)
    names = _names(given)
    _identify(given, names, settings, run)
    examined = list[ModelEvidence]()
    for number, (source, name) in enumerate(zip(given, names, strict=True)):
        evidence = run.unit(
            f"source-{number}",
            ModelEvidence,
            partial(_examined, source, name, settings, run, number),
        )
        examined.append(evidence)
        if (
            record := evidence.record
        ) is not None and record.device is not None:  # of a finished model nothing is opened
            place = f"{record.device}, {record.quantize or record.dtype}"
            run.identify(f"the device and precision of model {number + 1}", place)
    found = [
        judged(one, examined[:k] if settings.checkpoints else []) for k, one in enumerate(examined)
    ]
    present = [one for each in found for one in ordered(each.observations) if one.present]
    result = CheckupResult(
        protocol=run.protocol(
            text=next((one.text for one in examined if one.text is not None), None)
        ),
        models=[one.record for one in examined if one.record is not None],
        examinations=found,
        findings=sorted(present, key=lambda one: one.known),
        failed=sorted({one.code for one in present} & {*settings.failing()}),
        population=edition(),
    )
    if run.folder is not None:
        write_atomic(run.folder / "card.md", markdown(result).encode())
    return result


def _identify(
    given: Sequence[SourceLike], names: Sequence[str], settings: CheckingUp, run: Run
) -> None:
    """Record that the run rests on these sources and on the beginning of the text, also where their
    stages are finished.

    A resumed checkup does not open a source again whose stages are finished, and so all are
    compared here.
    """
    if run.folder is None:
        return
    run.identify("the number of sources", len(given))
    for number, (source, name) in enumerate(zip(given, names, strict=True), 1):
        run.identify(f"the name of source {number}", name)
        stored = stored_source(
            source, context=settings.context, max_tokens=settings.max_tokens, field=settings.field
        )
        if stored is not None:
            run.identify(f"the states of source {number}", stored.identity())
            continue
        model = prepare_model(cast(ModelLike, source), settings)
        if isinstance(model, Lens):
            model.identify(run, f"model {number}")
        else:
            run.identify(f"the name of model {number}", model.source.name)
            model.identify(run, f"model {number}")
    if settings.text is not None:
        run.identify("the beginning of the text", _beginning_hash(settings))


def _beginning_hash(settings: CheckingUp) -> str:
    """Return the SHA-256 of the text's first characters, the byte 0xFF behind each document."""
    digest = hashlib.sha256()
    left = TEXT_CHARACTERS
    for document in read_documents(
        settings.text, documents=settings.documents, field=settings.field
    ):
        beginning = document.beginning(left)
        digest.update(beginning.encode("utf-8", "surrogatepass") + b"\xff")
        left -= len(beginning)
        if left <= 0:
            break
    return digest.hexdigest()


def _examined(
    source: SourceLike, name: str, settings: CheckingUp, run: Run, number: int
) -> ModelEvidence:
    stored = stored_source(
        source, context=settings.context, max_tokens=settings.max_tokens, field=settings.field
    )
    if stored is not None:
        return examined_states(stored, name, settings, run)
    if settings.text is None:
        raise BadInput(f"Say which text {name} is to read: --text TEXT.")
    threads = torch.get_num_threads()
    try:
        return examined_model(cast(ModelLike, source), name, settings, run, number)
    finally:
        torch.set_num_threads(threads)


def _names(given: list[SourceLike]) -> list[str]:
    """What the sources go by: ids and folders by their last part where that tells them apart."""

    def name_of(one: SourceLike) -> str:
        if isinstance(one, str | os.PathLike):
            return os.fspath(one).rstrip("/")
        return str(getattr(one, "name", type(one).__name__))

    names = [name_of(one) for one in given]
    short = [os.path.basename(name) or name for name in names]
    return [s if short.count(s) == 1 else name for s, name in zip(short, names, strict=True)]


def judged(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Examination:
    """Every condition that can be looked for in a source, and the summary."""
    found = {
        code: seen
        for code, one in CONDITIONS.items()
        if (seen := one.seen(evidence, earlier)) is not None
    }
    alone = {
        code: seen
        for code, seen in found.items()
        if CONDITIONS[code].alone and CONDITIONS[code].present(seen.value)
    }
    found = alone or found
    alarms = alarming({code: seen.value for code, seen in found.items() if not seen.notice})
    rows = [
        _observation(code, CONDITIONS[code], seen, evidence, alarm=code in alarms)
        for code, seen in found.items()
    ]
    return Examination(
        model=evidence.model,
        evidence=evidence,
        observations=rows,
        summary=summary(evidence, rows),
        too_few=evidence.few,
    )


def _observation(
    code: str, condition: Condition, seen: Seen, evidence: ModelEvidence, *, alarm: bool
) -> Observation:
    few = on_few(evidence.text.tokens) if alarm and condition.of_text and evidence.text else ""
    alarm = alarm and not few
    seen = replace(seen, sentence=seen.sentence + few)
    present = condition.present(seen.value, seen.interval)
    # the limit that was passed
    beyond = condition.alarms if alarm and condition.alarms(seen.value) else condition.present
    sure = (
        None
        if seen.interval is None
        else all(beyond(end) == beyond(seen.value) for end in seen.interval)
    )
    known = not alarm if present else condition.known
    words = ("title", "question", "meaning", "source", "unit", "threshold", "least", "alarm")
    measured = ("sentence", "site", "value", "interval", "null", "null_of")
    return Observation(
        code=code,
        level="good" if not present else "notice" if known or sure is False else "alert",
        model=evidence.model,
        present=present,
        known=known,
        possible=present and bool(few),
        sure=sure,
        advice=seen.advice or condition.todo,
        read=evidence.text.read if evidence.text else None,
        beside=beside(code, seen.value, least=condition.least),
        percentile=percentile(code, seen.value),
        **{name: getattr(condition, name) for name in words},
        **{name: getattr(seen, name) for name in measured},
    )
