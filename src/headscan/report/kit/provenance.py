"""Findings, protocol and data of a result: the content that pages of all kinds share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headscan.report.kit.parts import Facts, FindingLine, Provenance
from headscan.report.kit.words import grouped, named
from headscan.run import VERBS, plain

if TYPE_CHECKING:
    from headscan.run import Finding
    from headscan.run.result import Result

# A document with more characters than this is embedded without its lists of more numbers than that.
LONGEST_DOCUMENT = 600_000
LONGEST_LIST = 64


def finding_lines(result: Result) -> list[FindingLine]:
    """Return the findings as they are shown."""
    several_models = len(result.models) > 1
    return [_finding_line(finding, several_models) for finding in result.findings]


def _finding_line(finding: Finding, several_models: bool) -> FindingLine:
    details = finding.details
    level = finding.level if finding.level in ("alarm", "fine") else "notice"
    if finding.passed:
        level = "notice"
    return FindingLine(
        code=f"{finding.code} {finding.name}".strip(),
        level=level,
        sentence=f"{details.title}. {finding.sentence}" if details.title else finding.sentence,
        value=finding.value,
        where=_where(finding, several_models),
        advice=details.advice,
        unit=details.unit,
        word=level,
    )


def _where(finding: Finding, several_models: bool) -> list[str]:
    """Return model, site and text of a finding; the site only if the sentence does not name it."""
    where = []
    if several_models and finding.model:
        where.append(finding.model)
    if finding.site and finding.site not in finding.sentence:
        where.append(finding.site)
    if finding.read:
        where.append(finding.read)
    if finding.passed:
        where.append("in the baseline" if finding.passed == "known" else "ignored")
    return where


def provenance(result: Result) -> Provenance:
    """Return protocol and data of a result."""
    protocol = result.protocol
    changed, unchanged = _settings(result)
    run_fields = fields(protocol, "command", "text", "versions", "settings", "by_default")
    facts = [
        Facts("Settings that are not the defaults", flat(changed)),
        Facts("The run", run_fields),
    ]
    if protocol.text:
        facts.append(Facts("The text", fields(protocol.text)))
    facts += [Facts(named(model.name), fields(model, "name")) for model in result.models]
    facts.append(Facts("The versions", flat(protocol.versions)))
    facts.append(Facts("Settings at their defaults", flat(unchanged)))
    return Provenance(
        command=protocol.command or "",
        started=date_and_time(protocol.started),
        facts=[fact for fact in facts if fact.rows],
        document=document_text(result.document),
    )


def _settings(result: Result) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings that differ from their defaults, and those that do not."""
    protocol = result.protocol
    defaults = {}
    if protocol.verb in VERBS:
        defaults = {option.name: plain(option.default) for option in VERBS[protocol.verb].options()}
    settings = protocol.settings
    unchanged = {
        name: value
        for name, value in settings.items()
        if name in defaults and defaults[name] == value
    }
    for name in protocol.by_default:
        unchanged[name] = settings[name]
    changed = {name: value for name, value in settings.items() if name not in unchanged}
    return changed, unchanged


def fields(record: object, *left_out: str) -> list[tuple[str, str]]:
    """Return the fields of a dataclass but those left out, as `flat` writes them."""
    values = plain(record)
    if not isinstance(values, dict):
        return []
    return flat({name: value for name, value in values.items() if name not in left_out})


def document_text(document: Mapping[str, object]) -> str:
    """Return the document as JSON; where it is too large for a page, without its long lists."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    if len(text) <= LONGEST_DOCUMENT:
        return text
    return json.dumps(_without_long_lists(document), ensure_ascii=False, allow_nan=False)


def _without_long_lists(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_long_lists(item) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST_LIST and isinstance(value[0], int | float):
            return f"{len(value)} numbers, in the result.json beside this page"
        return [_without_long_lists(item) for item in value]
    return value


def date_and_time(started: object) -> str:
    """Return the day and time of an ISO date, as a person writes it.

    >>> date_and_time("2026-11-21T03:56:17+00:00")
    '21 November 2026, 03:56 UTC'
    """
    try:
        moment = datetime.fromisoformat(str(started))
    except ValueError:
        return str(started or "")
    is_utc = moment.utcoffset() is not None and not moment.utcoffset()
    zone = " UTC" if is_utc else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested names and values as one list.

    Values are not rounded: they must serve to repeat the run.

    >>> flat({"dropped_tokens": 97, "sha256": {"x": "5e"}, "max_tokens": None})
    [('dropped tokens', '97'), ('sha256: x', '5e'), ('max tokens', 'none')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = prefix + str(key).replace("_", " ")
        if isinstance(value, Mapping):
            rows += flat(value, f"{name}: ")
        else:
            rows.append((name, _value_text(value)))
    return rows


def _value_text(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return grouped(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [str(item) for item in value]
        are_sentences = bool(items) and items[0].endswith(".")
        return (" " if are_sentences else ", ").join(items) or "none"
    return str(value)
