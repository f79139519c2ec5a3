"""The page of an evaluation: bars of the numbers that share a scale, BLiMP's paradigms, and all as
a table.
"""

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
"""What the names of BLiMP's single paradigms begin with: too many to stand among the others."""


@page("evaluation")
def head(result: EvaluationResult) -> Head:
    """Which model, on which tasks."""
    tasks = list(dict.fromkeys(score.task for score in result.scores))
    limit = result.protocol.settings.get("limit")
    return Head(
        [f"Evaluation: {named(result.models[0].name)}"],
        f"{', '.join(tasks)}{f', at most {limit} items each' if limit else ''}.",
    )


@section("evaluation", 10)
def scores(result: EvaluationResult) -> Section:
    """The numbers between -1 and 1 as bars, and all of them as a table."""
    shown = [score for score in result.scores if not score.number.startswith(PARADIGM)]
    scaled = [score for score in shown if score.value is not None and -1 <= score.value <= 1]
    table = Table(
        [
            "task",
            Term("number"),
            Term("value", "With its 95 % interval over other items.", spread=True),
        ],
        [(score.task, _words(score), _cell(score)) for score in shown],
        title=f"All {len(shown)} numbers",
    )
    drawn = bars(
        [f"{score.task}: {_words(score)}" for score in scaled],
        [score.value or 0.0 for score in scaled],
    )
    caption = "By task. What chance gives stands in the table where it is known."
    figure = Figure(
        "scores",
        drawn,
        "Accuracies, correlations and cosines by task",
        caption,
        90 + 22 * len(scaled),
    )
    lead = "Numbers between −1 and 1: accuracies, correlations, cosines."
    return Section("What it can do", lead, [*([figure] if scaled else []), table])


@section("evaluation", 20)
def paradigms(result: EvaluationResult) -> Section | None:
    """BLiMP, best first."""
    found = [
        score
        for score in result.scores
        if score.number.startswith(PARADIGM) and score.value is not None
    ]
    if not found:
        return None
    found.sort(key=lambda score: -(score.value or 0.0))

    def draw() -> go.Figure:
        figure = bars([_words(score) for score in found], [score.value or 0.0 for score in found])
        figure.add_vline(x=0.5, line={"color": ROLES["muted"][0], "dash": "dot"})
        return figure

    lead = (
        "Share of minimal pairs whose right sentence is the more probable; the dotted line is "
        "chance."
    )
    table = Table(
        ["paradigm", "accuracy"],
        [(_words(score), _cell(score)) for score in found],
        folded=True,
        where="page",
        title=f"All {len(found)} paradigms",
    )
    figure = Figure(
        "paradigms",
        draw,
        "Accuracy of every BLiMP paradigm, best first",
        "BLiMP.",
        90 + 18 * len(found),
    )
    return Section("Grammar, by paradigm", lead, [figure, table])


def _cell(score: Score) -> Cell:
    low_high = score.interval
    return Cell(score.value, None if low_high is None else (low_high[0], low_high[1]))


def _words(score: Score) -> str:
    return score.number.removeprefix(PARADIGM).replace("_", " ")
