"""Bits that remain: token by token, with all others known, and of whole texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Section, Table, figures, palette, section
from headscan.report.kit.words import literal
from headscan.report.pages.privacy.frontier import FOUND, LOST, worth

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, PrivacyResult

__all__: list[str] = []


@section("privacy", 10)
def bits(result: PrivacyResult) -> Section | None:
    """Bits between bounds, by site and noise."""
    rows = [row for row in result.rows if row.bits_lower is not None]
    if not rows:
        return None
    figure = Figure(
        "bits", lambda: _bands(rows), "Bits a token that remain, between the proved bounds, by noise, one band a site",
        f"Bits a token by noise. Lines: the truth by Monte Carlo, or the proved floor where not all candidates were run; bands: "
        f"from the proved floor to the proved ceiling. {result.what}", 400,
    )  # fmt: skip
    columns: list[Column | str] = [
        "release", Column("defence", text=True),
        Column("noise", "Standard deviation, in rms of the release's centred coordinates."),
        Column("bits, prior", "Entropy of a token given those before it, under the prior."),
        Column("at least", "Proved from below.", "U(2σ), Fano"), Column("truth", "Monte Carlo over all candidates."),
        Column("at most", "Proved from above.", "U(σ), Gaussian, entropy"),
        LOST if rows[0].retrieval is None else FOUND,
    ]  # fmt: skip
    cells = [
        (
            row.site, row.defence, row.noise, row.prior_bits, row.bits_lower,
            Cell(row.bits_truth, interval=_about(row.bits_truth, row.bits_truth_error), why="not all candidates were run"),
            row.bits_upper, worth(row),
        )
        for row in rows
    ]  # fmt: skip
    return Section("Bits that remain", result.meaning, [figure, Table(columns, cells)])


def _about(value: float | None, error: float | None) -> tuple[float, float] | None:
    return None if value is None or error is None else (value - 1.96 * error, value + 1.96 * error)


def _bands(rows: list[LeakRow]) -> go.Figure:
    """A band a site: floor and ceiling; the truth, or the floor, as a line."""
    figure = figures.empty("noise (rms)", "bits a token")
    several = len({row.defence for row in rows}) > 1
    for index, (site, defence) in enumerate(dict.fromkeys((row.site, row.defence) for row in rows)):
        some = sorted((row for row in rows if (row.site, row.defence) == (site, defence)), key=lambda row: row.noise)
        x, colour = [row.noise for row in some], palette.model_colour(index)
        low, high = [row.bits_lower for row in some], [row.bits_upper for row in some]
        middle = [row.bits_lower if row.bits_truth is None else row.bits_truth for row in some]
        band = {"mode": "lines", "line": {"color": colour, "width": 0.5}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=low, **band)
        figure.add_scatter(x=x, y=high, fill="tonexty", opacity=0.5, **band)
        figure.add_scatter(
            x=x,
            y=middle,
            name=literal(f"{site}, {defence}" if several else site),
            mode="lines+markers",
            line={"color": colour},
            marker={"size": 7},
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


@section("privacy", 13)
def others_known(result: PrivacyResult) -> Section | None:
    """Bits to one who knows all other tokens."""
    rows = [(row, row.others) for row in result.rows if row.others is not None]
    if not rows:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("own bits", "Of a token's own release, those before it known."),
        Column("bits, others known", "Entropy of a token given all the others."), Column("at least", "Proved from below."),
        Column("truth", "Monte Carlo over all candidates."), Column("at most", "Proved from above."),
    ]  # fmt: skip
    cells = [
        (
            row.site, row.defence, row.noise, row.bits_truth, one.prior_bits, one.bits_lower,
            Cell(one.bits_truth, interval=_about(one.bits_truth, one.bits_truth_error)), one.bits_upper,
        )
        for row, one in rows
    ]  # fmt: skip
    lead = (
        f"At {rows[0][1].tokens} positions: what all releases, later ones included, tell of a token to one who knows all other "
        "tokens. The later tokens tell of it, too, so that less may be left to tell. On texts drawn from the prior the sum of "
        "own bits bounds the whole text from below, and these bits with what tokens tell of one another bound it from above."
    )
    return Section("All other tokens known", lead, [Table(columns, cells)])


@section("privacy", 15)
def whole_texts(result: PrivacyResult) -> Section | None:
    """Bits of whole texts, between two runs of a particle filter."""
    if not result.whole:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("bits, prior", "−log2 p of the texts, a token."),
        Column("own releases", "The part that each token's own release tells."), Column("at least", "Conditional run."),
        Column("at most", "Free run."), Column("tokens right", "Of a text drawn from what the attacker believes.", percent=True),
    ]  # fmt: skip
    rows = [
        (
            one.site, one.defence, one.noise, one.prior_bits,
            Cell(one.own_bits, interval=_about(one.own_bits, one.own_bits_error)),
            Cell(one.bits_lower, interval=_about(one.bits_lower, one.bits_lower_error)),
            Cell(one.bits_upper, interval=_about(one.bits_upper, one.bits_upper_error)),
            Cell(one.accuracy, interval=one.accuracy_interval),
        )
        for one in result.whole
    ]  # fmt: skip
    first = result.whole[0]
    lead = (
        f"{first.texts} texts of {first.tokens} tokens drawn from the model: what all their releases together tell of the whole "
        f"text, a token. A filter of {first.particles} prefixes bounds it from both sides in expectation, and is the attack."
    )
    return Section("Whole texts", lead, [Table(columns, rows)])
