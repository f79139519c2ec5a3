"""The pages of a training run and of a recovered head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Table, Term, page, section
from headscan.report.kit.figures import empty, lines
from headscan.report.kit.palette import depth_colours
from headscan.report.kit.words import literal, named, number

if TYPE_CHECKING:
    from headscan.training.objective import CurvePoint, Likelihood
    from headscan.training.result import RecoverResult, TrainResult


@page("train")
def head(result: TrainResult) -> Head:
    """What was trained, and how far."""
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
        ("parameters", f"{result.parameters:,}"),
        ("steps", f"{result.steps:,}"),
        ("tokens", f"{result.tokens:,}"),
        ("loss", _nats(result.loss)),
        ("loss without its floor", _nats(result.floor_corrected_loss)),
        *([("penalty at the end", _nats(result.curve[-1].penalty))] if aim.regulariser and result.curve else []),
        *(_held_out(name, found) for name, found in result.heldout.items()),
    ]
    notes = [Prose(f"{note[0].upper()}{note[1:]}.") for note in result.notes]
    notes += [Prose(f"Alarm after step {alarm.step}: {alarm.sentence}") for alarm in result.alarms]
    return Section("What was trained", parts=[Facts("", rows), *notes])


@section("train", 20)
def curve(result: TrainResult) -> Section | None:
    """The loss over steps."""
    lead = "The floor is the least that a contrastive loss can be on a batch in which tokens repeat."
    return _curve(result.curve, lead)


@section("train", 30)
def geometry(result: TrainResult) -> Section | None:
    """The measures of every site over steps."""
    if not result.scan:
        return None

    def draw(measure: str) -> go.Figure:
        figure = empty("step", measure.replace("_", " "))
        names = [row.text("site") for row in result.scan[-1].sites]
        for (light, _), name in zip(depth_colours(len(names)), names, strict=True):
            found = [
                (moment.step, row.number(measure))
                for moment in result.scan
                for row in moment.sites
                if row["site"] == name
            ]
            figure.add_scatter(
                x=[step for step, _ in found], y=[value for _, value in found], name=literal(name), mode="lines+markers",
                line={"color": light, "dash": "dot" if name == "embedding_table" else "solid"},
            )  # fmt: skip
        return figure

    table = Table(
        ["site", Term("average cosine", places=3), Term("effective rank", places=1)],
        [
            (row.text("site"), row.number("average_cosine"), row.number("effective_rank"))
            for row in result.scan[-1].sites
        ],
        title="Geometry at the end",
    )
    cosine = Figure(
        "cosine", draw("average_cosine"), "Average cosine of every site over steps",
        "Average cosine of every site, from the shallowest to the deepest; dotted, the embedding table itself.",
    )  # fmt: skip
    through = _gradient(result)
    rank = Figure(
        "rank", draw("effective_rank"), "Effective rank of every site over steps", "Effective rank of every site."
    )
    return Section("The shape, as training goes on", "Measured on held-out windows.", [cosine, rank, *through, table])


def _gradient(result: TrainResult) -> list[Figure]:
    """How much of the logits' gradient passes the head, over steps."""
    found = [(moment.step, moment.gradient) for moment in result.scan if moment.gradient is not None]
    if not found:
        return []
    steps = [step for step, _ in found]
    series: dict[str, tuple[list[int], list[float | None]]] = {
        "kept norm": (steps, [each.kept_norm for _, each in found]),
        "null of the leverages": (steps, [each.kept_norm_leverage for _, each in found]),
        "null of a random head": (steps, [each.kept_norm_random for _, each in found]),
    }
    caption = (
        "Share of the norm of the logits' gradient that lies in the head's column space, beside what a head of that shape "
        "keeps by its shape alone. Norm that is not kept is no learning that is lost."
    )
    drawn = lines(series, "step", "share of the norm")
    return [Figure("gradient", drawn, "The logits' gradient through the head over steps", caption)]


@page("recover")
def recovered_head(result: RecoverResult) -> Head:
    """Which model, and how."""
    said = f"{result.after.nats_per_token:.3f} nats a held-out token, by the recovery {result.recovery}."
    return Head([f"A head for {named(result.models[0].name)}"], said)


@section("recover", 10)
def recovered(result: RecoverResult) -> Section:
    """The likelihood before and after."""
    rows = [
        ("recovery", result.recovery),
        ("parameters", f"{result.parameters:,}"),
        ("steps", f"{result.steps:,}"),
        ("tokens", f"{result.tokens:,}"),
        _held_out("before", result.before),
        _held_out(result.recovery, result.after),
    ]
    return Section("What was recovered", parts=[Facts("", rows)])


@section("recover", 20)
def fitting(result: RecoverResult) -> Section | None:
    """The loss of the training of the head."""
    return _curve(result.curve, "Cross-entropy of the training of the head.")


def _curve(points: list[CurvePoint], lead: str) -> Section | None:
    if not points:
        return None
    series = {
        name.replace("_", " "): (
            [point.step for point in points if getattr(point, name) is not None],
            [getattr(point, name) for point in points if getattr(point, name) is not None],
        )
        for name in ("loss", "floor_corrected_loss")
    }
    drawn = lines({name: found for name, found in series.items() if found[0]}, "step", "nats", markers=False)
    return Section("The learning curve", lead, [Figure("curve", drawn, "Loss over steps", "Loss in nats over steps.")])


def _held_out(name: str, found: Likelihood) -> tuple[str, str]:
    text = f"{number(found.nats_per_token)} nats a token"
    return f"held out ({name})", text + (f", {number(found.bits_per_byte)} bits a byte" if found.bits_per_byte else "")


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} nats"
