"""The page of a comparison: maps of site against site, each measure's null beside it, and the sites of one name in a table."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Cell,
    Facts,
    Figure,
    Head,
    Line,
    Panels,
    Prose,
    Section,
    Table,
    Term,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.comparison.result import CompareResult, SimilarityCell
    from headscan.report.kit.parts import Part


ALPHA = 0.05
Pair = tuple[str, str]


@page("compare")
def head(result: CompareResult) -> Head:
    """Who is compared, and how alike they are in one sentence."""
    own = [cell for cell in result.cells if cell.measure == next(iter(result.measures)) and cell.value is not None]
    same = [cell for cell in own if cell.site_a == cell.site_b] or own
    said = "Nothing could be compared."
    if same:
        values = [cell.value or 0.0 for cell in same]
        title = result.measures[same[0].measure].title
        where = "Site against the same site" if same[0].site_a == same[0].site_b else "Site against site"
        said = f"{where}, {title} is {number(min(values))} to {number(max(values))}, on {result.tokens:,} tokens."
    words = [
        Term(one.title, one.sentence, one.formula, range=one.range, source=one.source, name=name)
        for name, one in result.measures.items()
    ]
    return Head([named(model.name) for model in result.models], said, words=words)


def _pairs(result: CompareResult) -> dict[Pair, list[SimilarityCell]]:
    """The cells by pair of models."""
    found: dict[Pair, list[SimilarityCell]] = {}
    for cell in result.cells:
        found.setdefault((cell.model_a, cell.model_b), []).append(cell)
    return found


@section("compare", 10)
def maps(result: CompareResult) -> list[Section]:
    """One map a measure, for each pair of models."""
    made = []
    several = len(_pairs(result)) > 1
    for k, ((a, b), cells) in enumerate(_pairs(result).items()):
        drawn = [
            _map(result, name, [cell for cell in cells if cell.measure == name], f"{name}-{k}" if several else name)
            for name in result.measures
        ]
        lead = f"Sites of {named(a)} from the top, sites of {named(b)} from the left."
        parts: list[Part] = []
        for start in range(0, len(drawn), 2):
            two = drawn[start : start + 2]
            parts.append(Panels(two, f"{' and '.join(one.title for one in two)}."))
        caption = Prose(
            "A cross marks what is no more alike than the null makes it (adjusted p > .05). The mark “null” on a scale is what "
            f"the null stays below in 95 of 100 draws, on a sample of {result.tested:,} tokens (median over the sites)."
        )
        made.append(Section(f"{named(a)} and {named(b)}" if several else "Site against site", lead, [*parts, caption]))
    return made


def _map(result: CompareResult, name: str, cells: list[SimilarityCell], called: str) -> Figure:
    words = result.measures[name]
    tokens = f"{result.tokens:,} tokens" if words.tokens == "all" else f"a sample of {result.sampled:,} tokens"
    return Figure(
        called, lambda: _heat(cells), f"{words.title} of every site of {cells[0].model_a} with every site of {cells[0].model_b}",
        height=380, title=words.title, sentence=f"{words.sentence} Of {tokens}.",
    )  # fmt: skip


def _heat(cells: list[SimilarityCell]) -> go.Figure:
    """A map with a cross on each cell inside the null, and the null's threshold on the scale."""
    rows, columns = (list(dict.fromkeys(names)) for names in ([c.site_a for c in cells], [c.site_b for c in cells]))
    values = {(cell.site_a, cell.site_b): cell.value for cell in cells}
    grid = [[values.get((row, column)) for column in columns] for row in rows]
    low = min([0.0, *(value for value in values.values() if value is not None)])
    figure = figures.heat(grid, columns, rows, low=low, high=1, scale=palette.DEPTH[0])
    inside = [cell for cell in cells if cell.p_adjusted is not None and cell.p_adjusted > ALPHA]
    if inside:
        figure.add_scatter(
            x=[cell.site_b for cell in inside], y=[cell.site_a for cell in inside], mode="markers", showlegend=False,
            marker={"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": palette.ROLES["accent"][0]}},
            hoverinfo="skip",
        )  # fmt: skip
    thresholds = [cell.tests[0].threshold for cell in cells if cell.tests and cell.tests[0].threshold is not None]
    if thresholds:
        level = median(thresholds)
        near = 0.06 * (1 - low)
        ticks = [tick for tick in (low, 0.0, 0.25, 0.5, 0.75, 1.0) if tick >= low and abs(tick - level) > near]
        shown = [f"{tick:.2g}" for tick in ticks]
        figure.update_traces(
            colorbar={"tickvals": [*ticks, level], "ticktext": [*shown, f"null {level:.2f}"]},
            selector={"type": "heatmap"},
        )
    return figure


