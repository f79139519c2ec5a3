"""The page of remedies: who finds its partner, what each remedy changes, how far a column drifted,
what was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Term, page, section, table
from headscan.report.kit.figures import empty
from headscan.report.kit.palette import depth_colours
from headscan.report.kit.words import literal, named
from headscan.run import Row

if TYPE_CHECKING:
    from headscan.remedies.result import RemedyResult

TERMS = {
    "remedy": Term("remedy"),
    "recall_at_1": Term(
        "recall@1",
        "Share of queries whose partner is nearest, by exact cosine.",
        places=3,
        spread=True,
    ),
    "recall_at_10": Term(
        "recall@10",
        "Share of queries whose partner is among the ten nearest.",
        places=3,
        where="page",
    ),
    "recall_at_1_gain": Term(
        "gain",
        "Change of recall@1 against the vectors as they are, paired by query; intervals hold for "
        "all remedies at once.",
        places=3,
        spread=True,
    ),
    "hubness": Term(
        "hubness",
        "Skewness of how often an item is among the ten nearest of others: 0.32 by chance, high "
        "where hubs are.",
        places=2,
    ),
    "average_cosine": Term("cosine", "Average cosine over all pairs of items.", places=3),
    "spearman": Term(
        "Spearman",
        "Rank correlation of the cosines of scored pairs with people's scores.",
        places=3,
        where="page",
    ),
}


@page("remedy")
def remedies(result: RemedyResult) -> Head:
    said = (
        f"{len(result.about)} remedies for vectors of width {result.width:,} at {result.site}, "
        f"fitted on {result.fitted:,} "
    )
    said += f"and judged by {result.held_out:,} others."
    return Head([f"Remedies for {named(result.models[0].name)}"], said)


@section("remedy", 10)
def gains(result: RemedyResult) -> list[Section] | None:
    """A table and a picture a set of pairs."""
    sets = [name for name in dict.fromkeys(row.text("pairs") for row in result.rows) if name]
    return [
        _set(name, [row for row in result.rows if row["pairs"] == name]) for name in sets
    ] or None


def _set(name: str, rows: list[Row]) -> Section:
    def draw() -> go.Figure:
        shown = [
            (row.text("remedy"), row.number(GAIN) or 0.0, ends)
            for row in rows[::-1]
            if (ends := row.interval(GAIN))
        ]
        figure = empty("gain in recall@1", "")
        figure.add_scatter(
            x=[value for _, value, _ in shown],
            y=[literal(remedy) for remedy, *_ in shown],
            mode="markers",
            showlegend=False,
            marker={"color": depth_colours(1)[0][0], "size": 9},
            error_x={
                "array": [high - value for _, value, (_, high) in shown],
                "arrayminus": [value - low for _, value, (low, _) in shown],
                "thickness": 1.5,
                "width": 4,
            },
        )
        figure.add_vline(x=0, line={"width": 1, "dash": "dot"})
        return figure

    scored = ["spearman"] * (rows[0].number("spearman") is not None)
    columns = ("recall_at_1", "recall_at_10", GAIN, "hubness", "average_cosine", *scored)
    lead = (
        f"{rows[0]['queries']:,} queries, each to find its partner among {rows[0]['items']:,} "
        "items; nothing was fitted on "
    )
    lead += "any of them."
    picture = Figure(
        f"gain-{name}",
        draw,
        f"Gain in recall@1 of {name}, a line a remedy, with intervals; 0 is the vectors as they "
        "are",
        "Intervals right of 0: the remedy helps. Paired by query, wide enough for all remedies at "
        "once.",
    )
    shown = table(rows, "remedy", *columns, terms=TERMS, title=f"Who finds its partner: {name}")
    return Section(
        f"Retrieval: {name}", lead, [shown, picture], name=f"retrieval-{name}".replace(" ", "-")
    )


GAIN = "recall_at_1_gain"


@section("remedy", 20)
def shape(result: RemedyResult) -> Section | None:
    """Of vectors without pairs."""
    rows = [row for row in result.rows if not row["pairs"]]
    lead = (
        "Of vectors that nothing was fitted on. Whether retrieval gains is not known without "
        "partners."
    )
    shown = table(
        rows, "remedy", "hubness", "average_cosine", terms=TERMS, title="Shape after each remedy"
    )
    return Section("Shape", lead, [shown]) if rows else None


@section("remedy", 30)
def drifted(result: RemedyResult) -> Section | None:
    """From one version of a column to the other."""
    shown = table(
        result.drift,
        "quantity",
        "value",
        (Term("what it is"), lambda one: one.sentence),
        title="Drift",
        terms={"value": Term("value", "With its 95 % interval by rows.", places=3, spread=True)},
    )
    return (
        Section("Drift", "What changed between the two versions, on the rows held out.", [shown])
        if result.drift
        else None
    )


@section("remedy", 40)
def written_files(result: RemedyResult) -> Section:
    """What was written, and each remedy in words."""
    about = Facts("The remedies", list(result.about.items()), where="page")
    written: Facts | Prose = Prose(
        "No remedy was written: none was named, and none improves recall@1 for certain."
    )
    if result.exported:
        written = Facts(
            "Written", [(f"{one.remedy}, {one.format}", one.path) for one in result.exported]
        )
    return Section(
        "Written",
        "Remedy.load and RemedyTransformer.load read what is called dense.",
        [written, about],
    )
