"""The page of the ledger: claims of the literature and what came of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import empty
from headscan.report.kit.words import literal, number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.run import Interval
    from headscan_lab.ledger.figures import RedrawnFigure
    from headscan_lab.ledger.record import ClaimRecord, StatementRecord, StatementVerdict
    from headscan_lab.ledger.run import ReproduceResult


SIGNS = {
    "supported": "●",
    "refuted": "○",
    "confounded": "◐",
    "misprint": "✎",
    "mixed": "◑",
    "undecided": "◌",
    "not tested": "↗",
}
"""A sign a word, so that no verdict is told by colour or words alone."""

MEANINGS = {
    "supported": "The interval of the effect lies within the values that would count.",
    "refuted": "It lies outside.",
    "confounded": "The effect was seen here, and a control showed another cause than the one "
    "claimed.",
    "misprint": "A formula is not true as it is printed; the corrected one stands beside it.",
    "mixed": "Claims or models differ.",
    "undecided": "The interval crosses a bound, the control did not settle it, or nothing here "
    "measures it yet.",
    "not tested": "A model is named and none of its family is run here: the tendency of stand-ins "
    "is shown, and the command.",
}


@page("reproduce")
def head(result: ReproduceResult) -> Head:
    """How many claims there are, and what the verdicts mean."""
    count = len(result.claims)
    if not count and not result.figures:
        raise BadInput("The result is no ledger: it has no claims.")
    if not count:
        return Head(
            ["Figures"],
            f"{len(result.figures)} figures of a document, redrawn from runs of our own.",
        )
    said = (
        f"{count} {'claim' if count == 1 else 'claims'} of the literature, each under a protocol "
        "written before it was run."
    )
    found = {row.verdict for row in result.claims} | {row.verdict for row in result.statements}
    found |= {one.tendency for row in result.claims for one in row.trials if one.tendency}
    words = [Term(name, MEANINGS[name]) for name in MEANINGS if name in found]
    return Head(
        ["The ledger"],
        f"{said} {summary(result.statements)}" if result.statements else said,
        glossary=words,
    )


def summary(found: list[StatementRecord]) -> str:
    """How many statements have which verdict, and on how many models."""
    count: Counter[str] = Counter(one.verdict for one in found)
    models = list(dict.fromkeys(each.model for one in found for each in one.models))
    on_two = sum(
        sum(not m.proxy and m.verdict not in ("undecided", "not tested") for m in one.models) > 1
        for one in found
    )
    parts = ", ".join(f"{count[word]} {word}" for word in SIGNS if count[word])
    return (
        f"{len(found)} statement{'s' * (len(found) != 1)}, tried on "
        f"{' and '.join([', '.join(models[:-1]), models[-1]] if len(models) > 1 else models)}: "
        f"{parts}. Decided: {len(found) - count['undecided'] - count['not tested']}, of these on "
        f"two models or more: {on_two}."
    )


def shown(said: StatementVerdict, *, signs: bool = False) -> str:
    """A model's word or its sign, with the cells where they differ; in brackets where it only
    suggests.

    >>> from headscan_lab.ledger.record import StatementVerdict
    >>> shown(StatementVerdict(model="m", verdict="mixed", cells={"supported": 2, "refuted": 1}, proxy=True))
    '(mixed: 2 supported, 1 refuted)'
    """
    if not said.cells:
        return ""
    name = SIGNS.__getitem__ if signs else str
    cells = (
        ": " + ", ".join(f"{number} {name(word)}" for word, number in said.cells.items())
        if said.verdict == "mixed"
        else ""
    )
    return bracketed(name(said.verdict) + cells, said.proxy)


def bracketed(words: str, proxy: bool) -> str:
    """Words of a verdict, in brackets where another model than the one named was run."""
    return f"({words})" if proxy else words


@section("reproduce", 5)
def by_model(result: ReproduceResult) -> Section | None:
    """A picture a document, statements by verdict and model, and the table behind them."""
    found = result.statements
    if len(found) < 2:
        return None
    models = list(dict.fromkeys(each.model for one in found for each in one.models))
    said = {(one.id, each.model): each for one in found for each in one.models if each.cells}

    def draw(ids: list[str]) -> go.Figure:
        figure = empty("statement")
        for place, word in enumerate(SIGNS):
            spots = [
                (key, model)
                for (key, model), each in said.items()
                if key in ids and each.verdict == word
            ]
            if spots:
                figure.add_scatter(
                    x=[key for key, _ in spots],
                    y=[literal(model) for _, model in spots],
                    mode="text",
                    name=word,
                    text=[
                        f"({SIGNS[word]})" if said[spot].proxy else SIGNS[word] for spot in spots
                    ],
                    textfont={"size": 15, "color": palette.model_colour(PLACES[place])},
                    hovertext=[
                        f"{key}, {literal(model)}: {shown(said[key, model])}"
                        for key, model in spots
                    ],
                    hoverinfo="text",
                    showlegend=False,
                )
        figure.update_xaxes(type="category", categoryarray=ids, tickangle=-90, dtick=1)
        figure.update_yaxes(
            type="category", categoryarray=[literal(one) for one in models], autorange="reversed"
        )
        return figure

    signs = (
        ", ".join(f"{SIGNS[word]} {word}" for word in SIGNS)
        + "; in brackets: of another family, which only suggests."
    )
    columns = [
        Term("statement"),
        Term("verdict"),
        Term("what is said"),
        *(Term(model, where="page") for model in models),
        Term("control", where="page"),
        Term("claims", where="page"),
    ]
    rows = [
        (
            one.id,
            f"{SIGNS[one.verdict]} {one.verdict}",
            one.statement,
            *(
                shown(said[one.id, model], signs=True) if (one.id, model) in said else ""
                for model in models
            ),
            one.controls,
            ", ".join(map(str, one.instances)),
        )
        for one in found
    ]
    pictures = [
        Figure(
            f"statements-{name}",
            partial(draw, [one.id for one in some]),
            f"{TITLES[name]}, by statement and model",
            f"{TITLES[name]}. {signs if name == found[0].document else 'Signs as in the first.'}",
            120 + 32 * len(models),
        )
        for name, some in groupby(found, key=lambda one: one.document)
    ]
    lead = "A row a statement; the claims that say the same are counted once."
    return Section(
        "Statements", lead, [*pictures, Table(columns, rows, "Statements, in our words")]
    )


MANY = 12  # claims from which on a terminal shows the statements alone
PLACES = (2, 4, 1, 1, 3, 3, 0)  # the palette's colour of each of SIGNS


@section("reproduce", 10)
def verdicts(result: ReproduceResult) -> Section | None:
    """Each claim on the models that were given; in a terminal, of a few claims, on the stand-ins,
    too.
    """
    if not result.claims:
        return None
    given = Table(
        [
            "claim",
            Term("model"),
            Term("verdict"),
            Term("effect"),
            "prompts",
            Term("statement"),
            Term("why", where="page"),
        ],
        [
            (
                row.id,
                trial.model,
                bracketed(f"{SIGNS[trial.tendency]} {trial.tendency}", not trial.decides),
                _cell(trial.effect, trial.interval),
                trial.prompts or "",
                row.statement,
                trial.why,
            )
            for row in result.claims
            for trial in row.trials
            if trial.tendency
        ],
        "On the models that were given",
    )
    table = Table(
        ["claim", Term("verdict"), Term("statement"), Term("why")],
        [
            (row.id, f"{SIGNS[row.verdict]} {row.verdict}", row.statement, row.why)
            for row in result.claims
        ],
        "On the stand-ins" if given.lines else "",
        where="terminal",
    )
    table = replace(table, rows=[]) if len(result.claims) > MANY else table  # the statements say it
    parts = [one for one in (given, table) if one.lines]
    return Section(
        "Verdicts",
        "Each is of what was run here; a tendency is no verdict on a larger model.",
        parts,
    )


@section("reproduce", 20)
def claims(result: ReproduceResult) -> Section | None:
    """Every claim under its document: what was said and of what, the verdict, the evidence, the
    protocol.
    """
    if not result.claims:
        return None
    counts: Counter[str] = Counter(row.verdict for row in result.claims)
    documents: dict[str, list[dict[str, object]]] = {}
    for row in result.claims:
        documents.setdefault(TITLES[row.document], []).append(entry(row))
    context = {
        "all": len(result.claims),
        "documents": documents,
        "counts": [
            (name, slug(name), sign, counts[name]) for name, sign in SIGNS.items() if counts[name]
        ],
    }
    ledger = Raw("reproduce_claims.html.j2", context, styles=["reproduce.css"])
    return Section(
        "Claims", "Each with its verdict, the evidence for and against, and its protocol.", [ledger]
    )


TITLES = {
    "slides": "Slides: Language models have cone-shaped heads",
    "paper": "Paper: the implicit geometry of next-token prediction",
    "article": "Article: Language modeling and discrete encodings",
    "field": "Field: what is held of leaked states",
    "later": "Five later papers",
}


def entry(row: ClaimRecord) -> dict[str, object]:
    """One claim as the template prints it."""
    return {
        "id": row.id,
        "statement": row.statement,
        "verdict": row.verdict,
        "slug": slug(row.verdict),
        "sign": SIGNS[row.verdict],
        "tendency": row.tendency if row.verdict == "not tested" else None,
        "why": row.why,
        "command": row.command,
        "about": f"{row.place.rstrip('.')}. Of {row.model}"
        + (f", on {row.data}." if row.data else "."),
        "more": more(row),
        "evidence": [
            (
                one.side,
                one.name,
                _cell(one.value, one.interval),
                "" if one.chance is None else number(one.chance),
                ", ".join(
                    f"{n:,} {what}"
                    for n, what in (
                        (one.tokens, "tokens"),
                        (one.prompts, "prompts"),
                        (one.seeds, "seeds"),
                    )
                    if n
                ),
            )
            for one in row.evidence
        ],
        "stand_ins": [(one.name, one.why) for one in row.stand_ins],
        "trials": [(one.model, one.tendency or "not tried", one.why) for one in row.trials],
        "protocol": [(name, words) for name, words in protocol(row) if words],
    }


def protocol(row: ClaimRecord) -> list[tuple[str, str]]:
    """What was fixed before the run, as words."""
    needs = (
        f"at least {row.needs.seeds} seeds and {row.needs.tokens} tokens"
        if row.needs is not None
        else ""
    )
    return [
        ("quantity", row.quantity),
        ("would count", str(row.counts or "")),
        ("another cause, if the control is", str(row.control or "")),
        ("test", row.test),
        ("scope", row.scope),
        ("power", needs),
        ("models run", "; ".join(row.models)),
        ("processor seconds", number(row.seconds) if row.quantity else ""),
    ]


def more(row: ClaimRecord) -> str:
    """How many more samples would decide, of what is undecided."""
    if row.more is None:
        return ""
    return (
        f"At the effect seen, {row.more:,} more {'prompts' if row.prompts else 'seeds'} would "
        "decide."
    )


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
    """Each figure with the document's own words on it; those that are not redrawn are told with the
    reason.
    """
    if not result.figures:
        return None
    parts: list[Prose | Figure | Table] = []
    for one in result.figures:
        if one.curves:
            parts.append(Prose(f"{one.place}. Published: {one.published}"))
            parts.append(Figure(one.id, partial(drawn, one), one.title, f"{one.title}, redrawn."))
    left = [one for one in result.figures if not one.curves]
    if rows := [(one.title, one.place, one.published, one.why_not) for one in left]:
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
            figure.add_scatter(
                x=curve.at,
                y=curve.values,
                name=curve.name,
                mode="lines+markers",
                line={"color": colour},
            )
    figure.update_layout(showlegend=len(one.curves) > 1)
    figure.update_xaxes(title=one.across, type="log" if "x" in one.log else None)
    figure.update_yaxes(title=one.up, type="log" if "y" in one.log else None)
    return figure
