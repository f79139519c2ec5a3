"""The verb `checkup`: the four questions of one or more models in one run, with coded findings."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Unpack, cast

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.plan import Budget, CheckupInputs, failing_codes
from headscan.diagnosis.population import beside, edition
from headscan.diagnosis.publish import markdown
from headscan.diagnosis.registry import CONDITIONS, Condition, Seen, alarming
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.diagnosis.stages import examine
from headscan.diagnosis.summary import ordered, summary
from headscan.diagnosis.unexamined import unexamined
from headscan.model import Lens
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import BadInput, Level, Run, verb, write_atomic
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.scanner.cautions import on_few
from headscan.states import SourceLike, SourcesLike, given_sources, stored_source
from headscan.text import documents as read_documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    SeveralTokensContext,
    Start,
    TextLike,
    check_text,
)

TEXT_CHARACTERS = 2**24
"""Characters of the text that a resumed checkup compares with those of the interrupted one: more
than its scans read, but for `--budget full`.
"""


@verb("checkup")
def checkup(
    run: Run,
    sources: SourcesLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    budget: Annotated[
        Budget,
        Option(
            "Time a model: 2m or 10m (about two or ten minutes; a faster machine reads more tokens "
            "and makes more checks), or full (everything).",
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
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> CheckupResult:
    """Answer in one run: what shape a model's states have, what caused it, what they give away, and
    what would help.

    Args:
        sources: one or several models or stored states, as `headscan.scan` takes them; with
            `checkpoints`, of one training run in its order.
        text: what the models read; a file or name, for it is read more than once.

    Returns:
        A `CheckupResult`. Each finding is based on one number with its threshold (docs/checkup.md
        says how these were set). With `out`, the folder has `card.md`, too, for a model card.

    Raises:
        BadInput: a source or text that cannot be used; `-` as text.

    Cost: by `budget`, of each source; an interrupted run continues with the stage that was
        interrupted.

    >>> from headscan.diagnosis import checkup
    >>> result = checkup("gpt-vanilla", "stories", max_tokens=1024, context=64)
    >>> result.findings[0].code, result.examinations[0].observations[0].title
    ('HS301', 'Narrow cone')
    """
    listed = given_sources(sources)
    if not listed:
        raise BadInput("No source was named: name at least one model, or stored states.")
    if text == "-":
        raise BadInput(
            "A checkup reads its text more than once: give a file in place of standard input."
        )
    if text is not None:
        check_text(text)
    failing = failing_codes(fail_on)
    inputs = CheckupInputs(
        text=text,
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        context=context,
        budget=budget,
        seed=seed,
    )
    names = _names(listed)
    _identify(listed, names, inputs, run)
    evidence = _examine_each(listed, names, inputs, run)

    examinations = []
    for number, item in enumerate(evidence):
        earlier = evidence[:number] if checkpoints else []
        examinations.append(judged(item, earlier))
    present = []
    for examination in examinations:
        present += [item for item in ordered(examination.observations) if item.present]
    texts = [item.text for item in evidence if item.text is not None]
    result = CheckupResult(
        protocol=run.protocol(text=texts[0] if texts else None),
        models=[item.record for item in evidence if item.record is not None],
        examinations=examinations,
        findings=sorted(present, key=lambda observation: observation.level != "alarm"),
        failed=sorted({observation.code for observation in present} & set(failing)),
        population=edition(),
    )
    if run.folder is not None:
        write_atomic(run.folder / "card.md", markdown(result).encode())
    return result


def _examine_each(
    sources: Sequence[SourceLike], names: Sequence[str], inputs: CheckupInputs, run: Run
) -> list[ModelEvidence]:
    """Return what was measured of each source; a finished one comes from the interrupted run."""
    results = []
    for number, (source, name) in enumerate(zip(sources, names, strict=True)):
        make = partial(examine, source, name, number, inputs, run)
        evidence = run.unit(f"source-{number}", ModelEvidence, make)
        results.append(evidence)
        record = evidence.record
        if record is not None and record.device is not None:
            # nothing is opened of a model that was finished before
            precision = f"{record.device}, {record.quantize or record.dtype}"
            run.identify(f"the device and precision of model {number + 1}", precision)
    return results


def _identify(
    sources: Sequence[SourceLike], names: Sequence[str], inputs: CheckupInputs, run: Run
) -> None:
    """Record that the run depends on these sources and on the beginning of the text, also where
    their stages are finished.

    A resumed checkup does not open a source again whose stages are finished, and so all are
    compared here.
    """
    if run.folder is None:
        return
    run.identify("the number of sources", len(sources))
    for number, (source, name) in enumerate(zip(sources, names, strict=True), 1):
        run.identify(f"the name of source {number}", name)
        stored = stored_source(
            source,
            context=inputs.context,
            max_tokens=inputs.reading.max_tokens,
            field=inputs.reading.field,
        )
        if stored is not None:
            run.identify(f"the states of source {number}", stored.identity())
            continue
        model = prepare_model(cast(ModelLike, source), inputs.loading)
        if isinstance(model, Lens):
            model.identify(run, f"model {number}")
        else:
            run.identify(f"the name of model {number}", model.source.name)
            model.identify(run, f"model {number}")
    if inputs.text is not None:
        run.identify("the beginning of the text", _beginning_hash(inputs.text, inputs.reading))


def _beginning_hash(text: TextLike, reading: Reading) -> str:
    """Return the SHA-256 of the text's first characters, the byte 0xFF behind each document."""
    digest = hashlib.sha256()
    left = TEXT_CHARACTERS
    for document in read_documents(text, documents=reading.documents, field=reading.field):
        beginning = document.beginning(left)
        digest.update(beginning.encode("utf-8", "surrogatepass") + b"\xff")
        left -= len(beginning)
        if left <= 0:
            break
    return digest.hexdigest()


