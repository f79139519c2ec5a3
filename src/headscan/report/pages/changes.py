"""The page of what a fine-tune changed: layers, tokens and contexts, beside control changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Head, Section, Term, page, section, table
from headscan.report.kit.figures import lines
from headscan.report.kit.words import named, number
from headscan.report.pages.contexts import context_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headscan.comparison.result import (
        ChangesResult,
        LayerChange,
        TokenChange,
    )

NATS = "nats"
CHANGE_LINES = {"the fine-tune": "size", "control changes (median)": "size_controls"}


@page("changes")
def changes(result: ChangesResult) -> Head:
    """Return both models, and how far the change is from control changes."""
    base, tuned = (named(model.name) for model in result.models)
    tokens = _count(result.tokens_beyond, "token")
    contexts = _count(result.contexts_beyond, "position")
    sentence = (
        f"{tuned} diverges from {base} by {number(result.divergence)} nats a token, "
        f"{result.controls} {result.control_kind} of the same size by "
        f"{number(result.divergence_controls)}. {tokens} and {contexts} of {result.tokens:,} moved "
        "further than these controls explain."
    )
    return Head([base, tuned], sentence)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@section("changes", 10)
def by_layer(result: ChangesResult) -> Section:
    """Return the change of the states, site by site, beside the controls."""
    figure = Figure(
        "changes",
        partial(_layer_lines, result.layers),
        "Size of the change of the states by site, over the size of the states",
        height=320,
    )
    writes = Term("its mean makes likelier", where="page")
    removes = Term("less likely", where="page")
    share = "Share of the change's energy that all tokens have in common."
    terms = {
        "site": Term("site"),
        "size": Term(
            "change", "Root mean square of the change over that of the base's states.", places=4
        ),
        "size_controls": Term("controls' change", "The same, median of the controls.", places=4),
        "common": Term("common", share, places=3),
        "common_controls": Term("controls' common", "The same of the controls.", places=3),
    }
    numbers = table(
        result.layers,
        *terms,
        (writes, partial(_tokens_of, "writes")),
        (removes, partial(_tokens_of, "removes")),
        terms=terms,
        title="Sites",
        where="page",
    )
    lead = (
        "The mean difference of the states, added to what the head reads, makes these tokens "
        "likelier and less likely."
    )
    return Section("Where the states changed", lead, [figure, numbers], name="layers")


def _layer_lines(layers: Sequence[LayerChange]) -> go.Figure:
    sites = [layer.site for layer in layers]
    series = {}
    for title, field in CHANGE_LINES.items():
        series[title] = (sites, [getattr(layer, field) for layer in layers])
    return lines(series, "site", "change / states", zero=True)


def _tokens_of(field: str, layer: LayerChange) -> str:
    return "  ".join(getattr(layer, field))


@section("changes", 20)
def tokens(result: ChangesResult) -> Section:
    """Return the tokens whose probability changed most, beside the controls."""
    terms = {
        "token": Term("token"),
        "rise": Term("rise", "Mean rise of its log-probability.", unit=NATS, spread=True),
        "controls": Term("controls' rise", "The same, mean of the controls.", unit=NATS),
        "score": Term(
            "score",
            "Distance of the rise, beyond the median token's, from the controls' mean, in their "
            "standard deviations, after the directions that they share.",
            places=1,
        ),
    }
    beyond = Term(f"beyond {number(result.token_limit)}", "Beyond the limit of the score.")
    if result.tokens_beyond:
        lead = f"{_count(result.tokens_beyond, 'token')} beyond the limit of the controls."
    else:
        lead = "No token is beyond the limit of the controls; these have the largest scores."
    numbers = table(
        result.token_changes,
        *terms,
        (beyond, _beyond),
        terms=terms,
        title="Tokens",
    )
    return Section("Which tokens rose and fell", lead, [numbers], name="tokens")


def _beyond(change: TokenChange) -> str:
    return "yes" if change.beyond else "no"


@section("changes", 30)
def contexts(result: ChangesResult) -> Section:
    """Return the contexts with the largest divergence, in their text."""
    terms = {
        "divergence": Term("divergence", "KL(tuned ‖ base).", unit=NATS, places=3),
        "controls": Term(
            "controls", "Largest divergence of a control at this position.", unit=NATS, places=3
        ),
    }
    numbers = context_table(result.contexts, "controls", terms=terms)
    lead = (
        f"The positions with the largest divergence; {result.contexts_beyond:,} of "
        f"{result.tokens:,} are beyond {number(result.context_limit)} nats, which the controls "
        "reach nowhere."
    )
    return Section("The most telling contexts", lead, [numbers], name="contexts")
