"""Defences side by side: bits that remain against what the model loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Section, Table, figures, palette, section
from headscan.report.kit.words import literal

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, PrivacyResult

__all__ = ["frontier_said", "setting"]

HALF = 0.5


def setting(row: LeakRow) -> str:
    """Defence and noise in words, as a sentence begins."""
    noise = f"noise {row.noise:g}" if row.noise else "no noise"
    return f"At {noise}" if row.defence == "none" else f"Behind {row.defence} at {noise}"


def frontier_said(result: PrivacyResult) -> str:
    """What an officer needs: the cheapest setting that is proved to halve the bits, or that none is."""
    rows = _rows(result)
    if not rows:
        return "No setting has bits between bounds."
    safe = [row for row in rows if (row.bits_upper or 0.0) <= HALF * (row.prior_bits or 0.0)]
    if safe:
        row = min(safe, key=lambda one: one.loss_added if one.loss_added is not None else float("inf"))
        return f"{_told(row)} No cheaper setting tried is proved to leave half of the bits or fewer."
    row = min(rows, key=lambda one: one.bits_upper or 0.0)
    return f"No setting tried is proved to leave half of the bits or fewer. {_told(row)}"


def _told(row: LeakRow) -> str:
    low, high, of = row.bits_lower or 0.0, row.bits_upper or 0.0, row.prior_bits or 0.0
    lost = "" if row.loss_added is None else f", and the model loses {row.loss_added:.2f} nats a token"
    return (
        f"{setting(row)} at {row.site} at least {low:.2f} of {of:.2f} bits a token remain (at most {high:.2f}){lost}."
    )


def _rows(result: PrivacyResult) -> list[LeakRow]:
    return [row for row in result.rows if row.bits_upper is not None]


@section("privacy", 8)
def frontier(result: PrivacyResult) -> Section | None:
    """Bits against loss, one line a defence."""
    rows = [row for row in _rows(result) if row.loss_added is not None]
    if len({row.defence for row in rows}) < 2:
        return None
    figure = Figure(
        "frontier", lambda: _frontier(rows),
        "Bits a token that remain against nats a token that the model loses, one line a defence, one point a noise",
        "Bits a token that remain, by Monte Carlo or at most, against nats a token that the model loses; one line a defence at a "
        "site, one point a noise. The nearer to the lower left, the better the defence.", 420,
    )  # fmt: skip
    columns: list[Column | str] = [
        Column("defence", text=True), "release", "noise", Column("at least", "Proved from below."),
        Column("at most", "Proved from above."), Column("of", "Entropy of a token under the prior."),
        Column("tokens named", "By the attack, in the mean over the prior.", percent=True),
        Column("nats lost", "What the model loses if it goes on with what is released."),
    ]  # fmt: skip
    ranked = sorted(rows, key=lambda row: (row.bits_upper or 0.0, row.loss_added or 0.0))
    cells = [
        (
            row.defence, row.site, row.noise, row.bits_lower, row.bits_upper, row.prior_bits,
            Cell(row.attack_accuracy, interval=row.attack_accuracy_interval), row.loss_added,
        )
        for row in ranked
    ]  # fmt: skip
    lead = f"What protects most at least loss, the fewest bits first. {result.what}"
    return Section("Defences on one frontier", lead, [figure, Table(columns, cells)])


def _frontier(rows: list[LeakRow]) -> go.Figure:
    """One line a defence and site."""
    figure = figures.empty("nats a token lost", "bits a token that remain")
    for index, (defence, site) in enumerate(dict.fromkeys((row.defence, row.site) for row in rows)):
        some = sorted(
            (row for row in rows if (row.defence, row.site) == (defence, site)), key=lambda row: row.loss_added or 0.0
        )
        figure.add_scatter(
            x=[row.loss_added for row in some],
            y=[row.bits_upper if row.bits_truth is None else row.bits_truth for row in some],
            text=[f"noise {row.noise:g}" for row in some], name=literal(f"{defence}, {site}"), mode="lines+markers",
            line={"color": palette.model_colour(index)}, marker={"size": 7},
            hovertemplate="%{text}: %{y:.2f} bits, %{x:.2f} nats",
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure
