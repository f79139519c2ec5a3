"""The page of an attribution: the text coloured by scores, how far to trust it, every number."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
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
    palette,
    section,
)
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import clean, literal, named, number, value_of
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headscan.attribution.faithfulness import Faithfulness, FaithfulnessCurve
    from headscan.attribution.gradients import Completeness
    from headscan.attribution.result import AttributeResult, ExplainedStep


class TargetColour(NamedTuple):
    """The colour of a sign of the scores: RGB on a light background and in a terminal."""

    light: tuple[int, int, int]
    terminal: tuple[int, int, int]


# Orange supports the target, blue opposes it: they are told apart in every common form of colour
# blindness, and underlined solid or dashed as well.
FOR = TargetColour(light=(232, 131, 58), terminal=(214, 96, 20))
AGAINST = TargetColour(light=(91, 155, 213), terminal=(31, 104, 178))
FOR_HEX = "#e8833a"
AGAINST_HEX = "#5b9bd5"
PAPER_HEX = "#fbfaf6"

MOST_TABLE_ROWS = 5000
MOST_OPEN_STEPS = 8  # a longer table of predictions is folded
MOST_NAMED_STEPS = 20
STRONGEST = 10
CURVES = ("deletion", "insertion")
SURE_METHOD = "occlusion"
VERDICTS = ("FAITHFUL", "UNFAITHFUL", "UNDECIDED")
LEAST_SHOWN_STRENGTH = 0.02
WHITESPACE_SIGNS = re.compile("([␣⏎⇥␍])")


@page("attribute")
def attribute(result: AttributeResult) -> Head:
    """Return what is explained, of which model, by which methods."""
    methods = ", ".join(record.words.title for record in result.maps)
    model = named(result.models[0].name) if result.models else "the model"
    output = "sentence vector" if result.target.kind == "sentence" else "prediction"
    glossary = []
    for record in result.maps:
        words = record.words
        glossary.append(
            Term(
                words.title, words.sentence, words.formula, source=words.source, name=record.method
            )
        )
    return Head(
        [f"Why {heading(result)}?"],
        f"Which of {len(result.tokens):,} tokens the {output} of {model} depends on: "
        f"{result.target.sentence}. {methods}.",
        conclusion=_conclusion(result),
        plots={"scores": lambda method=None: scores(result, method)},
        glossary=glossary,
    )


def _conclusion(result: AttributeResult) -> str:
    """Say if the first map can be trusted, and what to try where it cannot."""
    verdicts = [finding.name for finding in result.findings if finding.name in VERDICTS]
    if not verdicts:
        return ""
    if verdicts[0] == "FAITHFUL":
        return "The colours can be trusted: they beat a random ordering of the tokens."
    tested = [record for record in result.maps if record.faithfulness is not None]
    better = [
        record.words.title
        for record, verdict in zip(tested, verdicts, strict=False)
        if verdict == "FAITHFUL"
    ]
    if better:
        return (
            f"{tested[0].words.title} is not shown to be better than a random ordering of the "
            f"tokens. Choose a method that is: {', '.join(better)}."
        )
    advice = f"Try --method {SURE_METHOD}."
    if result.method == SURE_METHOD:
        advice = "Try --units word, or explain a longer --continuation."
    return f"The colours are not shown to be better than a random ordering of the tokens. {advice}"


def heading(result: AttributeResult) -> str:
    """Return what is explained, in a few words."""
    step = result.steps[0]
    if len(result.steps) > 1:
        return f"{len(result.steps)} predictions"
    if step.against is not None:
        return f"{step.token}, not {step.against.token}"
    if result.target.kind in ("entropy", "all"):
        return result.target.kind
    return step.token


@section("attribute", 10)
def text(result: AttributeResult) -> Section:
    """Return the coloured text, and what the model predicts."""
    lead = (
        "Orange with a solid line supports the target, blue with a dashed line opposes it. Point "
        "at a token for its number; the arrow keys move between tokens."
    )
    parts: list[Part] = [_coloured_text(result)]
    if result.target.kind != "sentence":
        parts.append(_predictions(result))
    parts.append(_strongest(result))
    return Section("The text", lead, parts)


def _coloured_text(result: AttributeResult) -> Raw:
    """Return the text coloured by the mean scores of the first method."""
    methods = [record.method for record in result.maps]
    mean_scores = _mean_scores(result, methods[0])
    predicted = set()
    if len(result.steps) > 1:
        predicted = {step.position + 1 for step in result.steps}
    context = {
        "pieces": pieces(result, mean_scores, predicted),
        "methods": methods,
        "steps": result.steps,
        "kind": result.target.kind,
        "titles": [record.words.title for record in result.maps],
    }
    data = {
        "tokens": result.tokens,
        "ids": result.ids,
        "roles": result.roles,
        "methods": methods,
        "scores": {method: rounded(result.arrays[f"scores/{method}"]) for method in methods},
        "positions": [step.position for step in result.steps],
        "units": [span.tokens for span in result.spans],
    }
    return Raw(
        "attribute_text.html.j2",
        context,
        data,
        ("attribute.js",),
        ("attribute.css",),
        terminal=coloured(result),
        notebook=snippet(result),
    )


def _mean_scores(result: AttributeResult, method: str) -> list[float]:
    """Return each token's score by a method, averaged over the predictions."""
    step_scores = np.asarray(result.arrays[f"scores/{method}"], dtype=float)
    means: list[float] = step_scores.mean(0).tolist()
    return means


