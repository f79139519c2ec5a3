"""`checkup`: the four questions of one or more models in one run, with findings that have codes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from typing import Literal, cast

from headscan.diagnosis.card import markdown
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen, alarming
from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.examine import examined_model, examined_states
from headscan.diagnosis.population import beside, reference
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.diagnosis.settings import CheckingUp
from headscan.diagnosis.summary import ordered, summary
from headscan.model.opening import ModelLike
from headscan.run import BadInput, Run, verb, write_atomic
from headscan.states import SourceLike, SourcesLike, given_sources, stored_source
from headscan.text.source import check_text

__all__ = ["checkup", "judged"]


@verb("checkup", CheckingUp)
def checkup(sources: SourcesLike, settings: CheckingUp, run: Run) -> CheckupResult:
    """What shape a model's states have, what caused it, what they give away and what would help, in one run.

    Args:
        sources: one or several models or stored states, as `headscan.scan` takes them; with `checkpoints`, of one training
            run in its order.
        text: what the models read; a file or name, for it is read more than once.

    Returns:
        A `CheckupResult`. Each finding rests on one number with its threshold (docs/checkup.md says how these were set). With
        `out`, the folder has `card.md`, too, for a model card (`headscan.diagnosis.push` sends it there).

    Raises:
        BadInput: a source or text that cannot be used; `-` as text.

    Cost: by `budget`, of each source; an interrupted run goes on with the next source.

    >>> from headscan.diagnosis import checkup
    >>> found = checkup("gpt-vanilla", "stories", max_tokens=1024, context=64)
    >>> [one.code for one in found.findings][:1], found.examinations[0].observations[0].title
    (['HS301'], 'Narrow cone')
    """
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
    conditions = {code: kind() for code, kind in CONDITIONS.items()}
    found = {code: seen for code, one in conditions.items() if (seen := one.seen(evidence, earlier)) is not None}
    alarms = alarming({code: seen.value for code, seen in found.items()})
    observations = [
        _observation(code, conditions[code], seen, evidence.model, alarm=code in alarms) for code, seen in found.items()
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
