"""What a leaked gradient shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Prose, Section, figures, palette, section
from headscan.report.kit.words import literal
from headscan.report.pages._recovered import LEAST, RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.leaks.result import LeakedGradient, PrivacyResult
    from headscan.report.kit.parts import Part

__all__: list[str] = []


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
