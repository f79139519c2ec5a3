"""The page of an evaluation: scaled numbers as bars, BLiMP's paradigms, all numbers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Figure, Head, Section, Table, Term, page, section
from headscan.report.kit.figures import bars
from headscan.report.kit.palette import ROLES
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan_lab.evaluation.result import EvaluationResult, Score


PARADIGM = "paradigms "
"""The beginning of the names of BLiMP's paradigms: too many to stand among the other numbers."""


@page("evaluation")
def head(result: EvaluationResult) -> Head:
    """Return which model was tried on which tasks."""
    tasks = list(dict.fromkeys(score.task for score in result.scores))
    limit = result.protocol.settings.get("limit")
    items = f", at most {limit} items each" if limit else ""
    return Head([f"Evaluation: {named(result.models[0].name)}"], f"{', '.join(tasks)}{items}.")


@section("evaluation", 10)
def scores(result: EvaluationResult) -> Section:
    """Show the numbers between -1 and 1 as bars, and all of them as a table."""
    shown = [score for score in result.scores if not score.number.startswith(PARADIGM)]
    scaled = [score for score in shown if score.value is not None and -1 <= score.value <= 1]
    table = Table(
        [
            "task",
            Term("number"),
            Term("value", "With its 95 % interval over other items.", spread=True),
        ],
        [(score.task, _number_name(score), _cell(score)) for score in shown],
        title=f"All {len(shown)} numbers",
    )
    labels = [f"{score.task}: {_number_name(score)}" for score in scaled]
    figure = Figure(
        "scores",
        bars(labels, [score.value or 0.0 for score in scaled]),
        "Accuracies, correlations and cosines by task",
        "By task. What chance gives stands in the table where it is known.",
        90 + 22 * len(scaled),
    )
    lead = "Numbers between −1 and 1: accuracies, correlations, cosines."
    return Section("What it can do", lead, [figure, table] if scaled else [table])


@section("evaluation", 20)
def paradigms(result: EvaluationResult) -> Section | None:
    """Show BLiMP's paradigms, best first."""
    paradigm_scores = [
        score
        for score in result.scores
        if score.number.startswith(PARADIGM) and score.value is not None
    ]
    if not paradigm_scores:
        return None
    paradigm_scores.sort(key=lambda score: -(score.value or 0.0))
    names = [_number_name(score) for score in paradigm_scores]

    def draw() -> go.Figure:
        figure = bars(names, [score.value or 0.0 for score in paradigm_scores])
        figure.add_vline(x=0.5, line={"color": ROLES["muted"][0], "dash": "dot"})
        return figure

    lead = (
        "Share of minimal pairs whose right sentence is the more probable; the dotted line is "
        "chance."
    )
    table = Table(
        ["paradigm", "accuracy"],
        [(_number_name(score), _cell(score)) for score in paradigm_scores],
        folded=True,
        where="page",
        title=f"All {len(names)} paradigms",
    )
    figure = Figure(
        "paradigms",
        draw,
        "Accuracy of every BLiMP paradigm, best first",
        "BLiMP.",
        90 + 18 * len(names),
    )
    return Section("Grammar, by paradigm", lead, [figure, table])


def _cell(score: Score) -> Cell:
    if score.interval is None:
        return Cell(score.value, None)
    low, high = score.interval
    return Cell(score.value, (low, high))


def _number_name(score: Score) -> str:
    return score.number.removeprefix(PARADIGM).replace("_", " ")
