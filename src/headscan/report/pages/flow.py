"""The pages of a flow (a matrix per layer with a slider, summaries by layer) and of a channel."""

from __future__ import annotations

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
from headscan.report.kit.words import literal, named
from headscan.run import BadInput, terms_of

if TYPE_CHECKING:
    from headscan.flow.result import ChannelPart, ChannelResult, FlowPart, FlowResult
    from headscan.report.kit.parts import Part

KINDS = {
    "leak": "how far the output moves",
    "recoverable": "whether the token can be recovered",
    "margin": "by what margin",
}
LEAKS = ("leak_own", "leak_of_earlier", "leak_of_later")
RECOVERY = ("recoverable_own", "recoverable_of_earlier", "recoverable_of_later")


@page("flow")
def flow(result: FlowResult) -> Head:
    """How many tokens of which models."""
    averaged = f", averaged over {result.prompts} prompts" if result.prompts > 1 else ""
    names = "; ".join(dict.fromkeys(titled(part) for part in result.parts))
    return Head(
        ["What tokens know of each other"],
        f"{result.length} tokens{averaged}, in {names}.",
        plots={"matrix": lambda kind="leak", part=0, site=-1: matrix(result, kind, part, site)},
    )


def titled(part: FlowPart | ChannelPart) -> str:
    """A part's model and cut."""
    return named(part.model) if part.cut == "whole" else f"{named(part.model)}, {part.cut}"


@section("flow", 10)
def matrices(result: FlowResult) -> Section:
    """A matrix a part, all turned through the layers by one slider."""
    kinds = {kind: words for kind, words in KINDS.items() if f"{kind}/0" in result.arrays}
    data = [
        {"name": titled(part), "tokens": part.tokens, "sites": [entry.site for entry in part.sites]}
        | {kind: _rounded(result.arrays[f"{kind}/{k}"]) for kind in kinds}
        for k, part in enumerate(result.parts)
    ]
    carried = {"kinds": list(kinds), "parts": data}
    raw = Raw("flow_matrices.html.j2", {"kinds": kinds}, carried, ("flow.js",), ("flow.css",))
    lead = (
        "Row: the input token that is changed. Column: the output that is looked at. On the "
        "diagonal is a token's own output."
    )
    return Section("Token by token", lead, [raw], "matrix")


def _rounded(values: object) -> list[list[list[float]]]:
    return [
        [[float(f"{v:.4g}") for v in row] for row in one]
        for one in np.asarray(values, dtype=float).tolist()
    ]


@section("flow", 20)
def layers(result: FlowResult) -> Section:
    """Means over all pairs, by layer."""
    recovered = result.recoverable is not None
    alt = "Mean relative movement of an output when an earlier token is changed, by site"
    parts: list[Part] = [
        Figure("leak", by_site(result, "leak_of_earlier"), alt, "Leak of earlier tokens.", 320)
    ]
    if recovered:
        alt = "Share of earlier tokens that can be recovered from an output alone, by site"
        caption = (
            "Share of earlier tokens that one output alone gives away to exact search, every "
            "other token known."
        )
        parts.append(Figure("told", by_site(result, "recoverable_of_earlier"), alt, caption, 320))
    columns = (*LEAKS, *(RECOVERY if recovered else ()))
    parts += [table(part.sites, "site", *columns, title=titled(part)) for part in result.parts]
    return Section("By layer", "Means over all pairs of an output and a token before it.", parts)


def _names(result: FlowResult) -> list[str]:
    several = len(result.parts) > 1
    return [
        f"{k} {titled(part)}" if several else titled(part) for k, part in enumerate(result.parts)
    ]


def by_site(result: FlowResult, key: str) -> go.Figure:
    """One summary at each site, a line a part."""
    series = {
        name: ([one.site for one in part.sites], [getattr(one, key) for one in part.sites])
        for name, part in zip(_names(result), result.parts, strict=True)
    }
    return figures.lines(series, y=_title(result, key), zero=True)


def _title(result: FlowResult, key: str) -> str:
    return terms_of(type(result.parts[0].sites[0]))[key].title


def matrix(result: FlowResult, kind: str, part: int, site: int) -> go.Figure:
    """One matrix: input token i (rows) against output position j (columns)."""
    if f"{kind}/{part}" not in result.arrays:
        raise BadInput(
            f"There is no matrix {kind!r} of part {part}; there are: "
            f"{', '.join(sorted(result.arrays))}."
        )
    names = [f"{k} {token}" for k, token in enumerate(result.parts[part].tokens)]
    values = np.asarray(result.arrays[f"{kind}/{part}"], dtype=float)[site].tolist()
    figure = figures.heat(values, names, names, scale=palette.DEPTH[0])
    return figure.update_xaxes(title_text=literal("output position")).update_yaxes(
        title_text=literal("input token")
    )


