"""What was learnt about the documents: sentences that rest on claims, and are said only where those bear them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from headscan.claims.protocol import DocumentName, Tendency

__all__ = ["LESSONS", "Lesson", "learnt_of"]

ENOUGH = 0.8
"""The share of a sentence's claims that must have come out as it says."""


@dataclass(frozen=True)
class Lesson:
    """A clause `said` of a document, true where the `claims` it rests on came out with this `tendency`."""

    document: DocumentName
    tendency: Tendency
    claims: tuple[int, ...]
    said: str


LESSONS = (
    Lesson(
        "slides", "holds here", (205, 206),
        "words are as Zipfian as the slides say, and most states push most of them away",
    ),
    Lesson(
        "slides", "fails here", (203, 204, 209, 210),
        "but the last states of small models lie in no cone that headless training could widen",
    ),
    Lesson(
        "slides", "holds here", (208, 211, 212),
        "headless training does lead a state to the next word's embedding, in less time and memory",
    ),
    Lesson(
        "paper", "holds here", (402, 405, 406, 409, 410, 411, 416, 417, 418, 419),
        "where features are free, the solution, the path to it and the collapse are what the theory says",
    ),
    Lesson(
        "paper", "fails here", (401, 403, 404, 421),
        "four formulas are not true as they are printed",
    ),
    Lesson(
        "paper", "fails here", (415,),
        "a small transformer on stories stays well away from the geometry predicted for it",
    ),
    Lesson(
        "article", "artefact", (75, 77, 78, 80, 82, 83, 84, 85, 87, 89, 92, 94, 99, 102, 103, 106, 107, 108, 109),
        "that a token is lost where its output is hidden is a failure of the descent: a search of the same outputs finds it",
    ),
    Lesson(
        "article", "fails here", (1, 2, 34, 35, 36, 37, 38, 39, 41, 71),
        "the published descent gives back less of a small trained model's prompts than it is said to of large ones",
    ),
    Lesson(
        "article", "fails here", (15,),
        "the pseudo-inverse of a random embedding does invert it",
    ),
    Lesson(
        "article", "fails here", (127,),
        "in a family of 40 small trained models the wider do not give more of their input back",
    ),
    Lesson(
        "field", "fails here", (301, 302, 303),
        "neither depth nor four bits nor a little noise protects a small model's text",
    ),
)  # fmt: skip


def learnt_of(document: DocumentName, tendencies: Mapping[int, Tendency]) -> list[str]:
    """The sentences of a document that these tendencies of claims bear out, each with how many claims do.

    >>> learnt_of("field", {301: "fails here", 302: "fails here", 303: "fails here"})
    ["neither depth nor four bits nor a little noise protects a small model's text (3 of 3: 301-303)"]
    >>> learnt_of("field", {301: "holds here", 302: "fails here", 303: "fails here"})
    []
    """
    found = []
    for lesson in LESSONS:
        borne = [number for number in lesson.claims if tendencies.get(number) == lesson.tendency]
        if lesson.document == document and len(borne) >= ENOUGH * len(lesson.claims):
            found.append(f"{lesson.said} ({len(borne)} of {len(lesson.claims)}: {_ranges(borne)})")
    return found


def _ranges(numbers: list[int]) -> str:
    """Numbers in order, neighbours as ranges."""
    cuts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(numbers)) if b != a + 1), len(numbers)]
    parts = [numbers[a:b] for a, b in pairwise(cuts)]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
