"""`checkup`: the four questions of one or more models in one run, with findings that have codes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal, cast

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.measurements import TOKENS, curing, flowing, grid_of, leaking
from headscan.diagnosis.plan import (
    PASSAGE,
    CheckingUp,
    Deadline,
    ExaminationPlan,
    OutOfTime,
    ScanCost,
    afforded,
    drawing,
    pace,
    planned,
)
from headscan.diagnosis.publish import markdown
from headscan.diagnosis.registry import CONDITIONS, Condition, Seen, alarming
from headscan.diagnosis.result import CheckupResult, Examination, Observation, beside, ordered, reference, summary
from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import BadInput, Progress, Row, Run, running, verb, write_atomic
from headscan.run.settings import CommandLine, Option, Out, Progressing, Resume, Seed
from headscan.scanner.result import ScanResult
from headscan.scanner.run import scan
from headscan.states import SourceLike, SourcesLike, VectorSource, given_sources, stored_source
from headscan.text import documents
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, Reading, TextLike, check_text
from headscan.text.tokens import tokenise

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
    skipped = list[str]()
    grid = grid_of(lens.model, until, skipped)
    skipped += plan.skipped
    ids = _ids(lens, settings, max(TOKENS, PASSAGE * plan.passages))
    read, bits = leaking(lens, ids[:TOKENS], plan, settings, run, until, skipped)
    flow = flowing(lens, ids[:TOKENS], plan, settings, run, until, skipped)
    cure = curing(lens, ids, plan, settings, run, until, skipped)
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


@verb("checkup")
def checkup(
    sources: SourcesLike, text: Annotated[TextLike | None, TEXT] = None, *,
    budget: Annotated[
        Literal["2m", "10m", "full"],
        Option(
            "How long a model may take: two or ten minutes, from the speed of its first pass (more tokens are read, and more "
            "is tried, the longer), or all of the text, the random twin and every search."
        ),
    ] = "2m",
    fail_on: Annotated[
        str | Sequence[str] | None,
        Option(
            "Exit with status 3 where one of these was found: globs of codes, comma-separated, such as 'HS101,HS2*'.",
            metavar="CODES", identity=False,
        ),
    ] = None,
    contribute: Annotated[
        bool,
        Option(
            "Write reference.json into --out, too: a row of the reference population, to be shared (docs/population.md).",
            identity=False,
        ),
    ] = False,
    checkpoints: Annotated[
        bool, Option("The sources are checkpoints of one training run, in its order: that order is examined, too.")
    ] = False,
    context: Annotated[int, Option("Tokens of a window; one window is one row of a forward pass.", low=2)] = 128,
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> CheckupResult:  # fmt: skip
    """What shape a model's states have, what caused it, what they give away and what would help, in one run.

    Args:
        sources: one or several models or stored states, as `headscan.scan` takes them; with `checkpoints`, of one training
            run in its order.
        text: what the models read; a file or name, for it is read more than once.

    Returns:
        A `CheckupResult`. Each finding rests on one number with its threshold (docs/checkup.md says how these were set). With
        `out`, the folder has `card.md`, too, for a model card.

    Raises:
        BadInput: a source or text that cannot be used; `-` as text.

    Cost: by `budget`, of each source; an interrupted run goes on with the next source.

    >>> from headscan.diagnosis import checkup
    >>> found = checkup("gpt-vanilla", "stories", max_tokens=1024, context=64)
    >>> [one.code for one in found.findings][:1], found.examinations[0].observations[0].title
    (['HS301'], 'Narrow cone')
    """
    asked, run = running()
    settings = asked.chosen(CheckingUp)
    given = given_sources(sources)
    if not given:
        raise BadInput("No source was named: name at least one model, or stored states.")
    if settings.text == "-":
        raise BadInput("A checkup reads its text more than once: give a file in place of standard input.")
    if settings.text is not None:
        check_text(settings.text)
    examined: list[ModelEvidence] = []
    names = _names(given)
    for number, (source, name) in enumerate(zip(given, names, strict=True)):
        work = partial(_examined, source, name, settings, run)
        examined.append(run.unit(f"source-{number}", ModelEvidence, work))
    found = [judged(one, examined[:k] if settings.checkpoints else []) for k, one in enumerate(examined)]
    present = [one for each in found for one in ordered(each.observations) if one.present]
    wanted = settings.failing()
    result = CheckupResult(
        protocol=run.protocol(text=next((one.text for one in examined if one.text is not None), None)),
        models=[one.record for one in examined if one.record is not None],
        findings=sorted(present, key=lambda one: one.known),
        examinations=found,
        failed=sorted({one.code for one in present if one.code in wanted}),
    )
    if run.folder is not None:
        write_atomic(run.folder / "card.md", markdown(result).encode())
        if settings.contribute:
            rows = [asdict(reference(result, number)) for number in range(len(found))]
            write_atomic(run.folder / "reference.json", json.dumps(rows, indent=1, ensure_ascii=False).encode())
    return result


def _examined(source: SourceLike, name: str, settings: CheckingUp, run: Run) -> ModelEvidence:
    stored = stored_source(
        source, context=settings.context, max_tokens=settings.max_tokens, field=settings.field,
    )  # fmt: skip
    if stored is not None:
        return examined_states(stored, name, settings, run)
    if settings.text is None:
        raise BadInput(f"Say which text {name} is to read: --text TEXT.")
    return examined_model(cast(ModelLike, source), name, settings, run)


def _names(given: list[SourceLike]) -> list[str]:
    """What the sources go by: ids and folders by their last part where that tells them apart."""
    names = [
        os.fspath(one).rstrip("/")
        if isinstance(one, str | os.PathLike)
        else str(getattr(one, "name", type(one).__name__))
        for one in given
    ]
    short = [os.path.basename(name) or name for name in names]
    return [s if short.count(s) == 1 else name for s, name in zip(short, names, strict=True)]


def judged(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Examination:
    """Every condition that can be looked for in a source, and the summary."""
    found = {code: seen for code, one in CONDITIONS.items() if (seen := one.seen(evidence, earlier)) is not None}
    alarms = alarming({code: seen.value for code, seen in found.items()})
    observations = [
        _observation(code, CONDITIONS[code], seen, evidence.model, alarm=code in alarms) for code, seen in found.items()
    ]
    return Examination(
        model=evidence.model, evidence=evidence, observations=observations, summary=summary(evidence, observations)
    )


def _observation(code: str, condition: Condition, seen: Seen, model: str, *, alarm: bool) -> Observation:
    present = condition.present(seen.value, seen.interval)
    sure = None if seen.interval is None else all(condition.present(end) == present for end in seen.interval)
    known = not alarm if present else condition.known
    level: Literal["alert", "notice", "good"] = (
        "good" if not present else "notice" if known or sure is False else "alert"
    )
    return Observation(
        code=code, level=level, sentence=seen.sentence, model=model, site=seen.site, value=seen.value,
        title=condition.title, question=condition.question, meaning=condition.meaning, source=condition.source,
        unit=condition.unit, threshold=condition.threshold, least=condition.least, present=present, known=known,
        alarm=condition.alarm,
        advice=seen.advice, interval=seen.interval, sure=sure, null=seen.null, null_of=seen.null_of,
        beside=beside(code, seen.value, least=condition.least),
    )  # fmt: skip