def _predictions(result: AttributeResult) -> Table:
    columns = ["read at", result.target.kind, "probability", "what the model predicts there"]
    rows = []
    for step in result.steps:
        row = (_explained(step), step.position, step.value, step.probability, _likeliest(step))
        rows.append(row)
    return Table(
        ["explained", *map(Term, columns)],
        rows,
        title="Predictions" if len(result.steps) > 1 else "",
        folded=len(result.steps) > MOST_OPEN_STEPS,
    )


def _explained(step: ExplainedStep) -> str:
    """Return what is predicted, and what it is put against."""
    return step.token if step.against is None else f"{step.token} against {step.against.token}"


def _likeliest(step: ExplainedStep) -> str:
    """Return the likeliest tokens of a prediction."""
    texts = [f"{token.token} {number(token.probability)}" for token in step.predictions]
    return " · ".join(texts)


def _strongest(result: AttributeResult) -> Table:
    """Return, for the terminal, the units with the largest scores."""
    spans = sorted(result.spans, key=lambda span: -abs(span.score))
    rows = []
    for span in spans[:STRONGEST]:
        first = span.tokens[0]
        last = span.tokens[-1]
        label = str(first) if first == last else f"{first}–{last}"
        rows.append((label, span.text[:40], signed(span.score)))
    return Table(["token", Term("text"), Term(result.method)], rows, where="terminal")


@dataclass(frozen=True)
class TextPiece:
    """A token with what colours it: `strength` in [0, 1], its sign, and where a line ends.

    `parts` are its texts, each with whether it is a sign for white space.
    """

    index: int
    parts: list[tuple[str, bool]]
    strength: str
    sign: str
    breaks: bool
    special: bool
    predicted: bool


def pieces(
    result: AttributeResult, values: Sequence[float], predicted: set[int]
) -> list[TextPiece]:
    """Return the tokens as coloured pieces; `predicted` are indices that are marked."""
    finite = [value_of(value) or 0.0 for value in values]
    largest = max(map(abs, finite), default=0.0)
    text_pieces = []
    for index, token in enumerate(result.tokens):
        value = finite[index]
        texts = [part for part in WHITESPACE_SIGNS.split(token) if part]
        text_pieces.append(
            TextPiece(
                index=index,
                parts=[(part, bool(WHITESPACE_SIGNS.fullmatch(part))) for part in texts],
                strength=f"{abs(value) / largest:.3f}" if largest else "0",
                sign=_sign(value),
                breaks=token.endswith("⏎"),
                special=result.special[index],
                predicted=index in predicted,
            )
        )
    return text_pieces


def _sign(value: float) -> str:
    if value > 0:
        return "for"
    return "against" if value < 0 else "none"


def coloured(result: AttributeResult) -> Text:
    """Return the coloured text for the terminal."""
    largest = max(map(abs, result.scores), default=0.0) or 1.0
    coloured_text = Text()
    for token, value in zip(result.tokens, result.scores, strict=True):
        strength = abs(value) / largest
        colour = FOR if value > 0 else AGAINST
        style = _terminal_style(colour, strength) if strength >= LEAST_SHOWN_STRENGTH else ""
        coloured_text.append(clean(token), style=style)
        if token.endswith("⏎"):
            coloured_text.append("\n")
    return coloured_text


