"""The registries of pages and of their sections, and how a page is put together from a result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headscan.report.kit import protocol
from headscan.report.kit.parts import Head, Page, Prose, Section, Table, Word
from headscan.run.registry import Registry

if TYPE_CHECKING:
    from headscan.run.result import Result

__all__ = ["PAGES", "SECTIONS", "SectionOf", "assemble", "page", "section"]

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
        kind=result.kind, head=head, sections=sections, findings=protocol.findings(result.document),
        glossary=glossary(head, sections), shown=protocol.shown(result),
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
