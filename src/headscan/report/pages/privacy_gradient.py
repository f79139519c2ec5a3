"""The section of a privacy report on a leaked gradient: the tokens and texts of its batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Prose, Section, section
from headscan.report.kit.figures import mark_level
from headscan.report.kit.parts import Part, facts
from headscan.report.pages.recovered_tokens import (
    Dots,
    RecoveredLine,
    RecoveredToken,
    add_dots,
    log_distances,
    recovered,
)

if TYPE_CHECKING:
    from headscan.leaks.result import GradientToken, LeakedGradient, PrivacyResult

MOST_TOKENS = 500
MOST_TEXTS = 50


@section("privacy", 30)
def found(result: PrivacyResult) -> Section | None:
    """Return the tokens in a gradient's span, the texts put in order, and the batch."""
    gradient = result.gradient
    if gradient is None:
        return None
    figure = Figure(
        "distances",
        lambda: _distances(gradient),
        "Distance of every listed token from the span of the gradient, on a logarithmic scale",
        "Relative distance of each listed token's input vector from the span of the gradient. The "
        "dotted line is the nearest token that is not listed: the wider the gap, the surer the "
        "list.",
    )
    lead = (
        "The gradient of a linear map lies in the span of its inputs. A token is listed if its "
        "input vector lies in that span."
    )
    tokens = [_listed_token(token) for token in gradient.tokens[:MOST_TOKENS]]
    parts: list[Part] = [
        recovered([RecoveredLine(tokens)]),
        Prose(gradient.certified),
        _facts(gradient),
        figure,
        *_ordered_texts(gradient),
        Prose("The batch, for comparison: nothing of it was used", heading=True),
        recovered(_batch(gradient)),
    ]
    return Section("What the step shows", lead, parts)


def _listed_token(token: GradientToken) -> RecoveredToken:
    """Return a token of the list; pointing at it shows its distance, or where it was."""
    if token.in_batch:
        title = f"{token.distance:.1e}"
    elif token.elsewhere:
        title = "at another position in the batch"
    else:
        title = "not in the batch"
    return RecoveredToken(token.string, token.in_batch, title=title)


def _facts(gradient: LeakedGradient) -> Facts:
    names = ("recall", "precision", "precision_anywhere", "with_positions", "nearest_other")
    rows = [
        ("batch", f"{len(gradient.batch)} texts of {len(gradient.batch[0])} tokens"),
        ("rank of the gradient", f"{gradient.rank} of {gradient.width}"),
        *facts(gradient, *names),
    ]
    return Facts("In short", rows)


def _batch(gradient: LeakedGradient) -> list[RecoveredLine]:
    """Return the texts of the batch, as they were."""
    lines = []
    for text in gradient.batch_strings[:MOST_TEXTS]:
        lines.append(RecoveredLine([RecoveredToken(token, True) for token in text]))
    return lines


def _distances(gradient: LeakedGradient) -> go.Figure:
    """Return the distance of every listed token from the gradient's span, on a log axis.

    The nearest token that is not listed is a line.
    """
    figure = log_distances("tokens found", "distance from the span")
    groups = [
        (True, "in the batch there", "circle"),
        (False, "not in the batch, or elsewhere", "x"),
    ]
    for index, (in_batch, name, symbol) in enumerate(groups):
        numbered = [
            (number, token)
            for number, token in enumerate(gradient.tokens)
            if token.in_batch is in_batch
        ]
        dots = Dots(
            name,
            [number for number, _ in numbered],
            [token.distance for _, token in numbered],
            [token.string for _, token in numbered],
            symbol,
            size=7,
        )
        add_dots(figure, dots, index, "%{text}<br>%{y:.1e}")
    if gradient.nearest_other:
        mark_level(figure, gradient.nearest_other, "nearest token left out")
    return figure


def _ordered_texts(gradient: LeakedGradient) -> list[Part]:
    """Return the texts that the second stage puts in order; nothing where it was not run."""
    if gradient.texts_found is None:
        return []
    right = sum(text.in_batch for text in gradient.texts)
    sentence = (
        "Block 1's inputs depend on all tokens before: a beginning that was in the batch lies in "
        f"the span of its gradient (rank {gradient.second_rank} of {gradient.width}). "
        f"{gradient.texts_found:.0%} of the batch's texts are read in their order, all but their "
        f"last tokens; of the {len(gradient.texts)} read, {right} were there."
    )
    parts: list[Part] = [Prose("Texts in order", heading=True), Prose(sentence)]
    lines = []
    for text in gradient.texts[:MOST_TEXTS]:
        token = RecoveredToken(text.string, text.in_batch, title=f"{text.distance:.1e}")
        lines.append(RecoveredLine([token]))
    if lines:
        parts.append(recovered(lines))
    return parts