def _terminal_style(colour: TargetColour, strength: float) -> str:
    """Return a background between white and the colour, with letters that contrast with it."""
    red, green, blue = (round(255 + (c - 255) * strength) for c in colour.terminal)
    letters = "#ffffff" if strength > 0.75 else "#111111"
    return f"{letters} on #{red:02x}{green:02x}{blue:02x}"


def snippet(result: AttributeResult) -> str:
    """Return the coloured text as HTML without scripts, for notebooks; everything is escaped."""
    spans = []
    for piece, score in zip(pieces(result, result.scores, set()), result.scores, strict=True):
        token = result.tokens[piece.index]
        title = f"token {piece.index}, id {result.ids[piece.index]}: {signed(score)}"
        spans.append(_notebook_span(piece, token, title))
    tokens = ", ".join(html.escape(step.token) for step in result.steps[:MOST_NAMED_STEPS])
    method = html.escape(result.method)
    target = html.escape(result.target.sentence)
    return (
        '<div dir="auto" style="line-height:2;font-family:serif;overflow-wrap:anywhere">'
        f"{'<wbr>'.join(spans)}"
        f'<div style="font:12px sans-serif">{method}, {target}: <b>{tokens}</b>. Orange, solid '
        "line: for; blue, dashed: against.</div></div>"
    )


def _notebook_span(piece: TextPiece, token: str, title: str) -> str:
    """Return a token's element: its background shows its strength, its underline the sign."""
    colour = FOR if piece.sign == "for" else AGAINST
    line = "none"
    if float(piece.strength) >= LEAST_SHOWN_STRENGTH:
        line = "solid" if piece.sign == "for" else "dashed"
    rgb = ",".join(map(str, colour.light))
    style = (
        f"background:rgba({rgb},{float(piece.strength):.3f});border-bottom:2px {line} currentColor"
    )
    escaped_title = html.escape(title, quote=True)
    span = f'<span style="{style}" title="{escaped_title}">{html.escape(token)}</span>'
    return f"{span}<br>" if piece.breaks else span


def signed(value: float) -> str:
    """Return a number with its sign always shown.

    >>> signed(0.25), signed(-2.0)
    ('+0.250', '−2.00')
    """
    written = number(float(value))
    return f"+{written}" if value > 0 else written


def rounded(values: object) -> list[list[float]]:
    """Return scores short enough to be carried by a page."""
    rows = np.asarray(values, dtype=float).tolist()
    return [[float(f"{value:.5g}") for value in row] for row in rows]


@section("attribute", 20)
def trust(result: AttributeResult) -> Section:
    """Return faithfulness and completeness of the maps."""
    checked: list[tuple[str, Faithfulness]] = []
    for record in result.maps:
        if record.faithfulness is not None:
            checked.append((record.words.title, record.faithfulness))
    parts: list[Part] = []
    if checked:
        parts += _faithfulness(result, checked)
    else:
        parts.append(Prose("Faithfulness was not measured."))
    for record in result.maps:
        if record.completeness is not None:
            parts.append(_completeness(record.words.title, record.completeness))
    lead = "Removing the most important tokens should lower the prediction most."
    return Section("How far to trust it", lead, parts)


def _faithfulness(result: AttributeResult, checked: list[tuple[str, Faithfulness]]) -> list[Part]:
    """Return the curves of deletion and insertion, and the areas under them by method."""
    judged = result.target.judged
    first = checked[0][1]
    figure = Figure(
        "curves",
        lambda: curves(result),
        f"The {judged} as units are replaced in the order of their scores, and as they are put "
        "back",
        "Above, deletion: the most important units go first; a good map falls below the random "
        "order at once. Below, insertion: they come back first; a good map rises above it at once. "
        f"Missing units are replaced by {first.substitute}.",
        460,
    )
    columns: list[Term | str] = [
        "method",
        Term(
            "deletion",
            f"Area under the {judged} as the highest units are replaced first; low is good.",
        ),
        Term("insertion", "The same as the highest units are put back first; high is good."),
    ]
    lines = []
    for title, faithfulness in checked:
        areas = [cell_of(faithfulness.deletion, "area"), cell_of(faithfulness.insertion, "area")]
        lines.append(Line(title, areas))
    random_areas = [cell_of(first.random, "deletion"), cell_of(first.random, "insertion")]
    lines.append(Line("random order", random_areas, note="averaged"))
    parts: list[Part] = [figure, Table(columns, lines)]
    if first.no_interval:
        parts.append(Prose(first.no_interval))
    return parts


