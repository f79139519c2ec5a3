"""The registries of pages and of their sections, and how a page is put together from a result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from headscan.report.kit.parts import Facts, FindingLine, Head, Page, Prose, Section, Shown, Table, Word
from headscan.report.kit.reading import entries, mapping, number, text
from headscan.report.kit.words import grouped, named
from headscan.run.registry import Registry

if TYPE_CHECKING:
    from headscan.run.result import Result


# ---- What a result's document says of how it was made, and the files that a reader can take away.

LONG = 64
"""Lists of more numbers than this are left out of the embedded result.json where it would be too large with them."""
LARGEST = 600_000


def findings(document: Mapping[str, object]) -> list[FindingLine]:
    """The document's findings as they are shown; where a finding stands is said only if its own text does not."""
    several = len(entries(document, "models")) > 1
    found = []
    for item in entries(document, "findings"):
        said = text(item, "sentence")
        model, site = text(item, "model"), text(item, "site")
        where = [model] if several and model else []
        where += [site] if site and site not in said else []
        level = {"warning": "alert", "alert": "alert", "good": "good"}.get(text(item, "level"), "notice")
        found.append(
            FindingLine(
                text(item, "code"),
                level,
                titled(text(item, "title"), said),
                number(item, "value"),
                where,
                text(item, "advice"),
                text(item, "unit"),
                _word(level, item.get("known")),
            )
        )
    return found


def _word(level: str, known: object) -> str:
    """A level in words; of findings that many healthy models may have, too, whether it is an alarm."""
    if known is None:
        return level
    return "notice" if known else "alarm" if level == "alert" else "alarm, not certain"


def titled(title: str, sentence: str) -> str:
    """The sentence, with the finding's title before it where it has one.

    >>> titled("", "It is so."), titled("Cone", "It is so.")
    ('It is so.', 'Cone. It is so.')
    """
    return f"{title}. {sentence}" if title else sentence


def shown(result: Result) -> Shown:
    """Protocol and data of a result."""
    document = result.document
    protocol = mapping(document, "protocol")
    aside = ("command", "text", "versions", "settings")
    run = {key: value for key, value in protocol.items() if key not in aside}
    facts = [Facts("The run", flat(run | dict(mapping(protocol, "settings"))))]
    facts.append(Facts("The text", flat(mapping(protocol, "text"))))
    for model in entries(document, "models") or ([mapping(document, "model")] if mapping(document, "model") else []):
        facts.append(Facts(named(text(model, "name")), flat({k: v for k, v in model.items() if k != "name"})))
    facts.append(Facts("The versions", flat(mapping(protocol, "versions"))))
    return Shown(
        text(protocol, "command"), when(protocol.get("started")), [f for f in facts if f.rows], light(document)
    )


def light(document: Mapping[str, object]) -> str:
    """The document as JSON; without its long lists of numbers where it were too large for a page with them."""
    whole = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return whole if len(whole) <= LARGEST else json.dumps(_shortened(document), ensure_ascii=False, allow_nan=False)


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
            rows.append((name, ", ".join(map(str, value)) or "none"))
        else:
            rows.append((name, _exact(value)))
    return rows


def _exact(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return grouped(value) if isinstance(value, int) else str(value)


Made = Section | list[Section] | None
R = TypeVar("R", bound="Callable[[Any], Head]")
S = TypeVar("S", bound="Callable[[Any], Made]")
FAULTS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class SectionOf:
    """A registered section: of which kind of page, where in it, and what makes it (None: nothing to show)."""

    kind: str
    order: float
    make: Callable[[Any], Made]


PAGES: Registry[Callable[[Any], Head]] = Registry("page", "headscan.report.pages")
SECTIONS: Registry[SectionOf] = Registry("section", "headscan.report.pages")


def page(kind: str) -> Callable[[R], R]:
    """Registers the function that makes the head of every page of a kind: `f(result) -> Head`."""
    return PAGES.register(kind)


def section(kind: str, order: float) -> Callable[[S], S]:
    """Registers a section of the pages of a kind: `f(result) -> Section | list[Section] | None`, shown in the order of `order`.

    The built-in sections have 10, 20, 30, ...; a plug-in's may have any number between or after them.
    """

    def put(make: S) -> S:
        SECTIONS.add(f"{kind}.{make.__name__}", SectionOf(kind, order, make))
        return make

    return put


def assemble(result: Result) -> Page:
    """The page of a result.

    Raises:
        BadInput: there is no page of this kind.
    """
    make = PAGES[result.kind]
    head = make(result)
    wanted = sorted((one for one in SECTIONS.values() if one.kind == result.kind), key=lambda one: one.order)
    made = [(one, attempt(one, result)) for one in wanted]
    sections = [replace(each, name=each.name or one.make.__name__) for one, found in made for each in found]
    return Page(
        kind=result.kind, head=head, sections=sections, findings=findings(result.document),
        glossary=glossary(head, sections), shown=shown(result),
        version=str(result.document.get("headscan") or ""),
    )  # fmt: skip


def attempt(one: SectionOf, result: Result) -> list[Section]:
    """Its sections, or, where its function fails on this result, a sentence that says so: the others are shown still."""
    try:
        found = one.make(result)
        return found if isinstance(found, list) else [found] if found else []
    except FAULTS as error:
        logging.getLogger("headscan.report").warning("a section of the page failed", exc_info=True)
        title = one.make.__name__.replace("_", " ").capitalize()
        return [Section(title, parts=[Prose(f"This part cannot be shown ({type(error).__name__}: {error}).")])]


def glossary(head: Head, sections: list[Section]) -> list[Word]:
    """Every word that the head or a table's column explains, once, in order."""
    words = list(head.words)
    for found in sections:
        for part in found.parts:
            if isinstance(part, Table):
                words += [
                    Word(column.title, column.sentence, column.name, column.formula, column.unit)
                    for column in part.heads
                    if column.sentence
                ]
    return list({(word.name or word.title): word for word in reversed(words)}.values())[::-1]
