"""The pages of a flow (a matrix per layer with a slider, summaries by layer) and of a channel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Prose,
    Raw,
    Section,
    Term,
    figures,
    page,
    palette,
    section,
    table,
)
from headscan.report.kit.words import named
from headscan.run import BadInput, terms_of

if TYPE_CHECKING:
    from headscan.flow.codebooks import ChannelBound
    from headscan.flow.result import ChannelPart, ChannelResult, FlowPart, FlowResult
    from headscan.report.kit.parts import Part

KINDS = {
    "leak": "how far the output moves",
    "recoverable": "whether the token can be recovered",
    "margin": "by what margin",
}
LEAK_COLUMNS = ("leak_own", "leak_of_earlier", "leak_of_later")
RECOVERY_COLUMNS = ("recoverable_own", "recoverable_of_earlier", "recoverable_of_later")
ENOUGH = 0.95  # accuracy of decoding
LEAST_MOVE = 0.01
"""An output that moves by at most this share of its norm does not depend on the other token."""

CODEBOOK_TERMS = {
    "minimum": Term(
        "nearest,\nleast",
        "Distance of the two nearest outputs, in mean standard deviations of a feature.",
    ),
    "median": Term(
        "nearest,\nmedian", "Median distance of an output to its nearest other, in the same unit."
    ),
    "expected": Term(
        "round\ncloud",
        "About the distance of two tokens in a round cloud of the same spread.",
        "√(2 w)",
    ),
    "participation_ratio": Term(
        "directions\nin use", "Participation ratio of the outputs' covariance."
    ),
    "duplicates": Term("shared\noutputs", "Tokens whose output another token shares to 1e-6."),
}
BITS = Term(
    "bits at most",
    "Information about the token that all features carry through this noise.",
    "Σ ½ log₂(1 + σᵢ²/N)",
)
FEATURES = Term(
    "features at least",
    "With fewer, whichever they are, no decoder finds 95 % of the tokens.",
    "Fano; the largest σᵢ²",
)


@page("flow")
def flow(result: FlowResult) -> Head:
    """Return how many tokens were changed, in which models."""
    averaged = f", averaged over {result.prompts} prompts" if result.prompts > 1 else ""
    names = "; ".join(dict.fromkeys(titled(part) for part in result.parts))
    return Head(
        ["How much each position depends on other tokens"],
        f"{result.length} tokens{averaged}, in {names}.",
        conclusion=_conclusion(result),
        plots={"matrix": lambda kind="leak", part=0, site=-1: matrix(result, kind, part, site)},
    )


def _conclusion(result: FlowResult) -> str:
    """Say what an output at the deepest site carries of other tokens, and what follows."""
    last = result.parts[0].sites[-1]
    if last.leak_of_later > LEAST_MOVE:
        return (
            f"At {last.site} an output moves by {last.leak_of_later:.1%} of its norm when a later "
            "token changes: the model sees tokens that it is to predict, unless it is an encoder."
        )
    if last.leak_of_earlier <= LEAST_MOVE:
        return (
            f"At {last.site} outputs hardly depend on earlier tokens ({last.leak_of_earlier:.1%} "
            "of their norm): check that attention works in this model."
        )
    told = last.recoverable_of_earlier
    if told is not None:
        return (
            f"At {last.site} one output alone gives away {told:.0%} of the tokens before it, if "
            "the others are known: protect every state that follows a secret token, not only its "
            "own."
        )
    return (
        f"At {last.site} an output moves by {last.leak_of_earlier:.1%} of its norm when an earlier "
        "token changes: states after a token carry some of it, so deleting its own state does not "
        "remove it."
    )


def titled(part: FlowPart | ChannelPart) -> str:
    """Return a part's model and cut."""
    name = named(part.model)
    return name if part.cut == "whole" else f"{name}, {part.cut}"


@section("flow", 10)
def matrices(result: FlowResult) -> Section:
    """Return a matrix a part; one slider turns all through the layers."""
    kinds = {kind: words for kind, words in KINDS.items() if f"{kind}/0" in result.arrays}
    parts = []
    for index, part in enumerate(result.parts):
        site_names = [site.site for site in part.sites]
        values = {kind: _rounded(result.arrays[f"{kind}/{index}"]) for kind in kinds}
        parts.append({"name": titled(part), "tokens": part.tokens, "sites": site_names, **values})
    raw = Raw(
        "flow_matrices.html.j2",
        context={"kinds": kinds},
        data={"kinds": list(kinds), "parts": parts},
        scripts=("flow.js",),
        styles=("flow.css",),
    )
    lead = (
        "Row: the input token that is changed. Column: the output that is looked at. On the "
        "diagonal is a token's own output."
    )
    return Section("Token by token", lead, [raw], "matrix")


def _rounded(values: object) -> list[list[list[float]]]:
    """Return matrices short enough to be carried by a page."""
    return [_rounded_matrix(matrix) for matrix in np.asarray(values, dtype=float).tolist()]


def _rounded_matrix(matrix: list[list[float]]) -> list[list[float]]:
    return [[float(f"{value:.4g}") for value in row] for row in matrix]


@section("flow", 20)
def layers(result: FlowResult) -> Section:
    """Return means over all pairs, by layer."""
    has_recovery = result.recoverable is not None
    parts: list[Part] = []
    if max(len(part.sites) for part in result.parts) > 1:
        parts += _site_figures(result, has_recovery=has_recovery)
    columns: tuple[str, ...] = LEAK_COLUMNS
    if has_recovery:
        columns += RECOVERY_COLUMNS
    parts += [table(part.sites, "site", *columns, title=titled(part)) for part in result.parts]
    return Section(
        "By layer",
        "The numbers are means over all pairs of an output and a token before it.",
        parts,
    )