# ---- The page of a channel: codebook distances and noise.


@page("channel")
def channel(result: ChannelResult) -> Head:
    """Which outputs are looked at."""
    seen = "; ".join(f"{titled(part)} at {part.site}" for part in result.parts)
    return Head(
        ["How narrow and noisy an output may be"], f"A token's output as a message, in {seen}."
    )


@section("channel", 10)
def codebooks(result: ChannelResult) -> Section:
    """How far apart the outputs of all tokens lie."""
    least = Term(
        "nearest,\nleast",
        "Distance of the two nearest outputs, in mean standard deviations of a feature.",
    )
    middle = Term(
        "nearest,\nmedian", "Median distance of an output to its nearest other, in the same unit."
    )
    round_ = Term(
        "round\ncloud",
        "About the distance of two tokens in a round cloud of the same spread.",
        "√(2 w)",
    )
    used = Term("directions\nin use", "Participation ratio of the outputs' covariance.")
    shared = Term("shared\noutputs", "Tokens whose output another token shares to 1e-6.")
    shown = table(
        result.parts,
        (Term("codebook"), lambda part: f"{titled(part)} at {part.site}"),
        (least, lambda part: part.distances.minimum),
        (middle, lambda part: part.distances.median),
        (round_, lambda part: part.distances.expected),
        (used, lambda part: part.distances.participation_ratio),
        (Term("features"), lambda part: part.width),
        (shared, lambda part: part.distances.duplicates),
        caption="In feature spreads: how far each token's output lies from its nearest other.",
    )
    return Section("Codebooks", "The outputs of all tokens at one place.", [shown])


@section("channel", 20)
def decoding(result: ChannelResult) -> Section:
    """Noise, with maximum-likelihood decoding."""
    columns = (
        (Term("noise"), lambda row: f"{row.noise:g} spreads"),
        (
            Term(
                "bits at most",
                "What these outputs can tell of their token through this noise, all features "
                "together.",
                "Σ ½ log₂(1 + σᵢ²/N)",
            ),
            lambda row: row.bits,
        ),
        (
            Term(
                "features at least",
                "With fewer, whichever they are, no decoder finds 95 % of the tokens.",
                "Fano; the largest σᵢ²",
            ),
            lambda row: fewest(row.width),
        ),
    )
    parts: list[Part] = []
    for index, part in enumerate(result.parts):
        enough = (
            Term("fewest tried that decode 95 %"),
            lambda row, part=part: _enough(part, row.noise),
        )
        parts += [
            *([Prose(titled(part), heading=True)] if len(result.parts) > 1 else []),
            Figure(
                f"noise-{index}",
                _noise(part),
                "Tokens decoded rightly by the number of features, one line a noise level",
                "Noise, with maximum-likelihood decoding: the nearest code word.",
                320,
            ),
            table(part.bounds, *columns, enough),
        ]
    lead = (
        "A token's output as a message: how many features, how much noise. Dotted: with fewer "
        "features, whichever they are, "
    )
    lead += "no decoder finds 95 % of the tokens."
    return Section("Noise", lead, parts)


def fewest(width: int | None) -> int | str:
    """A bound of the features, in words where not even all do."""
    return "all are too few" if width is None else width


def _enough(part: ChannelPart, level: float) -> int | str:
    """The fewest features tried that decode 95 % of the tokens at a level of noise."""
    widths = [row.width for row in part.noise if row.noise == level and row.accuracy >= 0.95]
    return min(widths) if widths else "none"


def _noise(part: ChannelPart) -> go.Figure:
    """Token accuracy by the number of features, one line a noise level, a dotted mark where the
    bound lies.
    """
    levels = sorted({row.noise for row in part.noise})
    rows = {level: [row for row in part.noise if row.noise == level] for level in levels}
    curves = {
        level: ([row.width for row in some], [row.accuracy for row in some])
        for level, some in rows.items()
    }
    series = {f"noise {level:g} × spread": curve for level, curve in curves.items()}
    figure = figures.lines(series, "features", "tokens decoded rightly", log="x")
    widths = {row.noise: row.width for row in part.bounds}
    for index, level in enumerate(levels):
        if (width := widths.get(level)) is not None:
            line = {"color": palette.model_colour(index), "width": 1, "dash": "dot"}
            figure.add_scatter(
                x=[width, width],
                y=[0, 1],
                mode="lines",
                showlegend=False,
                hoverinfo="skip",
                line=line,
            )
    return figure.update_yaxes(range=[0, 1.03])
