"""The pages of a training run and of a recovered head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Term, page, section, table
from headscan.report.kit.figures import lines
from headscan.report.kit.parts import Part
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.training.records import CurvePoint, Likelihood
    from headscan.training.result import RecoverResult, TrainResult

GEOMETRY = {
    "average_cosine": Term("average cosine", places=3),
    "effective_rank": Term("effective rank", places=1),
}


@page("train")
def head(result: TrainResult) -> Head:
    recipe = result.recipe
    said = f"{result.parameters:,} parameters, {result.steps:,} steps, {result.tokens:,} tokens."
    return Head([f"Training: {recipe.name}, {recipe.size}, {result.objective.name}"], said)


@section("train", 10)
def summary(result: TrainResult) -> Section:
    """What came of it."""
    aim = result.objective
    parameters = [f"{name} {value}" for name, value in aim.parameters.items()]
    rows = [
        ("recipe", f"{result.recipe.name}, {result.recipe.size}"),
        ("objective", ", ".join([aim.name, *parameters])),
        *([("regulariser", aim.regulariser)] if aim.regulariser else []),
        *_size(result),
        ("loss", _nats(result.loss)),
        ("loss without its floor", _nats(result.floor_corrected_loss)),
        *(
            [("penalty at the end", _nats(result.curve[-1].penalty))]
            if aim.regulariser and result.curve
            else []
        ),
        *(_held_out(name, likelihood) for name, likelihood in result.heldout.items()),
    ]
    notes = [Prose(f"{note[0].upper()}{note[1:]}.") for note in result.notes]
    notes += [Prose(f"Alarm after step {alarm.step}: {alarm.sentence}") for alarm in result.alarms]
    return Section("What was trained", parts=[Facts("", rows), *notes])


def _size(result: TrainResult | RecoverResult) -> list[tuple[str, str]]:
    return [(name, f"{getattr(result, name):,}") for name in ("parameters", "steps", "tokens")]


@section("train", 20)
def curve(result: TrainResult) -> Section | None:
    return _curve(
        result.curve,
        "The floor is the least that a contrastive loss can be on a batch in which tokens repeat.",
    )


@section("train", 30)
def geometry(result: TrainResult) -> Section | None:
    """The measures of every site over steps."""
    if not result.scan:
        return None

    def draw(measure: str) -> go.Figure:
        series = {
            site: (
                [each.step for each in result.scan],
                [each.site(site).number(measure) for each in result.scan],
            )
            for site in (row.text("site") for row in result.scan[-1].sites)
        }
        figure = lines(series, "step", measure.replace("_", " "), by_depth=True)
        return figure.update_traces(line={"dash": "dot"}, selector={"name": "embedding_table"})

    shown = table(
        result.scan[-1].sites, "site", *GEOMETRY, terms=GEOMETRY, title="Geometry at the end"
    )
    cosine = Figure(
        "cosine",
        draw("average_cosine"),
        "Average cosine of every site over steps",
        "Average cosine of every site, from the shallowest to the deepest; dotted, the embedding "
        "table itself.",
    )
    rank = Figure(
        "rank",
        draw("effective_rank"),
        "Effective rank of every site over steps",
        "Effective rank of every site.",
    )
    parts: list[Part] = [cosine, rank, *_gradient(result), shown]
    return Section("The shape, as training goes on", "Measured on held-out windows.", parts)


def _gradient(result: TrainResult) -> list[Figure]:
    """How much of the logits' gradient passes the head, over steps."""
    kept = {
        snapshot.step: snapshot.gradient
        for snapshot in result.scan
        if snapshot.gradient is not None
    }
    if not kept:
        return []
    names = {
        "kept norm": "kept_norm",
        "null of the leverages": "kept_norm_leverage",
        "null of a random head": "kept_norm_random",
    }
    series = {
        title: (list(kept), [getattr(each, name) for each in kept.values()])
        for title, name in names.items()
    }
    caption = (
        "Share of the norm of the logits' gradient that lies in the head's column space, beside "
        "what a head of that shape "
    )
    caption += "keeps by its shape alone. Norm that is not kept is not necessarily lost learning."
    drawn = lines(series, "step", "share of the norm")
    return [Figure("gradient", drawn, "The logits' gradient through the head over steps", caption)]


@page("recover")
def recovered_head(result: RecoverResult) -> Head:
    said = (
        f"{result.after.nats_per_token:.3f} nats a held-out token, by the recovery "
        f"{result.recovery}."
    )
    return Head([f"A head for {named(result.models[0].name)}"], said)


@section("recover", 10)
def recovered(result: RecoverResult) -> Section:
    """The likelihood before and after."""
    likelihoods = [
        _held_out("embedding rows alone", result.before),
        _held_out(result.recovery, result.after),
    ]
    return Section(
        "What was recovered",
        parts=[Facts("", [("recovery", result.recovery), *_size(result), *likelihoods])],
    )


@section("recover", 20)
def fitting(result: RecoverResult) -> Section | None:
    return _curve(result.curve, "Cross-entropy of the training of the head.")


def _curve(points: list[CurvePoint], lead: str) -> Section | None:
    """The loss over steps."""
    if not points:
        return None
    series: dict[str, tuple[list[int], list[float]]] = {}
    for name in ("loss", "floor_corrected_loss"):
        known = {
            point.step: getattr(point, name) for point in points if getattr(point, name) is not None
        }
        series |= {name.replace("_", " "): (list(known), list(known.values()))} if known else {}
    drawn = lines(series, "step", "nats", markers=False)
    return Section(
        "The learning curve",
        lead,
        [Figure("curve", drawn, "Loss over steps", "Loss in nats over steps.")],
    )


def _held_out(name: str, likelihood: Likelihood) -> tuple[str, str]:
    bits = f", {number(likelihood.bits_per_byte)} bits a byte" if likelihood.bits_per_byte else ""
    return f"held out ({name})", f"{number(likelihood.nats_per_token)} nats a token{bits}"


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} nats"
