"""The page of a comparison: maps of site against site beside their nulls, and sites of one name."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Cell,
    Facts,
    Figure,
    Head,
    Panels,
    Prose,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import dots, heat, round_ticks
from headscan.report.kit.parts import Value, cell_of
from headscan.report.kit.words import in_unit, named, number

if TYPE_CHECKING:
    from headscan.comparison.result import CompareResult, SimilarityCell

    CellsByModels = dict[tuple[str, str], list[SimilarityCell]]

ALPHA = 0.05
TICK_ROOM = 0.06  # a tick nearer to the null's threshold is left out; as a share of the scale
SHORT_TITLES = {"procrustes": "procr.", "mutual_knn": "knn"}
TOO_FEW_TOKENS = "not defined with so few tokens"


@page("compare")
def head(result: CompareResult) -> Head:
    """Return which models are compared, and how alike they are in one sentence."""
    return Head(
        [named(model.name) for model in result.models],
        _summary(result),
        conclusion=_conclusion(result),
        glossary=[_term(result, name) for name in result.measures],
    )


def _summary(result: CompareResult) -> str:
    """Return the range of the first measure over sites of one name, or over all pairs of sites."""
    measure = next(iter(result.measures))
    cells = [cell for cell in result.cells if cell.measure == measure and cell.value is not None]
    same_sites = [cell for cell in cells if cell.site_a == cell.site_b]
    if not cells:
        return "Nothing could be compared."
    pairs = "Between matching layers, " if same_sites else "Between all pairs of layers, "
    if len(same_sites or cells) == 1:
        pairs = ""
    values = [cell.value or 0.0 for cell in same_sites or cells]
    extent = " to ".join(dict.fromkeys([number(min(values)), number(max(values))]))
    title = result.measures[measure].title
    return f"{pairs}{title} is {extent}, on {result.tokens:,} {_unit(result)}."


def _unit(result: CompareResult) -> str:
    """Return what was compared: tokens, or vectors of a column."""
    text = result.protocol.text
    return text.unit if text else "tokens"


def _conclusion(result: CompareResult) -> str:
    """Say what the range of CKA, and the neighbours that agree, mean."""
    cells = [cell for cell in result.cells if cell.value is not None and cell.site_a == cell.site_b]
    cka = [cell.value or 0.0 for cell in cells if cell.measure == "cka"]
    neighbours = [cell.value or 0.0 for cell in cells if cell.measure == "mutual_knn"]
    sentences = []
    if cka:
        sentences.append(
            "CKA is 1 where two clouds differ by a rotation, a scale and a shift only, and 0 where "
            "they have nothing in common."
        )
    if neighbours:
        kept = f"{min(neighbours):.0%} of the nearest neighbours are the same"
        where = "At the worst layer " if len(neighbours) > 1 else ""
        sentences.append(
            f"{where}{kept}: that share is what search keeps if one replaces the other."
        )
    return " ".join(sentences)


def _term(result: CompareResult, name: str) -> Term:
    """Return a measure's words above a column."""
    words = result.measures[name]
    return Term(
        words.title,
        in_unit(words.sentence, _unit(result)),
        words.formula,
        range=words.range,
        source=words.source,
        name=name,
        column=SHORT_TITLES.get(name, name),
        places=3,
    )


def _by_models(result: CompareResult) -> CellsByModels:
    """Return the cells of each pair of models."""
    cells_by_models: CellsByModels = defaultdict(list)
    for cell in result.cells:
        cells_by_models[cell.model_a, cell.model_b].append(cell)
    return cells_by_models


@section("compare", 10)
def maps(result: CompareResult) -> list[Section]:
    """Return, for each pair of models with several sites, a map of every measure."""
    note = Prose(
        "A cross marks a cell that is not more similar than chance (adjusted p > 0.05). Each "
        "scale covers the values of its map. The mark “null” is the 95 % quantile of chance, "
        f"on a sample of {result.tested:,} {_unit(result)} (median over sites).",
        where="page",
    )
    cells_by_models = _by_models(result)
    several = len(cells_by_models) > 1
    sections = []
    for index, ((model_a, model_b), cells) in enumerate(cells_by_models.items()):
        title = f"{named(model_a)} and {named(model_b)}"
        if len(cells) == len(result.measures):
            figure_name = f"measures-{index}" if several else "measures"
            figure = Figure(figure_name, partial(_of_one_pair, result, cells), title, height=300)
            sections.append(Section(title, "Bars are 95 % intervals.", [figure]))
            continue
        figures = []
        for measure in result.measures:
            measure_cells = [cell for cell in cells if cell.measure == measure]
            figure_name = f"{measure}-{index}" if several else measure
            figures.append(_map(result, measure, measure_cells, figure_name))
        panels = []
        for start in range(0, len(figures), 2):
            row = figures[start : start + 2]
            panels.append(Panels(row, f"{' and '.join(figure.title for figure in row)}."))
        title = title if several else "Layers against layers"
        lead = f"Sites of {named(model_a)} from the top, sites of {named(model_b)} from the left."
        sections.append(Section(title, lead, [*panels, note]))
    return sections


def _of_one_pair(result: CompareResult, cells: list[SimilarityCell]) -> go.Figure:
    """Return each measure of one pair of sites with its interval: a map would have one cell."""
    values = {result.measures[cell.measure].title: cell.value for cell in cells}
    intervals = [cell.interval for cell in cells]
    return dots(values, intervals, "similarity").update_xaxes(rangemode="tozero")


