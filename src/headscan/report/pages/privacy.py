"""The page of a privacy report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Cell,
    Column,
    Facts,
    Figure,
    Head,
    Prose,
    Section,
    Table,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import literal, named
from headscan.report.pages._recovered import LEAST, RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.inversion.privacy_result import LeakedGradient, PrivacyResult, ReleaseRow
    from headscan.report.kit.parts import Part

__all__: list[str] = []


@page("privacy")
def head(result: PrivacyResult) -> Head:
    """What leaked, in one sentence."""
    return Head([named(result.models[0].name)], _said(result))


def _said(result: PrivacyResult) -> str:
    if result.gradient is not None:
        share = f"{100 * result.gradient.recall:.1f} %"
        return f"The gradient of one training step gives away {share} of the tokens of its batch."
    undamaged = [row for row in result.rows if row.damage == "none"]
    exact = [row.token_accuracy for row in undamaged if row.method == "exact"]
    gradient = [row.token_accuracy for row in undamaged if row.method == "gradient"]
    words = f"From clean states an exact search recovers {_range(exact)} of the tokens, gradients {_range(gradient)}."
    hurt = [row for row in result.rows if row.damage != "none"]
    if hurt:
        worst = min(hurt, key=lambda row: row.token_accuracy)
        words += f" The damage that protects most, {worst.damage} at {worst.site}, leaves {worst.token_accuracy:.0%}."
    return words


def _range(shares: list[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low} to {high}"


def _attacks(rows: list[ReleaseRow]) -> dict[str, list[ReleaseRow]]:
    """The rows by method and damage, each in the order of the sites."""
    found: dict[str, list[ReleaseRow]] = {}
    for row in rows:
        name = f"{row.method} search" if row.method == "exact" else row.method
        found.setdefault(f"{name}, {'clean' if row.damage == 'none' else row.damage}", []).append(row)
    return found


@section("privacy", 10)
def accuracy(result: PrivacyResult) -> Section | None:
    """Tokens recovered by site and damage."""
    if result.gradient is not None:
        return None
    attacks, sites = _attacks(result.rows), list(dict.fromkeys(row.site for row in result.rows))
    figure = Figure(
        "accuracy", lambda: _accuracy(attacks), "Share of tokens recovered at each site, for each kind of damage",
        f"Share of {result.rows[0].tokens} tokens recovered by site. Noise is Gaussian, its norm a share of each state's "
        "norm; states are rounded to so many bits; weights of 8 bits are those of the model whose states leaked, while "
        "whoever inverts has the full ones.", 400,
    )  # fmt: skip
    matrix = Table(
        ["tokens recovered", *(Column(site, percent=True) for site in sites)],
        [
            (name, *(Cell(row.token_accuracy, share=row.token_accuracy) for row in rows))
            for name, rows in attacks.items()
        ],
    )
    lead = (
        "All states of a site are taken as leaked. Whoever inverts them has the model and knows how they were damaged."
    )
    return Section("Tokens recovered", lead, [figure, matrix])


def _accuracy(attacks: dict[str, list[ReleaseRow]]) -> go.Figure:
    series = {
        name: ([row.site for row in rows], [row.token_accuracy for row in rows]) for name, rows in attacks.items()
    }
    figure = figures.lines(series, "", "share of tokens recovered")
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure


@section("privacy", 20)
def cost(result: PrivacyResult) -> Section | None:
    """What each token took."""
    if result.gradient is not None:
        return None
    rows = [
        (row.site, row.damage, row.method, row.passes_per_token, 1000 * (row.seconds_per_token or 0.0))
        for row in result.rows
    ]
    columns = [
        Column("site"),
        Column("damage", text=True),
        Column("method", text=True),
        Column("passes a token", places=0),
    ]
    lead = "Token positions run through the model for each token recovered; a backward pass counts as two."
    return Section(
        "What it costs", lead, [Table([*columns, Column("ms a token", places=1)], rows, where="page", folded=True)]
    )


@section("privacy", 30)
def found(result: PrivacyResult) -> Section | None:
    """The tokens in a gradient's span."""
    shown = result.gradient
    if shown is None:
        return None
    tokens = [
        RecoveredToken(
            one.string, one.in_batch,
            title=f"{one.distance:.1e}" if one.in_batch else f"{'at another position' if one.elsewhere else 'not'} in the batch",
        )
        for one in shown.tokens[:500]
    ]  # fmt: skip
    figure = Figure(
        "distances", lambda: _distances(shown),
        "Distance of every listed token from the span of the gradient, on a logarithmic scale",
        "Relative distance of each listed token's input vector from the span of the gradient. The dotted line is the nearest "
        "token that is not listed: the wider the gap, the surer the list.",
    )  # fmt: skip
    lead = "The gradient of a linear map lies in the span of its inputs. A token is listed if its input vector lies in that span."
    parts: list[Part] = [recovered([RecoveredLine(tokens)]), Prose(shown.certified), _facts(shown), figure]
    return Section("What the step shows", lead, parts)


def _facts(shown: LeakedGradient) -> Facts:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    rows = [
        ("batch", f"{len(shown.batch)} texts of {len(shown.batch[0])} tokens"),
        ("tokens of the batch found", share(shown.recall)),
        ("found tokens that were there", share(shown.precision)),
        ("at this or another position", share(shown.precision_anywhere)),
        ("rank of the gradient", f"{shown.rank} of {shown.width}"),
        ("positions", "recovered" if shown.with_positions else "not recovered"),
        ("nearest token outside", "-" if shown.nearest_other is None else f"{shown.nearest_other:.1e}"),
    ]
    return Facts("In short", rows)


def _distances(shown: LeakedGradient) -> go.Figure:
    """Distance of every listed token from the gradient's span, logarithmic; the nearest token left out is a line."""
    figure = figures.empty("tokens found", "distance from the span")
    for index, (there, name) in enumerate(((True, "in the batch there"), (False, "not in the batch, or elsewhere"))):
        rows = [(number, one) for number, one in enumerate(shown.tokens) if one.in_batch is there]
        if rows:
            figure.add_scatter(
                x=[number for number, _ in rows], y=[max(one.distance, LEAST) for _, one in rows],
                text=[literal(one.string) for _, one in rows], name=name, mode="markers",
                marker={"color": palette.model_colour(index), "symbol": ("circle", "x")[index], "size": 7},
                hovertemplate="%{text}<br>%{y:.1e}",
            )  # fmt: skip
    if shown.nearest_other:
        figures.mark_level(figure, shown.nearest_other, "nearest token left out")
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    return figure


@section("privacy", 40)
def batch(result: PrivacyResult) -> Section | None:
    """The texts of the step."""
    if result.gradient is None:
        return None
    rows = [[RecoveredToken(token, True) for token in row] for row in result.gradient.batch_strings[:50]]
    lead = "What the step was made on, for comparison; nothing of it was used."
    return Section("The batch", lead, [recovered([RecoveredLine(row) for row in rows])])