def _names(sources: Sequence[SourceLike]) -> list[str]:
    """Return the sources' names: ids and folders by their last part where that tells them apart."""
    names = []
    for source in sources:
        if isinstance(source, str | os.PathLike):
            names.append(os.fspath(source).rstrip("/"))
        else:
            names.append(str(getattr(source, "name", type(source).__name__)))
    short_names = [os.path.basename(name) or name for name in names]
    unambiguous = []
    for name, short in zip(names, short_names, strict=True):
        unambiguous.append(short if short_names.count(short) == 1 else name)
    return unambiguous


def judged(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Examination:
    """Return every condition that can be looked for in a source, and the summary.

    A condition that stands alone (a text that the model cannot read) hides the others.
    """
    seen_by_code = {}
    alone = {}
    for code, condition in CONDITIONS.items():
        seen = condition.seen(evidence, earlier)
        if seen is None:
            continue
        seen_by_code[code] = seen
        if condition.alone and condition.alarms(seen.value):
            alone[code] = seen
    seen_by_code = alone or seen_by_code

    values = {code: seen.value for code, seen in seen_by_code.items() if not seen.notice}
    alarms = alarming(values)
    observations = []
    for code, seen in seen_by_code.items():
        observations.append(
            _observation(code, CONDITIONS[code], seen, evidence, alarm=code in alarms)
        )
    missing = [] if alone else unexamined(evidence, seen_by_code)
    return Examination(
        model=evidence.model,
        evidence=evidence,
        observations=observations,
        unexamined=missing,
        summary=summary(evidence, observations, missing),
        too_few=evidence.few,
    )


def _observation(
    code: str, condition: Condition, seen: Seen, evidence: ModelEvidence, *, alarm: bool
) -> Observation:
    """Return a condition as it was seen, with its level and what is known of other models."""
    few = ""
    if alarm and condition.of_text:
        few = on_few(evidence.count, evidence.unit)
    present = condition.present(seen.value, seen.interval)
    sure = _is_sure(condition, seen, alarm=alarm and not few)
    possible = present and alarm and (bool(few) or sure is False)
    level: Level = "fine"
    if present:
        level = "alarm" if alarm and not possible else "notice"
    seen = replace(seen, sentence=seen.sentence + few)
    return Observation(
        code=code,
        level=level,
        model=evidence.model,
        present=present,
        possible=possible,
        sure=sure,
        advice=seen.advice or condition.todo,
        read=evidence.text.read if evidence.text else None,
        beside=beside(code, seen.value, evidence, least=condition.least),
        title=condition.title,
        question=condition.question,
        meaning=condition.meaning,
        source=condition.source,
        unit=condition.unit,
        threshold=condition.threshold,
        least=condition.least,
        alarm=condition.alarm,
        sentence=seen.sentence,
        site=seen.site,
        value=seen.value,
        interval=seen.interval,
        null=seen.null,
        null_of=seen.null_of,
    )


def _is_sure(condition: Condition, seen: Seen, *, alarm: bool) -> bool | None:
    """Return whether both ends of the interval lie on the value's side of the limit that it passed;
    None without an interval.
    """
    if seen.interval is None:
        return None
    passes: Callable[[float], bool] = condition.present
    if alarm and condition.alarms(seen.value):
        passes = condition.alarms
    expected = passes(seen.value)
    return all(passes(end) == expected for end in seen.interval)
