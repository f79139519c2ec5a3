"""Defences side by side: bits that remain against what the model loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Facts, Figure, Prose, Section, Table, figures, palette, section
from headscan.report.kit.words import literal
from headscan.report.pages.invert import LEAST, RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.leaks.result import LeakedGradient, LeakRow, PrivacyResult
    from headscan.report.kit.parts import Part


HALF = 0.5
LOST = Column("nats lost", "What the model loses if it goes on with what is released.")
FOUND = Column("still found", "Passages that their first half finds first among what is released of all.", percent=True)


def worth(row: LeakRow) -> Cell:
    """What is left of the release's use: nats lost, or of embeddings the passages that are still found."""
    if row.retrieval is not None:
        return Cell(row.retrieval, interval=row.retrieval_interval)
    return Cell(row.loss_added, interval=row.loss_added_interval, why="was not run")


def remains(row: LeakRow, beside: str = "") -> str:
    """At this setting at least a bits of b remain, and the model loses c nats; `beside`: what else remains, a clause."""
    low, high, of = row.bits_lower or 0.0, row.bits_upper or 0.0, row.prior_bits or 0.0
    lost = "" if row.loss_added is None else f", and the model loses {row.loss_added:.2f} nats a token"
    lost = lost if row.retrieval is None else f", and {row.retrieval:.0%} of passages are still found"
    said = f"at least {low:.2f} of {of:.2f} bits a token remain (at most {high:.2f})"
    return f"{_setting(row)} at {row.site} {said}{beside}{lost}."


def _setting(row: LeakRow) -> str:
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
        row = min(safe, key=lambda one: float("inf") if (cost := _cost(one)) is None else cost)
        return f"{remains(row)} No cheaper setting tried is proved to leave half of the bits or fewer."
    row = min(rows, key=lambda one: one.bits_upper or 0.0)
    return f"No setting tried is proved to leave half of the bits or fewer. {remains(row)}"


def _rows(result: PrivacyResult) -> list[LeakRow]:
    return [row for row in result.rows if row.bits_upper is not None]


def _cost(row: LeakRow) -> float | None:
    """What a setting costs: nats a token that the model loses, of embeddings the share of passages no longer found."""
    return row.loss_added if row.retrieval is None else 1 - row.retrieval


@section("privacy", 8)
def frontier(result: PrivacyResult) -> Section | None:
    """Bits against what a setting costs, one line a defence."""
    rows = [row for row in _rows(result) if _cost(row) is not None]
    if len({row.defence for row in rows}) < 2:
        return None
    found = rows[0].retrieval is not None
    lost = "share of passages no longer found" if found else "nats a token that the model loses"
    figure = Figure(
        "frontier", lambda: _frontier(rows, lost),
        f"Bits a token that remain against {lost}, one line a defence, one point a noise",
        f"Bits a token that remain, by Monte Carlo or at most, against {lost}; one line a defence at a site, one point a noise. "
        "The nearer to the lower left, the better the defence.", 420,
    )  # fmt: skip
    columns: list[Column | str] = [
        Column("defence", text=True), "release", "noise", Column("at least", "Proved from below."),
        Column("at most", "Proved from above."), Column("of", "Entropy of a token under the prior."),
        Column("tokens named", "By the attack, in the mean over the prior.", percent=True),
        FOUND if found else LOST,
    ]  # fmt: skip
    ranked = sorted(rows, key=lambda row: (row.bits_upper or 0.0, _cost(row) or 0.0))
    cells = [
        (
            row.defence, row.site, row.noise, row.bits_lower, row.bits_upper, row.prior_bits,
            Cell(row.attack_accuracy, interval=row.attack_accuracy_interval),
            worth(row),
        )
        for row in ranked
    ]  # fmt: skip
    lead = f"What protects most at least cost, the fewest bits first. {result.what}"
    return Section("Defences on one frontier", lead, [figure, Table(columns, cells)])


def _frontier(rows: list[LeakRow], lost: str) -> go.Figure:
    """One line a defence and site."""
    figure = figures.empty(lost, "bits a token that remain")
    for index, (defence, site) in enumerate(dict.fromkeys((row.defence, row.site) for row in rows)):
        some = sorted(
            (row for row in rows if (row.defence, row.site) == (defence, site)), key=lambda row: _cost(row) or 0.0
        )
        figure.add_scatter(
            x=[_cost(row) for row in some],
            y=[row.bits_upper if row.bits_truth is None else row.bits_truth for row in some],
            text=[f"noise {row.noise:g}" for row in some], name=literal(f"{defence}, {site}"), mode="lines+markers",
            line={"color": palette.model_colour(index)}, marker={"size": 7},
            hovertemplate="%{text}: %{y:.2f} bits, cost %{x:.2f}",
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


# ---- What a leaked gradient shows.


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


@section("privacy", 35)
def order(result: PrivacyResult) -> Section | None:
    """The texts that the second stage puts in order."""
    shown = result.gradient
    if shown is None or shown.texts_found is None:
        return None
    lines = [
        RecoveredLine([RecoveredToken(one.string, one.in_batch, title=f"{one.distance:.1e}")])
        for one in shown.texts[:50]
    ]
    right = sum(one.in_batch for one in shown.texts)
    lead = (
        f"Block 1's inputs depend on all tokens before: a beginning that was in the batch lies in the span of its gradient (rank "
        f"{shown.second_rank} of {shown.width}). {shown.texts_found:.0%} of the batch's texts are read in their order, all but "
        f"their last tokens; of the {len(shown.texts)} read, {right} were there."
    )
    return Section("Texts in order", lead, [recovered(lines)] if lines else [])


@section("privacy", 40)
def batch(result: PrivacyResult) -> Section | None:
    """The texts of the step."""
    if result.gradient is None:
        return None
    rows = [[RecoveredToken(token, True) for token in row] for row in result.gradient.batch_strings[:50]]
    lead = "What the step was made on, for comparison; nothing of it was used."
    return Section("The batch", lead, [recovered([RecoveredLine(row) for row in rows])])