def _map(
    result: CompareResult, measure: str, cells: list[SimilarityCell], figure_name: str
) -> Figure:
    words = result.measures[measure]
    unit = _unit(result)
    tokens = f"a sample of {result.sampled:,} {unit}"
    if words.tokens == "all":
        tokens = f"{result.tokens:,} {unit}"
    alt = f"{words.title} of every site of {cells[0].model_a} with every site of {cells[0].model_b}"
    return Figure(
        figure_name,
        partial(_heat, cells),
        alt,
        height=380,
        title=words.title,
        sentence=f"{in_unit(words.sentence, unit)} It is computed on {tokens}.",
    )


def _heat(cells: list[SimilarityCell]) -> go.Figure:
    """Return a map with a cross on each cell inside the null, and the null on the scale."""
    rows = list(dict.fromkeys(cell.site_a for cell in cells))
    columns = list(dict.fromkeys(cell.site_b for cell in cells))
    values = {(cell.site_a, cell.site_b): cell.value for cell in cells}
    thresholds = [
        cell.tests[0].threshold
        for cell in cells
        if cell.tests and cell.tests[0].threshold is not None
    ]
    low, high = _extent([value for value in values.values() if value is not None])
    grid = [[values.get((row, column)) for column in columns] for row in rows]
    figure = heat(grid, columns, rows, low=low, high=high, scale=palette.DEPTH[0])
    _add_crosses(figure, cells)
    labels = {tick: f"{tick:g}" for tick in round_ticks(low, high)}
    threshold = median(thresholds) if thresholds else math.inf
    if low <= threshold <= high:
        room = TICK_ROOM * (high - low)
        labels = {tick: text for tick, text in labels.items() if abs(tick - threshold) > room}
        labels[threshold] = f"null {threshold:.2f}"
    scale = {"tickvals": list(labels), "ticktext": list(labels.values())}
    return figure.update_traces(colorbar=scale, selector={"type": "heatmap"})


def _extent(values: list[float]) -> tuple[float, float]:
    """Return the ends of the colour scale: those of the values, to the next twentieth outside.

    >>> _extent([0.38, 0.53])
    (0.35, 0.55)
    >>> _extent([1.0, 1.0])  # no measure exceeds 1
    (0.95, 1.0)
    """
    if not values:
        return 0.0, 1.0
    low = math.floor(20 * min(values) + 1e-9) / 20
    high = math.ceil(20 * max(values) - 1e-9) / 20
    if high == low:
        return low - 0.05, high
    return low, high


def _add_crosses(figure: go.Figure, cells: list[SimilarityCell]) -> None:
    """Draw a cross on each cell that is no more alike than its null."""
    inside = [cell for cell in cells if cell.p_adjusted is not None and cell.p_adjusted > ALPHA]
    if not inside:
        return
    line = {"width": 1.5, "color": palette.ROLES["accent"][0]}
    figure.add_scatter(
        x=[cell.site_b for cell in inside],
        y=[cell.site_a for cell in inside],
        mode="markers",
        hoverinfo="skip",
        marker={"symbol": "x-thin", "size": 8, "line": line},
        showlegend=False,
    )


@section("compare", 20)
def site_by_site(result: CompareResult) -> list[Section]:
    """Return every measure of sites of one name, and the site that is most like each."""
    cells_by_models = _by_models(result)
    lead = (
        "A row compares sites of the same name; a site that only one model has is compared "
        f"with the most similar one. Intervals are 95 %, by {result.clusters}."
    )
    if result.nulls:
        null = next(iter(result.nulls.values()))
        lead += f" p: {null.title.lower()}."
    sections = []
    for (model_a, model_b), cells in cells_by_models.items():
        title = f"{named(model_a)} and {named(model_b)}"
        heading = f"In numbers: {title}" if len(cells_by_models) > 1 else "In numbers"
        sections.append(Section(heading, lead, [_site_table(result, cells, title)]))
    return sections


def _site_table(result: CompareResult, cells: list[SimilarityCell], title: str) -> Table:
    """Return a row for each site of the first model, compared with one site of the second."""
    most_alike = Term(
        "most alike", "The site of the second model with the greatest value.", column="most\nalike"
    )
    columns: list[Term | str] = ["site", *(_term(result, name) for name in result.measures)]
    has_choice = len({cell.site_b for cell in cells}) > 1
    if has_choice:
        columns.append(most_alike)
    rows = []
    for site in dict.fromkeys(cell.site_a for cell in cells):
        row = _site_row(result, site, [cell for cell in cells if cell.site_a == site])
        rows.append(row[: len(columns)])
    return Table(columns, rows, title=title)


def _site_row(result: CompareResult, site: str, cells: list[SimilarityCell]) -> list[Cell | Value]:
    first_measure = next(iter(result.measures))
    candidates = [
        cell for cell in cells if cell.measure == first_measure and cell.value is not None
    ]
    most_alike = ""
    if candidates:
        most_alike = max(candidates, key=lambda cell: cell.value or 0.0).site_b
    has_same_site = any(cell.site_b == site for cell in cells)
    partner = site if has_same_site else most_alike
    label = site if has_same_site else f"{site} ~ {partner}"
    cell_by_measure = {
        cell.measure: cell_of(cell, "value", TOO_FEW_TOKENS)
        for cell in cells
        if cell.site_b == partner
    }
    values = [cell_by_measure.get(name, Cell(None)) for name in result.measures]
    return [label, *values, most_alike]


@section("compare", 40)
def alignment(result: CompareResult) -> Section | None:
    """Return which tokens were compared; None where tokenizers do not differ."""
    if all(row.compared == row.tokens for row in result.alignment):
        return None
    rows = []
    for row in result.alignment:
        share = row.compared / max(row.tokens, 1)
        rows.append((named(row.model), f"{row.compared:,} of {row.tokens:,} tokens ({share:.0%})"))
    lead = (
        "Tokens of different tokenizers are compared where they end at the same character; "
        "the others are left out."
    )
    return Section("Which tokens", lead, [Facts("compared", rows)])
