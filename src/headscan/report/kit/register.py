"""The registries of pages and of their sections, and how a page is put together from a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headscan.report.kit.parts import Head, Page, Prose, Section, Table
from headscan.report.kit.provenance import finding_lines, provenance
from headscan.run import Registry

if TYPE_CHECKING:
    from headscan.run.result import Result
    from headscan.run.vocabulary import Term

LOGGER = logging.getLogger("headscan.report")

Sections = Section | list[Section] | None
HeadMaker = TypeVar("HeadMaker", bound="Callable[[Any], Head]")
SectionMaker = TypeVar("SectionMaker", bound="Callable[[Any], Sections]")


@dataclass(frozen=True)
class SectionOf:
    """A registered section: the kind of page that it is of, its order there, and its function.

    The function returns None where there is nothing to show.
    """

    kind: str
    order: float
    make: Callable[[Any], Sections]


PAGES: Registry[Callable[[Any], Head]] = Registry("page", "headscan.report.pages")
SECTIONS: Registry[SectionOf] = Registry("section", "headscan.report.pages")


def page(kind: str) -> Callable[[HeadMaker], HeadMaker]:
    """Register the function that makes the head of every page of a kind: `f(result) -> Head`."""
    return PAGES.register(kind)


def section(kind: str, order: float) -> Callable[[SectionMaker], SectionMaker]:
    """Register a section of the pages of a kind: `f(result) -> Section | list[Section] | None`.

    Sections are shown in the order of `order`. The built-in sections have 10, 20, 30, ...; those of
    a plug-in may have any number between or after them.
    """

    def register(make: SectionMaker) -> SectionMaker:
        SECTIONS.add(f"{kind}.{make.__name__}", SectionOf(kind, order, make))
        return make

    return register


def assemble(result: Result) -> Page:
    """Return the page of a result; BadInput where there is no page of its kind."""
    head = _with_rounding(PAGES[result.kind](result), result)
    registered = [entry for entry in SECTIONS.values() if entry.kind == result.kind]
    registered.sort(key=lambda entry: entry.order)
    sections = []
    for entry in registered:
        for made in _sections(entry, result):
            sections.append(replace(made, name=made.name or entry.make.__name__))
    return Page(
        kind=result.kind,
        head=head,
        sections=sections,
        findings=finding_lines(result),
        glossary=glossary(head, sections),
        provenance=provenance(result),
        version=str(result.protocol.versions.get("headscan") or ""),
    )


def _with_rounding(head: Head, result: Result) -> Head:
    """Return the top of a page, which says of each model that its weights were rounded."""
    sentences = [
        f"{model.name}: {model.dequantised}" for model in result.models if model.dequantised
    ]
    return replace(head, subtitle=" ".join([head.subtitle, *sentences])) if sentences else head


def _sections(entry: SectionOf, result: Result) -> list[Section]:
    """Return the sections that a registered function makes.

    Where the function fails on this result, a sentence says so, and the other sections are still
    shown.
    """
    try:
        made = entry.make(result)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        LOGGER.warning("A section of the page failed (%s).", reason)
        LOGGER.debug("the section that failed", exc_info=True)
        title = entry.make.__name__.replace("_", " ").capitalize()
        return [Section(title, parts=[Prose(f"This part cannot be shown ({reason}).")])]
    if made is None:
        return []
    return made if isinstance(made, list) else [made]


def glossary(head: Head, sections: Sequence[Section]) -> list[Term]:
    """Return every term that the head or a table's column explains, once, in order."""
    terms = list(head.glossary)
    for chapter in sections:
        for part in chapter.parts:
            if isinstance(part, Table):
                terms += [term for term in part.terms if term.sentence]
    # Of terms with the same name the first is explained, at the position of the last.
    by_name: dict[str, Term] = {}
    for term in reversed(terms):
        by_name[term.name or term.title] = term
    # A column and a measure with the same words are one.
    by_words = {(term.title, term.sentence): term for term in reversed(by_name.values())}
    return list(by_words.values())
