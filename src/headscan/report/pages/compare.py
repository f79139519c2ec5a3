"""The page of a comparison: maps of site against site, each measure's null beside it, and the sites of one name in a table."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Facts, Figure, Head, Panels, Prose, Section, Table, Term, page, palette, section
from headscan.report.kit.figures import heat
from headscan.report.kit.parts import Value, cell_of
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.comparison.result import CompareResult, SimilarityCell

ALPHA = 0.05


@page("compare")
def head(result: CompareResult) -> Head:
    """Who is compared, and how alike they are in one sentence."""
    own = [cell for cell in result.cells if cell.measure == next(iter(result.measures)) and cell.value is not None]
    same = [cell for cell in own if cell.site_a == cell.site_b] or own
    said = "Nothing could be compared."
    if same:
        values = [cell.value or 0.0 for cell in same]
        where = "Site against the same site" if same[0].site_a == same[0].site_b else "Site against site"
        title = result.measures[same[0].measure].title
        said = f"{where}, {title} is {number(min(values))} to {number(max(values))}, on {result.tokens:,} tokens."
    return Head([named(model.name) for model in result.models], said, words=[_term(result, name) for name in result.measures])


def _term(result: CompareResult, name: str) -> Term:
    """A measure's words above a column."""
    words = result.measures[name]
    short = {"procrustes": "procr.", "mutual_knn": "knn"}.get(name, name)
    return Term(
        words.title, words.sentence, words.formula, range=words.range, source=words.source, name=name, column=short, places=3
    )  # fmt: skip


def _pairs(result: CompareResult) -> dict[tuple[str, str], list[SimilarityCell]]:
    pairs: dict[tuple[str, str], list[SimilarityCell]] = {}
    for cell in result.cells:
        pairs.setdefault((cell.model_a, cell.model_b), []).append(cell)
    return pairs


@section("compare", 10)
def maps(result: CompareResult) -> list[Section]:
    made = []
    several = len(_pairs(result)) > 1
    said = "A cross marks what is no more alike than the null makes it (adjusted p > .05). The mark “null” on a scale is what "
    said += f"the null stays below in 95 of 100 draws, on a sample of {result.tested:,} tokens (median over the sites)."
    note = Prose(said, where="page")
    for k, ((a, b), cells) in enumerate(_pairs(result).items()):
        drawn = [
            _map(result, name, [cell for cell in cells if cell.measure == name], f"{name}-{k}" if several else name)
            for name in result.measures
        ]
        rows = [drawn[start : start + 2] for start in range(0, len(drawn), 2)]
        panels = [Panels(row, f"{' and '.join(one.title for one in row)}.") for row in rows]
        lead = f"Sites of {named(a)} from the top, sites of {named(b)} from the left."
        title = f"{named(a)} and {named(b)}" if several else "Site against site"
        made.append(Section(title, lead, [*panels, note]))
    return made


def _map(result: CompareResult, name: str, cells: list[SimilarityCell], called: str) -> Figure:
    words = result.measures[name]
    tokens = f"{result.tokens:,} tokens" if words.tokens == "all" else f"a sample of {result.sampled:,} tokens"
    alt = f"{words.title} of every site of {cells[0].model_a} with every site of {cells[0].model_b}"
    return Figure(called, lambda: _heat(cells), alt, height=380, title=words.title, sentence=f"{words.sentence} Of {tokens}.")


def _heat(cells: list[SimilarityCell]) -> go.Figure:
    """A map with a cross on each cell inside the null, and the null's threshold on the scale."""
    rows, columns = (list(dict.fromkeys(names)) for names in ([c.site_a for c in cells], [c.site_b for c in cells]))
    values = {(cell.site_a, cell.site_b): cell.value for cell in cells}
    low = min([0.0, *(value for value in values.values() if value is not None)])
    grid = [[values.get((row, column)) for column in columns] for row in rows]
    figure = heat(grid, columns, rows, low=low, high=1, scale=palette.DEPTH[0])
    inside = [cell for cell in cells if cell.p_adjusted is not None and cell.p_adjusted > ALPHA]
    if inside:
        figure.add_scatter(
            x=[cell.site_b for cell in inside], y=[cell.site_a for cell in inside], mode="markers", hoverinfo="skip",
            marker={"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": palette.ROLES["accent"][0]}}, showlegend=False,
        )  # fmt: skip
    thresholds = [cell.tests[0].threshold for cell in cells if cell.tests and cell.tests[0].threshold is not None]
    if thresholds:
        level = median(thresholds)
        ticks = [tick for tick in (low, 0.0, 0.25, 0.5, 0.75, 1.0) if tick >= low and abs(tick - level) > 0.06 * (1 - low)]
        bar = {"tickvals": [*ticks, level], "ticktext": [*(f"{tick:.2g}" for tick in ticks), f"null {level:.2f}"]}
        figure.update_traces(colorbar=bar, selector={"type": "heatmap"})
    return figure


@section("compare", 20)
def site_by_site(result: CompareResult) -> list[Section]:
    """The sites of one name, every measure with its interval; and which site of the second model is most like each."""
    made: list[Section] = []
    first = next(iter(result.measures))
    alike = Term("most alike", "The site of the second model with the greatest value.", column="most\nalike")
    marks = "" if not result.nulls else f" p: {next(iter(result.nulls.values())).title.lower()}."
    for (a, b), cells in _pairs(result).items():
        lines: list[list[Cell | Value]] = []
        for site in dict.fromkeys(cell.site_a for cell in cells):
            own = [cell for cell in cells if cell.site_a == site]
            known = [cell for cell in own if cell.measure == first and cell.value is not None]
            best = max(known, key=lambda cell: cell.value or 0.0).site_b if known else ""
            partner = site if any(cell.site_b == site for cell in own) else best
            by_name = {cell.measure: cell_of(cell, "value", FEW) for cell in own if cell.site_b == partner}
            label = site if partner == site else f"{site} ~ {partner}"
            lines.append([label, *(by_name.get(name, Cell(None)) for name in result.measures), best])
        title = f"{named(a)} and {named(b)}"
        lead = "Where both have a site of the same name, that pair; else the most alike. Intervals: 95 %, by "
        columns: list[Term | str] = ["site", *(_term(result, name) for name in result.measures), alike]
        heading = f"In numbers: {title}" if len(_pairs(result)) > 1 else "In numbers"
        made.append(Section(heading, f"{lead}{result.clusters}.{marks}", [Table(columns, lines, title=title)]))
    return made


FEW = "not defined with so few tokens"


@section("compare", 40)
def alignment(result: CompareResult) -> Section | None:
    """Which tokens were compared, where tokenizers differ."""
    if all(one.compared == one.tokens for one in result.alignment):
        return None
    rows = [
        (named(one.model), f"{one.compared:,} of {one.tokens:,} tokens ({one.compared / max(one.tokens, 1):.0%})")
        for one in result.alignment
    ]
    lead = "Tokens of different tokenizers are the same where their last characters are; the others are left out."
    return Section("Which tokens", lead, [Facts("compared", rows)])
