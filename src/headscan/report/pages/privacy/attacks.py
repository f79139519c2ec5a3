"""Attacks beside what no attack exceeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Section, Table, figures, section

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, PrivacyResult

__all__: list[str] = []


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
    """Attacks beside what no attack exceeds."""
    if result.gradient is not None:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("attack", text=True),
        Column("tokens named", "In the mean over the prior.", percent=True),
        Column("ceiling", "No attack is right more often.", percent=True),
        Column("of this text", "Of the text's own tokens.", percent=True), Column("verdict", text=True),
        Column("certificate", "What excludes other tokens, of releases without noise.", text=True),
    ]  # fmt: skip
    rows = [
        (
            row.site, row.defence, row.noise, row.attack, Cell(row.attack_accuracy, interval=row.attack_accuracy_interval),
            Cell(row.attack_accuracy_upper, why="nothing is proved"),
            Cell(row.text_accuracy, interval=row.text_accuracy_interval),
            row.verdict or "-", row.certificate or "-",
        )
        for row in result.rows
    ]  # fmt: skip
    figure = Figure(
        "accuracy", lambda: _accuracy(result.rows), "Share of tokens named by the attack, by site, one line a noise",
        "Share of tokens that the attack names, by site.", 340,
    )  # fmt: skip
    lead = "Whoever attacks has the model and knows how the release was made and damaged."
    return Section("Attacks", lead, [figure, Table(columns, rows)])


def _accuracy(rows: list[LeakRow]) -> go.Figure:
    series = {
        f"noise {noise:g}" if defence == "none" else f"{defence}, {noise:g}": (
            [row.site for row in rows if (row.noise, row.defence) == (noise, defence)],
            [row.attack_accuracy for row in rows if (row.noise, row.defence) == (noise, defence)],
        )
        for noise, defence in dict.fromkeys((row.noise, row.defence) for row in rows)
    }
    figure = figures.lines(series, "", "share of tokens named")
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure
