"""The registries of pages and of their sections, and how a page is put together from a result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from headscan.report.kit.parts import Facts, FindingLine, Head, Page, Prose, Section, Shown, Table
from headscan.report.kit.words import grouped, named
from headscan.run import VERBS, Registry, plain

if TYPE_CHECKING:
    from headscan.run.result import Result
    from headscan.run.vocabulary import Term

LONG = 64
"""Lists of more numbers than this are left out of the embedded result.json where it would be too
large with them.
"""
LARGEST = 600_000


def findings(result: Result) -> list[FindingLine]:
    """The findings as they are shown; where a finding stands is said only if its own text does not."""
    shown = []
    for finding in result.findings:
        title = getattr(finding, "title", "")
        known = getattr(finding, "known", None)
        where = [finding.model] if len(result.models) > 1 and finding.model else []
        where += [finding.site] if finding.site and finding.site not in finding.sentence else []
        where += [finding.read] if finding.read else []
        level = finding.level if finding.level in ("alert", "good") else "notice"
        if finding.passed:
            level = "notice"
            where = [*where, "in the baseline" if finding.passed == "known" else "ignored"]
        word = (
            level
            if known is None
            else "notice"
            if known
            else "alarm"
            if level == "alert"
            else "alarm, not certain"
        )
        sentence = f"{title}. {finding.sentence}" if title else finding.sentence
        advice = getattr(finding, "advice", "")
        unit = getattr(finding, "unit", "")
        code = f"{finding.code} {finding.name}".strip()
        shown.append(FindingLine(code, level, sentence, finding.value, where, advice, unit, word))
    return shown


def protocol(result: Result) -> Shown:
    """Protocol and data of a result."""
    told = result.protocol
    default = (
        {one.name: plain(one.default) for one in VERBS[told.verb].options()}
        if told.verb in VERBS
        else {}
    )
    as_usual = {
        key: value
        for key, value in told.settings.items()
        if key in default and default[key] == value
    }
    as_usual |= {key: told.settings[key] for key in told.by_default}
    chosen = {key: value for key, value in told.settings.items() if key not in as_usual}
    facts = [Facts("Settings that are not the defaults", flat(chosen))]
    facts += [
        Facts("The run", fields(told, "command", "text", "versions", "settings", "by_default"))
    ]
    facts += [Facts("The text", fields(told.text))] if told.text else []
    facts += [Facts(named(model.name), fields(model, "name")) for model in result.models]
    facts += [
        Facts("The versions", flat(told.versions)),
        Facts("Settings at their defaults", flat(as_usual)),
    ]
    return Shown(
        told.command or "",
        when(told.started),
        [one for one in facts if one.rows],
        light(result.document),
    )


def fields(record: object, *others: str) -> list[tuple[str, str]]:
    """The fields of a dataclass but for some, as `flat` writes them."""
    values = plain(record)
    return (
        flat({key: value for key, value in values.items() if key not in others})
        if isinstance(values, dict)
        else []
    )


def light(document: Mapping[str, object]) -> str:
    """The document as JSON; without its long lists of numbers where it were too large for a page
    with them.
    """
    whole = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return (
        whole
        if len(whole) <= LARGEST
        else json.dumps(_shortened(document), ensure_ascii=False, allow_nan=False)
    )


def _shortened(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) > LONG and isinstance(value[0], int | float):
            return f"{len(value)} numbers, in the result.json beside this page"
        return [_shortened(item) for item in value]
    return value


def when(started: object) -> str:
    """The day and time of an ISO date, as a person writes it.

    >>> when("2026-11-21T03:56:17+00:00")
    '21 November 2026, 03:56 UTC'
    """
    try:
        moment = datetime.fromisoformat(str(started))
    except ValueError:
        return str(started or "")
    zone = " UTC" if moment.utcoffset() is not None and not moment.utcoffset() else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Nested names and values as one list, values unrounded: they must serve to repeat the run.

    >>> flat({"dropped_tokens": 97, "sha256": {"x": "5e"}, "max_tokens": None})
    [('dropped tokens', '97'), ('sha256: x', '5e'), ('max tokens', 'none')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = prefix + str(key).replace("_", " ")
        if isinstance(value, Mapping):
            rows += flat(value, f"{name}: ")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            said = [str(one) for one in value]
            rows.append(
                (name, (" " if said and said[0].endswith(".") else ", ").join(said) or "none")
            )
        elif value is None or isinstance(value, bool):
            rows.append((name, {None: "none", True: "yes", False: "no"}[value]))
        else:
            rows.append((name, grouped(value) if isinstance(value, int) else str(value)))
    return rows


Made = Section | list[Section] | None
R = TypeVar("R", bound="Callable[[Any], Head]")
S = TypeVar("S", bound="Callable[[Any], Made]")


@dataclass(frozen=True)
class SectionOf:
    """A registered section: of which kind of page, where in it, and what makes it (None: nothing to
    show).
    """

    kind: str
    order: float
    make: Callable[[Any], Made]


PAGES: Registry[Callable[[Any], Head]] = Registry("page", "headscan.report.pages")
SECTIONS: Registry[SectionOf] = Registry("section", "headscan.report.pages")


def page(kind: str) -> Callable[[R], R]:
    """Registers the function that makes the head of every page of a kind: `f(result) -> Head`."""
    return PAGES.register(kind)


def section(kind: str, order: float) -> Callable[[S], S]:
    """Registers a section of the pages of a kind: `f(result) -> Section | list[Section] | None`,
    shown in the order of `order`.

    The built-in sections have 10, 20, 30, ...; a plug-in's may have any number between or after
    them.
    """

    def put(make: S) -> S:
        SECTIONS.add(f"{kind}.{make.__name__}", SectionOf(kind, order, make))
        return make

    return put


def assemble(result: Result) -> Page:
    """The page of a result; BadInput where there is no page of its kind."""
    head = PAGES[result.kind](result)
    wanted = sorted(
        (one for one in SECTIONS.values() if one.kind == result.kind), key=lambda one: one.order
    )
    made = [(one, attempt(one, result)) for one in wanted]
    sections = [
        replace(each, name=each.name or one.make.__name__) for one, found in made for each in found
    ]
    version = str(result.protocol.versions.get("headscan") or "")
    return Page(
        result.kind,
        head,
        sections,
        findings(result),
        glossary(head, sections),
        protocol(result),
        version,
    )


def attempt(one: SectionOf, result: Result) -> list[Section]:
    """Its sections, or, where its function fails on this result, a sentence that says so: the
    others are shown still.
    """
    try:
        made = one.make(result)
        return made if isinstance(made, list) else [made] if made else []
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        logging.getLogger("headscan.report").warning("A section of the page failed (%s).", reason)
        logging.getLogger("headscan.report").debug("the section that failed", exc_info=True)
        title = one.make.__name__.replace("_", " ").capitalize()
        return [Section(title, parts=[Prose(f"This part cannot be shown ({reason}).")])]


def glossary(head: Head, sections: list[Section]) -> list[Term]:
    """Every term that the head or a table's column explains, once, in order."""
    tables = [part for each in sections for part in each.parts if isinstance(part, Table)]
    terms = [*head.words, *(term for one in tables for term in one.heads if term.sentence)]
    return list({(term.name or term.title): term for term in reversed(terms)}.values())[::-1]
