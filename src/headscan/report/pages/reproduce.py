"""The page of the ledger: claims of the literature and what came of them."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Column, Figure, Head, Raw, Section, Table, Word, page, palette, section
from headscan.report.kit.figures import empty
from headscan.report.kit.words import literal, number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.claims.ledger import ClaimRecord, ReproduceResult
    from headscan.run import Json

__all__ = ["claims", "head", "verdicts"]

SIGNS = {"reproduced": "●", "artefact": "◐", "not reproduced": "○", "needs a larger model": "↗"}
"""A sign a verdict, so that no verdict is told by colour or words alone."""

MEANINGS = {
    "reproduced": "What was said is what the experiment shows.",
    "artefact": "What was seen is seen again, but means something else than was claimed.",
    "not reproduced": "The experiment shows something else.",
    "needs a larger model": "Small models cannot decide it; the command that runs the original is beside the claim.",
}

COMMAND = " The original: "
"""What parts the reason from the command that runs the experiment on the source's own model."""


@page("reproduce")
def head(result: ReproduceResult) -> Head:
    """How many claims there are, and what the verdicts mean."""
    count = len(result.claims)
    if not count:
        raise BadInput("The result is no ledger: it has no claims.")
    said = f"{count} {'claim' if count == 1 else 'claims'} of the literature, run as experiments on small models."
    found = {row.outcome for row in result.claims}
    return Head(["The ledger"], said, words=[Word(name, MEANINGS[name]) for name in SIGNS if name in found])


@section("reproduce", 10)
def verdicts(result: ReproduceResult) -> Section:
    """How many claims of each source have which verdict."""
    sources = list(dict.fromkeys(publication(row.source) for row in result.claims))
    counts: Counter[tuple[str, str]] = Counter((publication(row.source), row.outcome) for row in result.claims)

    def draw() -> go.Figure:
        figure = empty("claims")
        for index, outcome in enumerate(SIGNS):
            heights = [counts[source, outcome] for source in sources]
            if any(heights):
                figure.add_bar(
                    y=[wrapped(source) for source in sources], x=heights, orientation="h", name=f"{SIGNS[outcome]} {outcome}",
                    marker={"color": palette.model_colour((2, 4, 1, 0)[index])}, text=[height or "" for height in heights],
                    hovertemplate="%{x} " + outcome + "<extra></extra>", cliponaxis=False,
                )  # fmt: skip
        figure.update_layout(barmode="stack", legend={"traceorder": "normal"}, showlegend=True)
        figure.update_xaxes(showgrid=True)
        figure.update_yaxes(showgrid=False, autorange="reversed")
        return figure

    alt = "Number of claims of each source with each verdict"
    table = Table(
        ["claim", Column("verdict", text=True), Column("statement", text=True), Column("why", text=True)],
        [(row.number, f"{SIGNS[row.outcome]} {row.outcome}", row.statement, row.why) for row in result.claims],
        where="terminal",
    )
    drawn = Figure("verdicts", draw, alt, "Claims by source and verdict.", 90 + 90 * len(sources))
    return Section("Verdicts", "An artefact is seen again, but means something else than was claimed.", [drawn, table])


@section("reproduce", 20)
def claims(result: ReproduceResult) -> Section:
    """Every claim under its source, with what was measured, and a filter by verdict."""
    counts: Counter[str] = Counter(row.outcome for row in result.claims)
    sources: dict[str, list[dict[str, object]]] = {}
    for row in result.claims:
        sources.setdefault(publication(row.source), []).append(entry(row))
    context = {
        "all": len(result.claims), "sources": sources,
        "counts": [(name, slug(name), sign, counts[name]) for name, sign in SIGNS.items() if counts[name]],
    }  # fmt: skip
    table = Table(
        ["claim", Column("verdict", text=True), Column("processor seconds"), Column("statement", text=True)],
        [(row.number, row.outcome, row.seconds, row.statement) for row in result.claims],
        "All verdicts as a table", folded=True, where="page",
    )  # fmt: skip
    ledger = Raw("reproduce_claims.html.j2", context, styles=["reproduce.css"])
    return Section("Claims", "Each with its verdict, the reason, and what was measured.", [ledger, table])


def entry(row: ClaimRecord) -> dict[str, object]:
    """One claim as the template prints it: the command parted from the reason, what was measured as words."""
    why, _, command = row.why.partition(COMMAND)
    return {
        "number": row.number, "statement": row.statement, "outcome": row.outcome, "slug": slug(row.outcome),
        "sign": SIGNS[row.outcome], "why": why, "command": command, "seconds": number(row.seconds),
        "measured": [(name.replace("_", " "), value(found)) for name, found in row.measured.items()],
    }  # fmt: skip


def value(found: Json) -> str:
    """A measured value in words: numbers short, lists and tables spelled out."""
    if isinstance(found, dict):
        return ", ".join(f"{name}: {value(item)}" for name, item in found.items())
    if isinstance(found, list):
        return ", ".join(map(value, found))
    if isinstance(found, bool):
        return "yes" if found else "no"
    return found if isinstance(found, str) else number(found)


def publication(source: str) -> str:
    """The source without the place in it.

    >>> publication("Zhao 2024, arXiv:2408.15417, Sec. 5")
    'Zhao 2024, arXiv:2408.15417'
    """
    return re.sub(r", (Sec|App)\. .*", "", source)


def slug(outcome: str) -> str:
    """A verdict as a CSS class."""
    return outcome.replace(" ", "-")


def wrapped(source: str, width: int = 24) -> str:
    """A source's name over as many short lines as an axis label can take."""
    return "<br>".join(literal(line) for line in textwrap.wrap(source, width))
