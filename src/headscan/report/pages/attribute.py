"""The page of an attribution: the text coloured by its scores, how far to trust it, every number."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from rich.text import Text

from headscan.report.kit import (
    Figure,
    Head,
    Line,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    figures,
    page,
    section,
)
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import clean, literal, named, number, value_of
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headscan.attribution.result import AttributeResult, ExplainedStep

FOR = {"light": (232, 131, 58), "terminal": (214, 96, 20)}
AGAINST = {"light": (91, 155, 213), "terminal": (31, 104, 178)}
"""Orange speaks for the target, blue against it: told apart in every common form of colour
blindness, and underlined solid or dashed as well.
"""

TABLE_ROWS = 5000
SIGNS = re.compile("([␣⏎⇥␍])")


@page("attribute")
def attribute(result: AttributeResult) -> Head:
    """What is explained, of which model, by which methods."""
    methods = ", ".join(one.words.title for one in result.maps)
    model = named(result.models[0].name) if result.models else "the model"
    what = "sentence vector" if result.target.kind == "sentence" else "prediction"
    return Head(
        [f"Why {heading(result)}?"],
        f"Which of {len(result.tokens):,} tokens the {what} of {model} depends on: "
        f"{result.target.sentence}. {methods}.",
        plots={"scores": lambda method=None: scores(result, method)},
        words=[
            Term(
                one.words.title,
                one.words.sentence,
                one.words.formula,
                source=one.words.source,
                name=one.method,
            )
            for one in result.maps
        ],
    )


def heading(result: AttributeResult) -> str:
    """What is explained, in a few words."""
    first = result.steps[0]
    if len(result.steps) > 1:
        return f"{len(result.steps)} predictions"
    if first.against is not None:
        return f"{first.token}, not {first.against.token}"
    return first.token if result.target.kind not in ("entropy", "all") else result.target.kind


@section("attribute", 10)
def text(result: AttributeResult) -> Section:
    """The coloured text, and what the model predicts."""
    methods = [one.method for one in result.maps]
    first = np.asarray(result.arrays[f"scores/{methods[0]}"], dtype=float).mean(0)
    several = len(result.steps) > 1
    predicted = {step.position + 1 for step in result.steps} if several else set()
    raw = Raw(
        "attribute_text.html.j2",
        {
            "pieces": pieces(result, first.tolist(), predicted),
            "methods": methods,
            "steps": result.steps,
            "kind": result.target.kind,
            "titles": [one.words.title for one in result.maps],
        },
        {
            "tokens": result.tokens,
            "ids": result.ids,
            "roles": result.roles,
            "methods": methods,
            "scores": {name: rounded(result.arrays[f"scores/{name}"]) for name in methods},
            "positions": [step.position for step in result.steps],
            "units": [span.tokens for span in result.spans],
        },
        ("attribute.js",),
        ("attribute.css",),
        terminal=coloured(result),
        notebook=snippet(result),
    )
    lead = (
        "Orange with a solid line supports the target, blue with a dashed line opposes it. Point "
        "at a token for its number; "
    )
    lead += "the arrow keys move between tokens."
    if result.target.kind == "sentence":
        return Section("The text", lead, [raw, *strongest(result)])
    columns = "read at", result.target.kind, "probability", "what the model predicts there"
    rows = [
        (shown(step), step.position, step.value, step.probability, likely(step))
        for step in result.steps
    ]
    table = Table(
        ["explained", *map(Term, columns)],
        rows,
        title="Predictions" if several else "",
        folded=len(result.steps) > 8,
    )
    return Section("The text", lead, [raw, table, *strongest(result)])


def shown(step: ExplainedStep) -> str:
    """What is predicted, and what it is put against."""
    return step.token if step.against is None else f"{step.token} against {step.against.token}"


def likely(step: ExplainedStep) -> str:
    """The likeliest tokens of a prediction."""
    return " · ".join(f"{one.token} {number(one.probability)}" for one in step.predictions)


def strongest(result: AttributeResult) -> list[Table]:
    """For the terminal: the ten units with the largest scores."""
    spans = sorted(result.spans, key=lambda span: -abs(span.score))[:10]
    rows = []
    for span in spans:
        first = span.tokens[0]
        last = span.tokens[-1]
        rows.append(
            (str(first) if first == last else f"{first}–{last}", span.text[:40], signed(span.score))
        )
    return [Table(["token", Term("text"), Term(result.method)], rows, where="terminal")]


def pieces(
    result: AttributeResult, values: Sequence[float], predicted: set[int]
) -> list[dict[str, object]]:
    """The tokens with what colours them: strength in [0, 1], sign, and where a line ends."""
    largest = max((abs(value) for value in map(value_of, values) if value is not None), default=0.0)
    found: list[dict[str, object]] = []
    for index, token in enumerate(result.tokens):
        value = value_of(values[index]) or 0.0
        found.append(
            {
                "index": index,
                "parts": [
                    (part, bool(SIGNS.fullmatch(part))) for part in SIGNS.split(token) if part
                ],
                "strength": f"{abs(value) / largest:.3f}" if largest else "0",
                "sign": "for" if value > 0 else "against" if value < 0 else "none",
                "breaks": token.endswith("⏎"),
                "special": result.special[index],
                "predicted": index in predicted,
            }
        )
    return found


def coloured(result: AttributeResult) -> Text:
    """The coloured text for the terminal."""
    largest = max(map(abs, result.scores), default=0.0) or 1.0
    found = Text()
    for token, value in zip(result.tokens, result.scores, strict=True):
        share = abs(value) / largest
        colour = (FOR if value > 0 else AGAINST)["terminal"]
        shade = [round(255 + (c - 255) * share) for c in colour]
        style = (
            f"{'#ffffff' if share > 0.75 else '#111111'} on "
            f"#{shade[0]:02x}{shade[1]:02x}{shade[2]:02x}"
        )
        found.append(clean(token), style=style if share >= 0.02 else "")
        if token.endswith("⏎"):
            found.append("\n")
    return found


def snippet(result: AttributeResult) -> str:
    """The coloured text as a piece of HTML without scripts, for notebooks; everything in it is
    escaped.
    """
    found = []
    for piece, score in zip(pieces(result, result.scores, set()), result.scores, strict=True):
        index = int(str(piece["index"]))
        strength = float(str(piece["strength"]))
        colour = ",".join(map(str, (FOR if piece["sign"] == "for" else AGAINST)["light"]))
        line = ("solid" if piece["sign"] == "for" else "dashed") if strength >= 0.02 else "none"
        title = html.escape(f"token {index}, id {result.ids[index]}: {signed(score)}", quote=True)
        style = f"background:rgba({colour},{strength:.3f});border-bottom:2px {line} currentColor"
        spelt = html.escape(result.tokens[index])
        found.append(
            f'<span style="{style}" title="{title}">{spelt}</span>'
            + ("<br>" if piece["breaks"] else "")
        )
    heads = ", ".join(html.escape(step.token) for step in result.steps[:20])
    note = f"{html.escape(result.method)}, {html.escape(result.target.sentence)}: <b>{heads}</b>"
    shown = (
        '<div dir="auto" '
        f'style="line-height:2;font-family:serif;overflow-wrap:anywhere">{"<wbr>".join(found)}'
    )
    return (
        shown + f'<div style="font:12px sans-serif">{note}. Orange, solid line: for; blue, dashed: '
        "against.</div></div>"
    )


def signed(value: float) -> str:
    """A number with its sign always shown.

    >>> signed(0.25), signed(-2.0)
    ('+0.250', '−2.00')
    """
    written = number(float(value))
    return f"+{written}" if value > 0 else written


def rounded(values: object) -> list[list[float]]:
    """Scores short enough to be carried by a page."""
    return [
        [float(f"{value:.5g}") for value in row] for row in np.asarray(values, dtype=float).tolist()
    ]


@section("attribute", 20)
def trust(result: AttributeResult) -> Section:
    """Faithfulness and completeness of the maps."""
    checked = [
        (one.words.title, one.faithfulness) for one in result.maps if one.faithfulness is not None
    ]
    parts: list[Part] = []
    if checked:
        first = checked[0][1]
        judged = result.target.judged
        caption = (
            "Deletion: the most important units go first; a good map falls at once. Insertion: "
            "they come back first; a "
        )
        caption += f"good map rises at once. Missing units are replaced by {first.substitute}."
        alt = (
            f"The {judged} as units are replaced in the order of their scores, and as they are "
            "put back"
        )
        columns: list[Term | str] = [
            "method",
            Term(
                "deletion",
                f"Area under the {judged} as the highest units are replaced first; low is good.",
            ),
            Term("insertion", "The same as the highest units are put back first; high is good."),
        ]
        rows = [
            Line(name, [cell_of(one.deletion, "area"), cell_of(one.insertion, "area")])
            for name, one in checked
        ]
        rows.append(
            Line(
                "random order",
                [cell_of(first.random, key) for key in ("deletion", "insertion")],
                note="averaged",
            )
        )
        parts += [Figure("curves", lambda: curves(result), alt, caption), Table(columns, rows)]
        parts += [Prose(first.no_interval)] if first.no_interval else []
    else:
        parts.append(Prose("Faithfulness was not measured."))
    for one in result.maps:
        if (gap := one.completeness) is not None:
            pieces = f"{gap.segments} piece{'s' if gap.segments > 1 else ''}"
            said = (
                "Its scores must sum to the target's change from the baseline; they miss by at "
                "most "
            )
            said += (
                f"{100 * max(gap.relative_gap):.2g} % ({gap.evaluations} gradients on {pieces} of "
                "the path)."
            )
            parts.append(Prose(said, f"Completeness of {one.words.title.lower()}."))
    return Section(
        "How far to trust it",
        "Take away what a map calls important, and the prediction should go.",
        parts,
    )


def curves(result: AttributeResult) -> go.Figure:
    """Deletion and insertion curves of each method: probability (or cosine) as units are replaced
    or put back.
    """
    series = {
        f"{one.method}, {name}": (curve.share, curve.probability)
        for one in result.maps
        if one.faithfulness is not None
        for name, curve in (
            ("deletion", one.faithfulness.deletion),
            ("insertion", one.faithfulness.insertion),
        )
    }
    x = "share of the units replaced (deletion) or put back (insertion)"
    return figures.lines(series, x, result.target.judged, zero=True)


def scores(result: AttributeResult, method: str | None = None) -> go.Figure:
    """Scores of units as bars, in reading order; of a continuation, as a matrix of predictions by
    tokens.
    """
    method = method or result.method
    if f"scores/{method}" not in result.arrays:
        raise BadInput(
            f"There is no map by {method!r}; there are: "
            f"{', '.join(one.method for one in result.maps)}."
        )
    if len(result.steps) > 1:
        values = np.asarray(result.arrays[f"scores/{method}"], dtype=float)
        top = float(np.abs(values).max()) or 1.0
        return figures.heat(
            values.tolist(),
            result.tokens,
            [step.token for step in result.steps],
            low=-top,
            high=top,
            scale=("#5b9bd5", "#fbfaf6", "#e8833a"),
        )
    units = np.asarray(result.arrays[f"units/{method}"], dtype=float)[0].tolist()
    figure = figures.empty("", f"{literal(method)}, {result.target.kind}")
    names = [f"{k} {literal(span.text)}" for k, span in enumerate(result.spans)]
    colours = ["#e8833a" if value > 0 else "#5b9bd5" for value in units]
    figure.add_bar(x=names, y=units, marker={"color": colours}, showlegend=False)
    return figure.update_xaxes(type="category")


@section("attribute", 30)
def numbers(result: AttributeResult) -> Section:
    """Every token's score by every method."""
    means = [
        np.asarray(result.arrays[f"scores/{one.method}"], dtype=float).mean(0).tolist()
        for one in result.maps
    ]
    first = enumerate(result.tokens[:TABLE_ROWS])
    rows = [
        (f"{index} {token}", result.ids[index], *(mean[index] for mean in means))
        for index, token in first
    ]
    columns: list[Term | str] = ["token", Term("id"), *(Term(one.method) for one in result.maps)]
    parts: list[Table | Prose] = [
        Table(columns, rows, title=f"{len(rows)} tokens", folded=True, where="page")
    ]
    if len(result.tokens) > TABLE_ROWS:
        parts.append(Prose(f"{len(result.tokens) - TABLE_ROWS} more are in arrays.safetensors."))
    averaged = ", averaged over the predictions" if len(result.steps) > 1 else ""
    return Section("Every number", f"Scores as they are in result.json{averaged}.", parts)
