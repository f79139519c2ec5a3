"""The page of remedies: retrieval with each remedy, drift of a column, the files written."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.remedies.judge import best_of
from headscan.report.kit import Facts, Figure, Head, Prose, Section, Term, page, section, table
from headscan.report.kit.figures import dots
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan.remedies.result import RemedyResult
    from headscan.run import Row

GAIN = "recall_at_1_gain"
DENSE = "dense"
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
    GAIN: Term(
        "gain",
        "Change of recall@1 against the vectors as they are, paired by query; intervals hold for "
        "all remedies at once.",
        places=3,
        spread=True,
    ),
    "ndcg_at_10": Term(
        "nDCG@10",
        "Graded relevance of the ten nearest documents, discounted by rank; 1 is the best order.",
        places=3,
        spread=True,
    ),
    "mrr": Term(
        "MRR", "Mean reciprocal rank of the first relevant document.", places=3, where="page"
    ),
    "ndcg_at_10_gain": Term(
        "gain",
        "Change of nDCG@10 against the vectors as they are, paired by query; intervals hold for "
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
COMPRESSION_TERMS = TERMS | {
    "compression": Term("compression"),
    "bytes": Term("bytes", "Bytes a vector.", places=0),
    "dimensions": Term("dimensions", "Dimensions after the map.", places=0, where="page"),
    "neighbours_kept": Term(
        "neighbours kept",
        "Share of a vector's ten nearest by exact cosine that are still among the ten nearest.",
        places=3,
    ),
    "encode_rate": Term(
        "compressed a second",
        "Vectors that one processor of this machine compresses in a second.",
        places=0,
        where="page",
    ),
    "search_rate": Term(
        "searched a second",
        "Compressed vectors that one processor of this machine scores for a query in a second, "
        "with numpy.",
        places=0,
        where="page",
    ),
}
DRIFT_TERMS = {
    "value": Term("value", "With its 95 % interval by rows.", places=3, spread=True),
}


@page("remedy")
def remedies(result: RemedyResult) -> Head:
    """Return how many remedies were fitted, on what, and how they were judged."""
    sentence = (
        f"{len(result.about)} remedies for vectors of width {result.width:,} at {result.site}, "
        f"fitted on {result.fitted:,} and judged by {result.held_out:,} others."
    )
    name = named(result.models[0].name)
    return Head([f"Remedies for {name}"], sentence, conclusion=_conclusion(result))


def _conclusion(result: RemedyResult) -> str:
    """Name the remedy with the largest significant gain, and how it is applied; or say none has."""
    if not any(row.number(GAIN) is not None for row in result.rows):
        return "Whether a remedy improves retrieval needs partners: give --pairs or --partners."
    remedy = best_of(result.rows)
    if remedy is None:
        return "No remedy improves recall@1 significantly: use the vectors as they are."
    row = result.row(remedy)
    low, high = row.interval(GAIN) or (float("nan"), float("nan"))
    paths = [file.path for file in result.exported if (file.remedy, file.format) == (remedy, DENSE)]
    how = f"write it with --export {remedy}."
    if paths:
        how = f"apply it with headscan.remedies.Remedy.load({paths[0]!r})(vectors)."
    gain = row.number(GAIN) or 0.0
    return f"{remedy} raises recall@1 by {gain:.3f} [{low:.3f}, {high:.3f}]: {how}"


@section("remedy", 10)
def gains(result: RemedyResult) -> list[Section] | None:
    """Return a table and a picture for each set of pairs; None where there are no pairs."""
    sections = []
    for name in dict.fromkeys(row.text("pairs") for row in result.rows):
        if name:
            rows = [row for row in result.rows if row["pairs"] == name]
            sections.append(_retrieval(name, rows))
    return sections or None


def _retrieval(name: str, rows: list[Row]) -> Section:
    """Return how often queries of a set of pairs find their partner with each remedy."""
    number = "ndcg_at_10" if "ndcg_at_10" in rows[0] else "recall_at_1"
    columns = ["recall_at_1", "recall_at_10", GAIN, "hubness", "average_cosine"]
    terms = TERMS
    if number == "ndcg_at_10":
        columns[2:3] = ["ndcg_at_10", "mrr", f"{number}_gain"]
        terms = TERMS | {"recall_at_1": replace(TERMS["recall_at_1"], where="page")}
    if rows[0].number("spearman") is not None:
        columns.append("spearman")
    numbers = table(
        rows, "remedy", *columns, terms=terms, title=f"Queries that find their partner: {name}"
    )
    figure = Figure(
        f"gain-{name}",
        partial(_gains, rows, TERMS[number].title, f"{number}_gain"),
        f"Gain in {TERMS[number].title} of {name}, a line a remedy, with intervals; 0 is the "
        "vectors as they are",
        "Intervals right of 0: the remedy helps. Paired by query, wide enough for all remedies at "
        "once.",
    )
    lead = (
        f"{rows[0]['queries']:,} queries search among {rows[0]['items']:,} items; nothing was "
        "fitted on the queries."
    )
    anchor = f"retrieval-{name}".replace(" ", "-")
    return Section(f"Retrieval: {name}", lead, [numbers, figure], name=anchor)


def _gains(rows: list[Row], title: str, gain: str) -> go.Figure:
    """Return the gain of each remedy with its interval, the first remedy on top."""
    measured = [row for row in rows if row.interval(gain) is not None]
    values = {row.text("remedy"): row.number(gain) or 0.0 for row in measured}
    figure = dots(values, [row.interval(gain) for row in measured], f"gain in {title}")
    return figure.add_vline(x=0, line={"width": 1, "dash": "dot"})


@section("remedy", 15)
def compressed(result: RemedyResult) -> list[Section] | None:
    """Return what each compression loses on each set of pairs; None where none was tried."""
    sections = []
    for name in dict.fromkeys(row.text("pairs") for row in result.compressed):
        rows = [row for row in result.compressed if row["pairs"] == name]
        columns = ["bytes", "dimensions"]
        for number in ("recall_at_1", "recall_at_1_gain", "ndcg_at_10", "ndcg_at_10_gain"):
            if any(number in row for row in rows):
                columns.append(number)
        columns += ["neighbours_kept", "encode_rate", "search_rate"]
        title = f"Compressions: {name}" if name else "Compressions"
        numbers = table(rows, "compression", *columns, terms=COMPRESSION_TERMS, title=title)
        lead = (
            f"{result.recommended} finds most in so many bytes. Each has as many dimensions as "
            "fit; documents are compressed, queries are not."
        )
        sections.append(Section(title, lead, [numbers], name=title.replace(" ", "-")))
    return sections or None


@section("remedy", 20)
def shape(result: RemedyResult) -> Section | None:
    """Return the shape of vectors that have no pairs."""
    rows = [row for row in result.rows if not row["pairs"]]
    if not rows:
        return None
    numbers = table(
        rows, "remedy", "hubness", "average_cosine", terms=TERMS, title="Shape after each remedy"
    )
    lead = (
        "Nothing was fitted on these vectors. They have no partners, so it is not known whether "
        "retrieval gains."
    )
    return Section("Shape", lead, [numbers])


@section("remedy", 30)
def drifted(result: RemedyResult) -> Section | None:
    """Return what changed from one version of a column to the other."""
    if not result.drift:
        return None
    meaning = Term("what it is"), lambda row: row.sentence
    numbers = table(result.drift, "quantity", "value", meaning, title="Drift", terms=DRIFT_TERMS)
    lead = "The table shows what changed between the two versions, on the rows held out."
    return Section("Drift", lead, [numbers])


@section("remedy", 40)
def written_files(result: RemedyResult) -> Section:
    """Return the files that were written, and each remedy in words."""
    files: Facts | Prose
    if result.exported:
        rows = [(f"{export.remedy}, {export.format}", export.path) for export in result.exported]
        files = Facts("Written", rows)
    else:
        files = Prose(
            "No remedy was written: none was named, and none improves recall@1 significantly."
        )
    about = Facts("The remedies", list(result.about.items()), where="page")
    lead = "Remedy.load and RemedyTransformer.load read what is called dense."
    return Section("Written", lead, [files, about])
