"""The page of the ledger: claims of the literature and what came of them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Head, Prose, Raw, Section, Table, Term, page, palette, section
from headscan.report.kit.figures import empty
from headscan.report.kit.words import number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.run import Interval
    from headscan_lab.ledger.figures import RedrawnFigure
    from headscan_lab.ledger.record import ClaimRecord
    from headscan_lab.ledger.run import ReproduceResult


SIGNS = {"holds here": "●", "fails here": "○", "artefact": "◐", "undecided": "◌", "about a larger model": "↗"}
"""A sign a verdict, so that no verdict is told by colour or words alone."""

MEANINGS = {
    "holds here": "The interval of the effect lies within the values that would count, on the stand-ins.",
    "fails here": "It lies outside.",
    "artefact": "The effect was seen here, and a control showed another cause than the one claimed.",
    "undecided": "The interval crosses a bound, the control did not settle it, or nothing here measures it yet.",
    "about a larger model": "A model is named that is not run here: the tendency of stand-ins is shown, and the command.",
}


@page("reproduce")
def head(result: ReproduceResult) -> Head:
    """How many claims there are, and what the verdicts mean."""
    count = len(result.claims)
    if not count and not result.figures:
        raise BadInput("The result is no ledger: it has no claims.")
    if not count:
        return Head(["Figures"], f"{len(result.figures)} figures of a document, redrawn from runs of our own.")
    said = f"{count} {'claim' if count == 1 else 'claims'} of the literature, each under a protocol written before it was run."
    found = {row.verdict for row in result.claims}
    return Head(["The ledger"], said, words=[Term(name, MEANINGS[name]) for name in SIGNS if name in found])


@section("reproduce", 10)
def verdicts(result: ReproduceResult) -> Section | None:
    """How many claims of each document have which verdict."""
    if not result.claims:
        return None
    documents = list(dict.fromkeys(row.document for row in result.claims))
    counts: Counter[tuple[str, str]] = Counter((row.document, row.verdict) for row in result.claims)

    def draw() -> go.Figure:
        figure = empty("claims")
        for index, verdict in enumerate(SIGNS):
            heights = [counts[document, verdict] for document in documents]
            if any(heights):
                figure.add_bar(
                    y=documents, x=heights, orientation="h", name=f"{SIGNS[verdict]} {verdict}",
                    marker={"color": palette.model_colour((2, 4, 1, 3, 0)[index])}, text=[height or "" for height in heights],
                    hovertemplate="%{x} " + verdict + "<extra></extra>", cliponaxis=False,
                )  # fmt: skip
        figure.update_layout(barmode="stack", legend={"traceorder": "normal"}, showlegend=True)
        figure.update_xaxes(showgrid=True)
        figure.update_yaxes(showgrid=False, autorange="reversed")
        return figure

    alt = "Number of claims of each document with each verdict"
    given = Table(
        ["claim", Term("model"), Term("verdict"), Term("effect"), "prompts", Term("statement"), Term("why", where="page")],
        [
            (row.id, trial.model, f"{SIGNS[trial.tendency]} {trial.tendency}" if trial.tendency else "not tried",
             _cell(trial.effect, trial.interval), trial.prompts, row.statement, trial.why)
            for row in result.claims for trial in row.trials
        ],
        "On the models that were given",
    )  # fmt: skip
    table = Table(
        ["claim", Term("verdict"), Term("statement"), Term("why")],
        [(row.id, f"{SIGNS[row.verdict]} {row.verdict}", row.statement, row.why) for row in result.claims],
        "On the stand-ins" if given.lines else "",
        where="terminal",
    )
    drawn = Figure("verdicts", draw, alt, "Claims by document and verdict.", 90 + 90 * len(documents))
    parts = [given] if given.lines else []
    return Section(
        "Verdicts", "Each is of what was run here; a tendency is no verdict on a larger model.", [*parts, drawn, table]
    )


@section("reproduce", 20)
def claims(result: ReproduceResult) -> Section | None:
    """Every claim under its document: what was said and of what, the verdict, the evidence, the protocol."""
    if not result.claims:
        return None
    counts: Counter[str] = Counter(row.verdict for row in result.claims)
    documents: dict[str, list[dict[str, object]]] = {}
    for row in result.claims:
        documents.setdefault(TITLES[row.document], []).append(entry(row))
    context = {
        "all": len(result.claims), "documents": documents,
        "counts": [(name, slug(name), sign, counts[name]) for name, sign in SIGNS.items() if counts[name]],
    }  # fmt: skip
    table = Table(
        [
            "claim", Term("verdict"), Term("tendency"), "effect", "prompts", "seeds",
            Term("processor seconds"), Term("statement"),
        ],
        [
            (row.id, row.verdict, row.tendency or "", _cell(row.effect, row.interval), row.prompts, row.seeds, row.seconds,
             row.statement)
            for row in result.claims
        ],
        "All verdicts as a table", folded=True, where="page",
    )  # fmt: skip
    ledger = Raw("reproduce_claims.html.j2", context, styles=["reproduce.css"])
    return Section("Claims", "Each with its verdict, the evidence for and against, and its protocol.", [ledger, table])


TITLES = {
    "slides": "Slides: Language models have cone-shaped heads",
    "paper": "Paper: the implicit geometry of next-token prediction",
    "article": "Article: Language modeling and discrete encodings",
    "field": "Field: what is held of leaked states",
}


def entry(row: ClaimRecord) -> dict[str, object]:
    """One claim as the template prints it."""
    tendency = row.tendency if row.verdict == "about a larger model" else None
    return {
        "id": row.id, "statement": row.statement, "verdict": row.verdict, "slug": slug(row.verdict), "sign": SIGNS[row.verdict],
        "tendency": tendency, "why": row.why, "command": row.command,
        "about": f"{row.place.rstrip('.')}. Of {row.model}" + (f", on {row.data}." if row.data else "."),
        "more": more(row),
        "evidence": [
            (one.side, one.name, _cell(one.value, one.interval), "" if one.chance is None else number(one.chance),
             ", ".join(f"{n:,} {what}" for n, what in
                       ((one.tokens, "tokens"), (one.prompts, "prompts"), (one.seeds, "seeds")) if n))
            for one in row.evidence
        ],
        "stand_ins": [(one.name, one.why) for one in row.stand_ins],
        "trials": [(one.model, one.tendency or "not tried", one.why) for one in row.trials],
        "protocol": [(name, words) for name, words in protocol(row) if words],
    }  # fmt: skip


def protocol(row: ClaimRecord) -> list[tuple[str, str]]:
    """What was fixed before the run, as words."""
    needs = f"at least {row.needs.seeds} seeds and {row.needs.tokens} tokens" if row.needs is not None else ""
    return [
        ("quantity", row.quantity), ("would count", str(row.counts or "")),
        ("another cause, if the control is", str(row.control or "")), ("test", row.test), ("scope", row.scope),
        ("power", needs), ("models run", "; ".join(row.models)),
        ("processor seconds", number(row.seconds) if row.quantity else ""),
    ]  # fmt: skip


def more(row: ClaimRecord) -> str:
    """How many more samples would decide, of what is undecided."""
    if row.more is None:
        return ""
    return f"At the effect seen, {row.more:,} more {'prompts' if row.prompts else 'seeds'} would decide."


def _cell(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return ""
    if interval is None or interval[0] == interval[1]:
        return number(value)
    return f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


def slug(verdict: str) -> str:
    """A verdict as a CSS class."""
    return verdict.replace(" ", "-")


# ---- The ledger's page: figures of a document redrawn, beside what was published.


@section("reproduce", 30)
def redrawn_figures(result: ReproduceResult) -> Section | None:
    """Each figure with the document's own words on it; those that are not redrawn are told with the reason."""
    if not result.figures:
        return None
    parts: list[Prose | Figure | Table] = []
    for one in result.figures:
        if one.curves:
            parts.append(Prose(f"{one.place}. Published: {one.published}"))
            parts.append(Figure(one.id, partial(drawn, one), one.title, f"{one.title}, redrawn."))
    left = [one for one in result.figures if not one.curves]
    rows = [(one.title, one.place, one.published, one.why_not) for one in left]
    if rows:
        heads = [Term(name) for name in ("figure", "place", "published", "why it is not redrawn")]
        parts.append(Table(heads, rows, "Figures that are not redrawn"))
    return Section("Figures", "From runs of our own, beside what was published.", parts)


def drawn(one: RedrawnFigure) -> go.Figure:
    """The curves of a figure; bars where they stand at names."""
    figure = empty(one.up)
    for index, curve in enumerate(one.curves):
        colour = palette.model_colour(index)
        if curve.at and isinstance(curve.at[0], str):
            figure.add_bar(x=curve.at, y=curve.values, name=curve.name, marker={"color": colour})
        else:
            figure.add_scatter(x=curve.at, y=curve.values, name=curve.name, mode="lines+markers", line={"color": colour})
    figure.update_layout(showlegend=len(one.curves) > 1)
    figure.update_xaxes(title=one.across, type="log" if "x" in one.log else None)
    figure.update_yaxes(title=one.up, type="log" if "y" in one.log else None)
    return figure