def _site_figures(result: FlowResult, *, has_recovery: bool) -> list[Figure]:
    """Return the figures along the sites, of which there are several."""
    site_figures = [
        Figure(
            "leak",
            by_site(result, "leak_of_earlier"),
            "Mean relative movement of an output when an earlier token is changed, by site",
            "How far an output moves when an earlier token changes, as a share of its norm.",
            320,
        )
    ]
    if has_recovery:
        site_figures.append(
            Figure(
                "told",
                by_site(result, "recoverable_of_earlier"),
                "Share of earlier tokens that can be recovered from an output alone, by site",
                "Share of earlier tokens that one output alone gives away to exact search, every "
                "other token known.",
                320,
            )
        )
    return site_figures


def by_site(result: FlowResult, field: str) -> go.Figure:
    """Return a summary at each site, a line a part."""
    series = {}
    for index, part in enumerate(result.parts):
        name = titled(part)
        if len(result.parts) > 1:
            name = f"{index} {name}"
        site_names = [site.site for site in part.sites]
        series[name] = (site_names, [getattr(site, field) for site in part.sites])
    terms = terms_of(type(result.parts[0].sites[0]))
    return figures.lines(series, y=terms[field].title, zero=True)


def matrix(result: FlowResult, kind: str, part: int, site: int) -> go.Figure:
    """Return a matrix: input token i (rows) against output position j (columns)."""
    key = f"{kind}/{part}"
    if key not in result.arrays:
        listed = ", ".join(sorted(result.arrays))
        raise BadInput(f"There is no matrix {kind!r} of part {part}; there are: {listed}.")
    names = [f"{index} {token}" for index, token in enumerate(result.parts[part].tokens)]
    values = np.asarray(result.arrays[key], dtype=float)[site].tolist()
    figure = figures.heat(values, names, names, scale=palette.DEPTH[0])
    figure.update_xaxes(title_text="output position")
    return figure.update_yaxes(title_text="input token")


@page("channel")
def channel(result: ChannelResult) -> Head:
    """Return which outputs are looked at."""
    outputs = "; ".join(_output_name(part) for part in result.parts)
    sentence = f"A token's output as a message, in {outputs}."
    return Head(["How narrow and noisy an output may be"], sentence)


def _output_name(part: ChannelPart) -> str:
    return f"{titled(part)} at {part.site}"


@section("channel", 10)
def codebooks(result: ChannelResult) -> Section:
    """Return how far apart the outputs of all tokens lie."""
    shown = table(
        result.parts,
        (Term("codebook"), _output_name),
        (CODEBOOK_TERMS["minimum"], lambda part: part.distances.minimum),
        (CODEBOOK_TERMS["median"], lambda part: part.distances.median),
        (CODEBOOK_TERMS["expected"], lambda part: part.distances.expected),
        (CODEBOOK_TERMS["participation_ratio"], lambda part: part.distances.participation_ratio),
        (Term("features"), lambda part: part.width),
        (CODEBOOK_TERMS["duplicates"], lambda part: part.distances.duplicates),
        caption="In feature spreads: how far each token's output lies from its nearest other.",
    )
    return Section(
        "Codebooks", "The table compares the outputs of all tokens at one site.", [shown]
    )


@section("channel", 20)
def decoding(result: ChannelResult) -> Section:
    """Return the accuracy of maximum-likelihood decoding through noise."""
    parts: list[Part] = []
    for index, part in enumerate(result.parts):
        if len(result.parts) > 1:
            parts.append(Prose(titled(part), heading=True))
        parts.append(
            Figure(
                f"noise-{index}",
                _accuracy_by_width(part),
                "Tokens decoded rightly by the number of features, one line a noise level",
                "Noise, with maximum-likelihood decoding: the nearest code word.",
                320,
            )
        )
        parts.append(
            table(
                part.bounds,
                (Term("noise"), lambda row: f"{row.noise:g} spreads"),
                (BITS, lambda row: row.bits),
                (FEATURES, lambda row: fewest(row.width)),
                (Term("fewest tried that decode 95 %"), partial(_fewest_tried, part)),
            )
        )
    lead = (
        "A token's output as a message: how many features, how much noise. Dotted: with fewer "
        "features, whichever they are, no decoder finds 95 % of the tokens."
    )
    return Section("Noise", lead, parts)


def fewest(width: int | None) -> int | str:
    """Return a bound of the features, in words where even all features are too few."""
    return "all are too few" if width is None else width


def _fewest_tried(part: ChannelPart, bound: ChannelBound) -> int | str:
    """Return the fewest features tried that decode enough of the tokens at the bound's noise."""
    widths = [
        row.width for row in part.noise if row.noise == bound.noise and row.accuracy >= ENOUGH
    ]
    return min(widths) if widths else "none"


def _accuracy_by_width(part: ChannelPart) -> go.Figure:
    """Return token accuracy by the number of features, one line a noise level.

    A dotted line marks the bound.
    """
    levels = sorted({row.noise for row in part.noise})
    series = {}
    for level in levels:
        rows = [row for row in part.noise if row.noise == level]
        accuracies = [row.accuracy for row in rows]
        series[f"noise {level:g} × spread"] = ([row.width for row in rows], accuracies)
    figure = figures.lines(series, "features", "tokens decoded rightly", log="x")
    bounds = {row.noise: row.width for row in part.bounds}
    for index, level in enumerate(levels):
        width = bounds.get(level)
        if width is None:
            continue
        figure.add_scatter(
            x=[width, width],
            y=[0, 1],
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line={"color": palette.model_colour(index), "width": 1, "dash": "dot"},
        )
    return figure.update_yaxes(range=[0, 1.03])
