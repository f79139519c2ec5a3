"""The page of remedies: who finds its partner, what each remedy changes, how far a column drifted, what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Facts, Figure, Head, Line, Prose, Section, Table, Term, page, section
from headscan.report.kit.figures import empty
from headscan.report.kit.palette import depth_colours
from headscan.report.kit.words import literal, named

if TYPE_CHECKING:
    from headscan.remedies.result import RemedyResult

RECALL = Term(
    "recall@1", "Share of queries whose partner is the nearest of all items, by exact cosine.", name="recall_at_1",
    places=3, spread=True,
)  # fmt: skip
TEN = Term(
    "recall@10", "Share of queries whose partner is among the ten nearest.", name="recall_at_10", places=3, where="page"
)
GAIN = Term(
    "gain", "Change of recall@1 against the vectors as they are, paired by query; intervals hold for all remedies at once.",
    name="recall_at_1_gain", places=3, spread=True,
)  # fmt: skip
HUBS = Term(
    "hubness", "Skewness of how often an item is among the ten nearest of others: 0.32 by chance, high where hubs are.",
    name="hubness", places=2,
)  # fmt: skip
CONE = Term("cosine", "Average cosine over all pairs of items.", name="average_cosine", places=3)
SPEARMAN = Term(
    "Spearman",
    "Rank correlation of the cosines of scored pairs with people's scores.",
    name="spearman",
    places=3,
    where="page",
)


@page("remedy")
def remedies(result: RemedyResult) -> Head:
    """Whose vectors, fitted on how many."""
    said = (
        f"{len(result.about)} remedies for vectors of width {result.width:,} at {result.site}, fitted on {result.fitted:,} and "
        f"judged by {result.held_out:,} others."
    )
    return Head([f"Remedies for {named(result.models[0].name)}"], said)


@section("remedy", 10)
def gains(result: RemedyResult) -> list[Section] | None:
    """A table and a picture a set of pairs."""
    sets = [name for name in dict.fromkeys(row.text("pairs") for row in result.rows) if name]
    return [_set(result, name) for name in sets] or None


def _set(result: RemedyResult, name: str) -> Section:
    rows = [row for row in result.rows if row["pairs"] == name]
    columns = [RECALL, TEN, GAIN, HUBS, CONE, *([SPEARMAN] if rows[0].number("spearman") is not None else [])]
    lines = [
        Line(row.text("remedy"), [Cell(row.number(one.name), row.interval(one.name)) for one in columns])
        for row in rows
    ]
    lead = (
        f"{rows[0]['queries']:,} queries, each to find its partner among {rows[0]['items']:,} items; "
        "nothing was fitted on any of them."
    )

    def draw() -> go.Figure:
        shown = [row for row in rows if row.interval("recall_at_1_gain") is not None][::-1]
        figure = empty("gain in recall@1", "")
        values = [row.number("recall_at_1_gain") or 0.0 for row in shown]
        ends = [row.interval("recall_at_1_gain") or (0.0, 0.0) for row in shown]
        figure.add_scatter(
            x=values, y=[literal(row.text("remedy")) for row in shown], mode="markers", showlegend=False,
            marker={"color": depth_colours(1)[0][0], "size": 9},
            error_x={
                "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
                "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)], "thickness": 1.5, "width": 4,
            },
        )  # fmt: skip
        figure.add_vline(x=0, line={"width": 1, "dash": "dot"})
        return figure

    picture = Figure(
        f"gain-{name}", draw, f"Gain in recall@1 of {name}, a line a remedy, with intervals; 0 is the vectors as they are",
        "Intervals right of 0: the remedy helps. Paired by query, wide enough for all remedies at once.",
    )  # fmt: skip
    table = Table([Term("remedy"), *columns], lines, title=f"Who finds its partner: {name}")
    return Section(f"Retrieval: {name}", lead, [table, picture], name=f"retrieval-{name}".replace(" ", "-"))


@section("remedy", 20)
def shape(result: RemedyResult) -> Section | None:
    """Of vectors without pairs."""
    rows = [row for row in result.rows if not row["pairs"]]
    if not rows:
        return None
    columns = [HUBS, CONE]
    lines = [
        Line(row.text("remedy"), [Cell(row.number(one.name), row.interval(one.name)) for one in columns])
        for row in rows
    ]
    lead = "Of vectors that nothing was fitted on. Whether retrieval gains is not known without partners."
    return Section("Shape", lead, [Table([Term("remedy"), *columns], lines, title="Shape after each remedy")])


@section("remedy", 30)
def drifted(result: RemedyResult) -> Section | None:
    """From one version of a column to the other."""
    if not result.drift:
        return None
    value = Term("value", "With its 95 % interval by rows.", places=3, spread=True)
    lines = [Line(one.quantity, [Cell(one.value, one.interval), one.sentence]) for one in result.drift]
    table = Table([Term("quantity"), value, Term("what it is")], lines, title="Drift")
    return Section("Drift", "What changed between the two versions, on the rows held out.", [table])


@section("remedy", 40)
def written_files(result: RemedyResult) -> Section:
    """What was written, and each remedy in words."""
    parts: list[Facts | Prose] = [Facts("The remedies", list(result.about.items()), where="page")]
    if result.exported:
        parts.insert(0, Facts("Written", [(f"{one.remedy}, {one.format}", one.path) for one in result.exported]))
    else:
        parts.insert(0, Prose("No remedy was written: none was named, and none improves recall@1 for certain."))
    return Section("Written", "Remedy.load and RemedyTransformer.load read what is called dense.", parts)
