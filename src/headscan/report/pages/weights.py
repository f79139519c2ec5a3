"""The page of weights: every matrix beside its random control."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Line,
    Panels,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
    table,
)
from headscan.report.kit.figures import empty, set_log, thin
from headscan.report.kit.words import literal, named
from headscan.run.vocabulary import terms_of
from headscan.statistics.spectra import random_energies
from headscan.weights import MatrixRow, WeightsResult

if TYPE_CHECKING:
    from headscan.run.result import Arrays

CONTROL = Term(
    "if random",
    "The stable rank of a random matrix of the same shape.",
    column="if\nrandom",
)
MOST_PANELS = 8
BLOCK_NUMBER = re.compile(r"[.\[]\d+(?=[.\]]|$)")
COLUMNS = ("stable_rank", "effective_rank", "spikes", "tail_exponent")


@page("weights")
def weights(result: WeightsResult) -> Head:
    """Return the models, and how many of their matrices look random."""
    random = sum(row.random for row in result.matrices)
    count = len(result.matrices)
    looks = f"None of {count} weight matrices looks random."
    if random:
        verb = "looks" if random == 1 else "look"
        looks = f"{random} of {count} weight matrices {verb} random; an alarm needs half of them."
    zero = f" Matrices that are zero: {len(result.zero)}." if result.zero else ""
    names = [named(model.name) for model in result.models]
    return Head(
        [f"Weights of {' less '.join(names)}"],
        f"{looks}{zero}",
        conclusion=_conclusion(random, count),
    )


def _conclusion(random: int, count: int) -> str:
    """Say what the number of matrices that look random means."""
    if random >= count / 2:
        return "Check that this is the checkpoint that was meant, and that it loads whole."
    if random:
        return "Matrices that look random were not trained, or not loaded: see which in the table."
    return (
        "All matrices were trained: each has singular values that random numbers do not have. "
        "Weights alone do not show if the model is good: use headscan checkup with a text."
    )


@section("weights", 10)
def spectra(result: WeightsResult) -> Section:
    """Return the medians over the blocks, and a row a matrix."""
    matrices = table(
        result.matrices,
        "name",
        *COLUMNS,
        (CONTROL, lambda row: row.control["stable_rank"]),
        "distance",
        "random",
        "tail_p",
        title="Each",
        where="page",
    )
    lead = (
        "Each matrix is compared with a random one of the same shape and mean square. No "
        "claim is made about what a tail exponent says of a model."
    )
    figures = _spectrum_panels(result)
    return Section("Spectra", lead, [*figures, _by_kind(result.matrices), matrices])


def _spectrum_panels(result: WeightsResult) -> list[Panels]:
    """Return the spectra beside those of random matrices, a panel a kind of matrix."""
    rows_by_kind = _rows_by_kind(result.matrices)
    kinds = sorted(rows_by_kind, key=lambda kind: -len(rows_by_kind[kind]))[:MOST_PANELS]
    figures = []
    for number, kind in enumerate(kind for kind in rows_by_kind if kind in kinds):
        rows = rows_by_kind[kind]
        draw = partial(_spectra, result.arrays, rows)
        alt = f"Singular values of {kind} by rank, and those of random matrices"
        figures.append(Figure(f"spectrum-{number}", draw, alt, height=240, title=kind))
    caption = (
        "Singular values by rank, of the first block (faint) to the last (strong). Dashed: random "
        "matrices of the first one's shape and mean square. Values above the dashed line are what "
        "training has put into the matrix."
    )
    return [Panels(figures, caption)] if figures else []


def _spectra(arrays: Arrays, rows: Sequence[MatrixRow]) -> go.Figure:
    """Return the spectra of matrices of one kind, and of random ones of the first one's shape."""
    colours = palette.depth_colours(len(rows))
    figure = empty("singular value, by rank", "σ")
    for row, (colour, _) in zip(rows, colours, strict=True):
        values = arrays[row.name]
        _add_spectrum(figure, values, literal(row.name), {"color": colour, "width": 1.4})
    first = rows[0]
    mean_square = float(np.square(arrays[first.name], dtype=np.float64).sum()) / prod(first.shape)
    draws = random_energies(max(first.shape), min(first.shape))
    control = np.sqrt(mean_square * draws.mean(0)[::-1])
    muted = {"color": palette.ROLES["muted"][0], "width": 1.4, "dash": "dash"}
    _add_spectrum(figure, control, "random", muted)
    return set_log(figure, "x", "y").update_layout(showlegend=False)


def _add_spectrum(
    figure: go.Figure, values: npt.NDArray[Any], name: str, line: dict[str, Any]
) -> None:
    ranks = thin(len(values))
    figure.add_scatter(
        x=[rank + 1 for rank in ranks],
        y=[float(f"{values[rank]:.4g}") or None for rank in ranks],
        name=name,
        mode="lines",
        line=line,
        hovertemplate="rank %{x}: <b>%{y:.3g}</b><extra>" + name + "</extra>",
    )


def _rows_by_kind(matrices: Sequence[MatrixRow]) -> dict[str, list[MatrixRow]]:
    """Return the matrices that blocks have alike: in their name `*` stands for the block."""
    rows_by_kind: defaultdict[str, list[MatrixRow]] = defaultdict(list)
    for row in matrices:
        kind = BLOCK_NUMBER.sub(".*", row.name).removesuffix(".weight")
        rows_by_kind[kind].append(row)
    return rows_by_kind


def _by_kind(matrices: Sequence[MatrixRow]) -> Table:
    """Return medians over the matrices that blocks have alike."""
    lines = []
    for kind, rows in _rows_by_kind(matrices).items():
        medians = [float(median(getattr(row, name) or 0 for row in rows)) for name in COLUMNS]
        control = median(row.control["stable_rank"] for row in rows)
        medians[COLUMNS.index("spikes")] = int(median(row.spikes for row in rows))
        random = sum(row.random for row in rows)
        lines.append(Line(kind, [len(rows), *medians, control, random]))
    terms = terms_of(MatrixRow)
    columns = [
        Term("matrices"),
        Term("count"),
        *(terms[name] for name in COLUMNS),
        CONTROL,
        Term("look\nrandom"),
    ]
    return Table(columns, lines, "By kind", "Medians over the blocks.")
