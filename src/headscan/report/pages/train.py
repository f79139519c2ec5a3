"""The pages of a training run and of a recovered head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Term, page, section, table
from headscan.report.kit.figures import lines
from headscan.report.kit.parts import Part
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.training.records import CurvePoint, GeometrySnapshot, Likelihood
    from headscan.training.result import RecoverResult, TrainResult

GEOMETRY_TERMS = {
    "average_cosine": Term("average cosine", places=3),
    "effective_rank": Term("effective rank", places=1),
}
GRADIENT_LINES = {
    "kept norm": "kept_norm",
    "null of the leverages": "kept_norm_leverage",
    "null of a random head": "kept_norm_random",
}


@page("train")
def head(result: TrainResult) -> Head:
    """Return the recipe, and the size of the run."""
    recipe = result.recipe
    sentence = (
        f"{result.parameters:,} parameters, {result.steps:,} steps, {result.tokens:,} tokens."
    )
    return Head([f"Training: {recipe.name}, {recipe.size}, {result.objective.name}"], sentence)


@section("train", 10)
def summary(result: TrainResult) -> Section:
    """Return what was trained and its losses."""
    objective = result.objective
    parameters = [f"{name} {value}" for name, value in objective.parameters.items()]
    rows = [
        ("recipe", f"{result.recipe.name}, {result.recipe.size}"),
        ("objective", ", ".join([objective.name, *parameters])),
    ]
    if objective.regulariser:
        rows.append(("regulariser", objective.regulariser))
    rows += _size(result)
    rows.append(("loss", _nats(result.loss)))
    rows.append(("loss without its floor", _nats(result.floor_corrected_loss)))
    if objective.regulariser and result.curve:
        rows.append(("penalty at the end", _nats(result.curve[-1].penalty)))
    rows += [_held_out(name, likelihood) for name, likelihood in result.heldout.items()]
    parts: list[Part] = [Facts("", rows)]
    parts += [Prose(f"{note[0].upper()}{note[1:]}.") for note in result.notes]
    for alarm in result.alarms:
        parts.append(Prose(f"Alarm after step {alarm.step}: {alarm.sentence}"))
    return Section("What was trained", parts=parts)


def _size(result: TrainResult | RecoverResult) -> list[tuple[str, str]]:
    return [
        ("parameters", f"{result.parameters:,}"),
        ("steps", f"{result.steps:,}"),
        ("tokens", f"{result.tokens:,}"),
    ]


@section("train", 20)
def curve(result: TrainResult) -> Section | None:
    """Return the loss over steps."""
    return _learning_curve(
        result.curve,
        "The floor is the least that a contrastive loss can be on a batch in which tokens repeat.",
    )


@section("train", 30)
def geometry(result: TrainResult) -> Section | None:
    """Return the measures of every site over steps; None where they were not measured."""
    snapshots = result.scan
    if not snapshots:
        return None
    cosine = Figure(
        "cosine",
        _over_steps(snapshots, "average_cosine"),
        "Average cosine of every site over steps",
        "Average cosine of every site, from the shallowest to the deepest; dotted, the embedding "
        "table itself.",
    )
    rank = Figure(
        "rank",
        _over_steps(snapshots, "effective_rank"),
        "Effective rank of every site over steps",
        "Effective rank of every site.",
    )
    at_the_end = table(
        snapshots[-1].sites,
        "site",
        *GEOMETRY_TERMS,
        terms=GEOMETRY_TERMS,
        title="Geometry at the end",
    )
    parts: list[Part] = [cosine, rank, *_gradient(snapshots), at_the_end]
    return Section(
        "The shape, as training goes on", "The measures were taken on held-out windows.", parts
    )


def _over_steps(snapshots: Sequence[GeometrySnapshot], measure: str) -> go.Figure:
    """Return a measure of every site over steps; the line of the embedding table is dotted."""
    steps = [snapshot.step for snapshot in snapshots]
    series = {}
    for row in snapshots[-1].sites:
        site = row.text("site")
        series[site] = (steps, [snapshot.site(site).number(measure) for snapshot in snapshots])
    figure = lines(series, "step", measure.replace("_", " "), by_depth=True)
    return figure.update_traces(line={"dash": "dot"}, selector={"name": "embedding_table"})


def _gradient(snapshots: Sequence[GeometrySnapshot]) -> list[Figure]:
    """Return how much of the logits' gradient passes the head, over steps."""
    gradients = {
        snapshot.step: snapshot.gradient for snapshot in snapshots if snapshot.gradient is not None
    }
    if not gradients:
        return []
    steps = list(gradients)
    series = {}
    for title, field in GRADIENT_LINES.items():
        series[title] = (steps, [getattr(gradient, field) for gradient in gradients.values()])
    caption = (
        "Share of the norm of the logits' gradient that lies in the head's column space, "
        "compared with a random head of that shape. A small share does not show that "
        "learning is lost."
    )
    figure = lines(series, "step", "share of the norm")
    return [Figure("gradient", figure, "The logits' gradient through the head over steps", caption)]