@section("compare", 20)
def site_by_site(result: CompareResult) -> list[Section]:
    """The sites of one name, every measure with its interval; and which site of the second model is most like each."""
    made: list[Section] = []
    several = len(_pairs(result)) > 1
    for (a, b), cells in _pairs(result).items():
        columns = [Term("site"), *(_column(result, name) for name in result.measures)]
        columns.append(
            Term("most alike", "The site of the second model with the greatest value.", column="most\nalike")
        )
        lines = [_line(result, site, cells) for site in dict.fromkeys(cell.site_a for cell in cells)]
        title = f"{named(a)} and {named(b)}"
        marks = "" if not result.nulls else f" p: {next(iter(result.nulls.values())).title.lower()}."
        lead = (
            "Where both have a site of the same name, that pair; else the most alike. Intervals: 95 %, by "
            f"{result.clusters}.{marks}"
        )
        made.append(
            Section(f"In numbers: {title}" if several else "In numbers", lead, [Table(columns, lines, title=title)])
        )
    return made


def _column(result: CompareResult, name: str) -> Term:
    words = result.measures[name]
    short = {"procrustes": "procr.", "mutual_knn": "knn"}.get(name, name)
    return Term(words.title, words.sentence, words.formula, name=name, places=3, column=short)


def _line(result: CompareResult, site: str, cells: list[SimilarityCell]) -> Line:
    own = [cell for cell in cells if cell.site_a == site]
    first = next(iter(result.measures))
    known = [cell for cell in own if cell.measure == first and cell.value is not None]
    best = max(known, key=lambda cell: cell.value or 0.0).site_b if known else ""
    other = site if any(cell.site_b == site for cell in own) else best
    by_name = {cell.measure: cell for cell in own if cell.site_b == other}
    shown = [
        Cell(by_name[name].value, by_name[name].interval, "not defined with so few tokens")
        if name in by_name
        else Cell(None)
        for name in result.measures
    ]
    return Line(site if other == site else f"{site} ~ {other}", [*shown, Cell(best)])


@section("compare", 30)
def chance(result: CompareResult) -> Section | None:
    """What each null gives, and how many cells lie beyond it."""
    if not result.nulls:
        return None
    parts: list[Part] = []
    for name, words in result.nulls.items():
        rows = []
        for measure, said in result.measures.items():
            found = [
                t
                for cell in result.cells
                if cell.measure == measure
                for t in cell.tests
                if t.null == name and t.p is not None
            ]
            if found:
                beyond = sum((test.p_adjusted or 0.0) <= ALPHA for test in found)
                mean, high = (median([getattr(t, k) for t in found]) for k in ("mean", "threshold"))
                rows.append(
                    (said.title, mean, high, median([t.statistic or 0.0 for t in found]), f"{beyond} of {len(found)}")
                )
        if rows:
            columns = [Term("measure"), Term("null, mean", places=3), Term("null, .95", places=3)]
            columns += [Term("observed", places=3), Term("cells beyond")]
            parts += [
                Prose(f"{words.sentence} It keeps {words.keeps}.", words.title + "."),
                Table(columns, rows, where="page"),
            ]
        else:
            parts.append(Prose("It could not be drawn for these models.", words.title + "."))
    lead = (
        f"The measures on {result.tested:,} sampled tokens (on 16 principal components where they are made of covariances), "
        "and under the null; medians over all cells."
    )
    return Section("What chance gives", lead, parts)


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


@section("compare", 50)
def shape(result: CompareResult) -> Section | None:
    """Paired differences of the measures of shape."""
    if not result.differences:
        return None
    columns = [Term("site"), Term("models"), Term("measure"), Term("difference")]
    lines = [
        Line(one.site_a, [f"{named(one.model_a)} − {named(one.model_b)}", one.measure,
             Cell(one.difference, (one.interval[0], one.interval[1]) if one.interval else None)])
        for one in result.differences
    ]  # fmt: skip
    lead = "Measures of shape of the second model less those of the first, with paired 95 % intervals."
    return Section(
        "What changed in shape", lead, [Table(columns, lines, folded=True, where="page", title="All differences")]
    )