def _completeness(title: str, completeness: Completeness) -> Prose:
    """Say how much the scores miss of the sum that they must have."""
    plural = "s" if completeness.segments > 1 else ""
    gap = 100 * max(completeness.relative_gap)
    sentence = (
        "Its scores must sum to the target's change from the baseline; they miss by at most "
        f"{gap:.2g} % ({completeness.evaluations} gradients on {completeness.segments} "
        f"piece{plural} of the path)."
    )
    return Prose(sentence, f"Completeness of {title.lower()}.")


def curves(result: AttributeResult) -> go.Figure:
    """Return deletion and insertion curves of each method.

    They show the probability (or cosine) as units are replaced or put back.
    """
    judged = result.target.judged
    titles = [f"{judged}, {kind}" for kind in CURVES]
    figure = figures.stacked("share of units replaced or put back", titles)
    random: Faithfulness | None = None
    for index, record in enumerate(result.maps):
        if record.faithfulness is not None:
            random = random or record.faithfulness
            look = palette.model_line(index)
            for kind in CURVES:
                curve = getattr(record.faithfulness, kind)
                _add_curve(figure, kind, literal(record.method), look, curve)
    if random is not None and random.random.deletion_curve:
        look = {"color": palette.ROLES["muted"][0], "dash": "dot"}
        for kind in CURVES:
            heights = getattr(random.random, f"{kind}_curve")
            curve = replace(getattr(random, kind), probability=heights)
            _add_curve(figure, kind, "random order", look, curve)
    return figure.update_yaxes(rangemode="tozero")


def _add_curve(
    figure: go.Figure, kind: str, name: str, line: dict[str, str], curve: FaithfulnessCurve
) -> None:
    """Add a curve to the panel of its kind; the legend names it once."""
    is_first = kind == CURVES[0]
    figure.add_scatter(
        x=curve.share,
        y=curve.probability,
        name=name,
        legendgroup=name,
        showlegend=is_first,
        mode="lines",
        line=line,
        yaxis="y" if is_first else "y2",
    )


def scores(result: AttributeResult, method: str | None = None) -> go.Figure:
    """Return the scores of units as bars, in reading order.

    For a continuation it is a matrix of predictions by tokens. Raises BadInput for a method that
    was not run.
    """
    method = method or result.method
    if f"scores/{method}" not in result.arrays:
        methods = ", ".join(record.method for record in result.maps)
        raise BadInput(f"There is no map by {method!r}; there are: {methods}.")
    if len(result.steps) > 1:
        return _score_matrix(result, np.asarray(result.arrays[f"scores/{method}"], dtype=float))
    unit_scores = np.asarray(result.arrays[f"units/{method}"], dtype=float)[0].tolist()
    names = [f"{index} {literal(span.text)}" for index, span in enumerate(result.spans)]
    colours = [FOR_HEX if score > 0 else AGAINST_HEX for score in unit_scores]
    figure = figures.empty("", f"{literal(method)}, {result.target.kind}")
    figure.add_bar(x=names, y=unit_scores, marker={"color": colours}, showlegend=False)
    return figure.update_xaxes(type="category")


def _score_matrix(result: AttributeResult, values: npt.NDArray[Any]) -> go.Figure:
    largest = float(np.abs(values).max()) or 1.0
    return figures.heat(
        values.tolist(),
        result.tokens,
        [step.token for step in result.steps],
        low=-largest,
        high=largest,
        scale=(AGAINST_HEX, PAPER_HEX, FOR_HEX),
    )


@section("attribute", 30)
def numbers(result: AttributeResult) -> Section:
    """Return every token's score by every method."""
    means = [_mean_scores(result, record.method) for record in result.maps]
    rows: list[tuple[str | float | int | None, ...]] = []
    for index, token in enumerate(result.tokens[:MOST_TABLE_ROWS]):
        token_scores = [mean[index] for mean in means]
        rows.append((f"{index} {token}", result.ids[index], *token_scores))
    columns: list[Term | str] = [
        "token",
        Term("id"),
        *(Term(record.method) for record in result.maps),
    ]
    parts: list[Part] = [
        Table(columns, rows, title=f"{len(rows)} tokens", folded=True, where="page")
    ]
    left_out = len(result.tokens) - MOST_TABLE_ROWS
    if left_out > 0:
        parts.append(Prose(f"{left_out} more are in arrays.safetensors."))
    averaged = ", averaged over the predictions" if len(result.steps) > 1 else ""
    return Section("Every number", f"Scores as they are in result.json{averaged}.", parts)