@page("recover")
def recovered_head(result: RecoverResult) -> Head:
    """Return the held-out loss of the recovered head."""
    sentence = (
        f"{result.after.nats_per_token:.3f} nats a held-out token, by the recovery "
        f"{result.recovery}."
    )
    name = named(result.models[0].name)
    return Head([f"A head for {name}"], sentence, conclusion=_what_the_head_gives(result))


def _what_the_head_gives(result: RecoverResult) -> str:
    """Say what the head gains over the embedding's rows, and how it is used."""
    gain = result.before.nats_per_token - result.after.nats_per_token
    if gain <= 0:
        return (
            "The recovered head predicts no better than the embedding's rows as they are: try "
            "another --mode, or more text."
        )
    vocabulary = result.models[0].vocabulary
    if vocabulary and result.after.nats_per_token >= math.log(vocabulary):
        return (
            f"It predicts no better than guessing among all {vocabulary:,} tokens "
            f"({math.log(vocabulary):.2f} nats): try another --mode, or more text."
        )
    return (
        f"It is {gain:.2f} nats a token better than the embedding's rows as they are. The folder "
        "holds the whole model with its head: load it with AutoModelForCausalLM.from_pretrained."
    )


@section("recover", 10)
def recovered(result: RecoverResult) -> Section:
    """Return the likelihood before and after."""
    rows = [
        ("recovery", result.recovery),
        *_size(result),
        _held_out("embedding rows alone", result.before),
        _held_out(result.recovery, result.after),
    ]
    return Section("What was recovered", parts=[Facts("", rows)])


@section("recover", 20)
def fitting(result: RecoverResult) -> Section | None:
    """Return the loss over the steps of fitting the head."""
    return _learning_curve(result.curve, "Cross-entropy of the training of the head.")


def _learning_curve(points: Sequence[CurvePoint], lead: str) -> Section | None:
    """Return the loss over steps, and the loss above its floor where that is known."""
    if not points:
        return None
    series: dict[str, tuple[list[int], list[float]]] = {}
    for name in ("loss", "floor_corrected_loss"):
        losses = {}
        for point in points:
            loss = getattr(point, name)
            if loss is not None:
                losses[point.step] = loss
        if losses:
            series[name.replace("_", " ")] = (list(losses), list(losses.values()))
    figure = lines(series, "step", "nats", markers=False)
    part = Figure("curve", figure, "Loss over steps", "Loss in nats over steps.")
    return Section("The learning curve", lead, [part])


def _held_out(name: str, likelihood: Likelihood) -> tuple[str, str]:
    text = f"{number(likelihood.nats_per_token)} nats a token"
    if likelihood.bits_per_byte:
        text += f", {number(likelihood.bits_per_byte)} bits a byte"
    return f"held out ({name})", text


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} nats"
