"""The page of a comparison: maps of site against site, each measure's null beside it, and the sites
of one name in a table.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, cast

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
    table,
)
from headscan.report.kit.figures import heat, lines
from headscan.report.kit.parts import Value, cell_of
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.comparison.result import CompareResult, DamageResult, SimilarityCell
    from headscan.run import Row

ALPHA = 0.05


@page("compare")
def head(result: CompareResult) -> Head:
    """Who is compared, and how alike they are in one sentence."""
    own = [
        cell
        for cell in result.cells
        if cell.measure == next(iter(result.measures)) and cell.value is not None
    ]
    same = [cell for cell in own if cell.site_a == cell.site_b] or own
    said = "Nothing could be compared."
    if same:
        values = [cell.value or 0.0 for cell in same]
        where = (
            "Site against the same site"
            if same[0].site_a == same[0].site_b
            else "Site against site"
        )
        title = result.measures[same[0].measure].title
        said = (
            f"{where}, {title} is {number(min(values))} to {number(max(values))}, on "
            f"{result.tokens:,} tokens."
        )
    return Head(
        [named(model.name) for model in result.models],
        said,
        words=[_term(result, name) for name in result.measures],
    )


def _term(result: CompareResult, name: str) -> Term:
    """A measure's words above a column."""
    words = result.measures[name]
    short = {"procrustes": "procr.", "mutual_knn": "knn"}.get(name, name)
    return Term(
        words.title,
        words.sentence,
        words.formula,
        range=words.range,
        source=words.source,
        name=name,
        column=short,
        places=3,
    )


def _pairs(result: CompareResult) -> dict[tuple[str, str], list[SimilarityCell]]:
    pairs: dict[tuple[str, str], list[SimilarityCell]] = {}
    for cell in result.cells:
        pairs.setdefault((cell.model_a, cell.model_b), []).append(cell)
    return pairs


@section("compare", 10)
def maps(result: CompareResult) -> list[Section]:
    made = []
    several = len(_pairs(result)) > 1
    said = (
        "A cross marks what is no more alike than the null makes it (adjusted p > .05). The mark "
        "“null” on a scale is what "
    )
    said += (
        f"the null stays below in 95 of 100 draws, on a sample of {result.tested:,} tokens "
        "(median over the sites)."
    )
    note = Prose(said, where="page")
    for k, ((a, b), cells) in enumerate(_pairs(result).items()):
        drawn = [
            _map(
                result,
                name,
                [cell for cell in cells if cell.measure == name],
                f"{name}-{k}" if several else name,
            )
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
    tokens = (
        f"{result.tokens:,} tokens"
        if words.tokens == "all"
        else f"a sample of {result.sampled:,} tokens"
    )
    alt = f"{words.title} of every site of {cells[0].model_a} with every site of {cells[0].model_b}"
    return Figure(
        called,
        lambda: _heat(cells),
        alt,
        height=380,
        title=words.title,
        sentence=f"{words.sentence} Of {tokens}.",
    )


def _heat(cells: list[SimilarityCell]) -> go.Figure:
    """A map with a cross on each cell inside the null, and the null's threshold on the scale."""
    rows, columns = (
        list(dict.fromkeys(names))
        for names in ([c.site_a for c in cells], [c.site_b for c in cells])
    )
    values = {(cell.site_a, cell.site_b): cell.value for cell in cells}
    low = min([0.0, *(value for value in values.values() if value is not None)])
    grid = [[values.get((row, column)) for column in columns] for row in rows]
    figure = heat(grid, columns, rows, low=low, high=1, scale=palette.DEPTH[0])
    inside = [cell for cell in cells if cell.p_adjusted is not None and cell.p_adjusted > ALPHA]
    if inside:
        figure.add_scatter(
            x=[cell.site_b for cell in inside],
            y=[cell.site_a for cell in inside],
            mode="markers",
            hoverinfo="skip",
            marker={
                "symbol": "x-thin",
                "size": 8,
                "line": {"width": 1.5, "color": palette.ROLES["accent"][0]},
            },
            showlegend=False,
        )
    thresholds = [
        cell.tests[0].threshold
        for cell in cells
        if cell.tests and cell.tests[0].threshold is not None
    ]
    if thresholds:
        level = median(thresholds)
        ticks = [
            tick
            for tick in (low, 0.0, 0.25, 0.5, 0.75, 1.0)
            if tick >= low and abs(tick - level) > 0.06 * (1 - low)
        ]
        bar = {
            "tickvals": [*ticks, level],
            "ticktext": [*(f"{tick:.2g}" for tick in ticks), f"null {level:.2f}"],
        }
        figure.update_traces(colorbar=bar, selector={"type": "heatmap"})
    return figure


@section("compare", 20)
def site_by_site(result: CompareResult) -> list[Section]:
    """The sites of one name, every measure with its interval; and which site of the second model is
    most like each.
    """
    made: list[Section] = []
    first = next(iter(result.measures))
    alike = Term(
        "most alike", "The site of the second model with the greatest value.", column="most\nalike"
    )
    marks = "" if not result.nulls else f" p: {next(iter(result.nulls.values())).title.lower()}."
    for (a, b), cells in _pairs(result).items():
        lines: list[list[Cell | Value]] = []
        for site in dict.fromkeys(cell.site_a for cell in cells):
            own = [cell for cell in cells if cell.site_a == site]
            known = [cell for cell in own if cell.measure == first and cell.value is not None]
            best = max(known, key=lambda cell: cell.value or 0.0).site_b if known else ""
            partner = site if any(cell.site_b == site for cell in own) else best
            by_name = {
                cell.measure: cell_of(cell, "value", FEW) for cell in own if cell.site_b == partner
            }
            label = site if partner == site else f"{site} ~ {partner}"
            lines.append(
                [label, *(by_name.get(name, Cell(None)) for name in result.measures), best]
            )
        title = f"{named(a)} and {named(b)}"
        lead = (
            "Where both have a site of the same name, that pair; else the most alike. Intervals: "
            "95 %, by "
        )
        columns: list[Term | str] = [
            "site",
            *(_term(result, name) for name in result.measures),
            alike,
        ]
        heading = f"In numbers: {title}" if len(_pairs(result)) > 1 else "In numbers"
        made.append(
            Section(
                heading, f"{lead}{result.clusters}.{marks}", [Table(columns, lines, title=title)]
            )
        )
    return made


FEW = "not defined with so few tokens"


@section("compare", 40)
def alignment(result: CompareResult) -> Section | None:
    """Which tokens were compared, where tokenizers differ."""
    if all(one.compared == one.tokens for one in result.alignment):
        return None
    rows = [
        (
            named(one.model),
            f"{one.compared:,} of {one.tokens:,} tokens ({one.compared / max(one.tokens, 1):.0%})",
        )
        for one in result.alignment
    ]
    lead = (
        "Tokens of different tokenizers are the same where their last characters are; the others "
        "are left out."
    )
    return Section("Which tokens", lead, [Facts("compared", rows)])


# ---- The page of what a second model costs: parts by damage, which to keep, and all numbers.


NATS = "nats a token"
TERMS = {
    "block": Term("part"),
    "mode": Term("mode"),
    "choice": Term("choice"),
    "of": Term("windows"),
    "kl": Term(
        "KL",
        "Divergence of the logits from the first model's.",
        "KL(first ‖ second)",
        unit=NATS,
        spread=True,
    ),
    "kl_reverse": Term("KL back", "The other way.", "KL(second ‖ first)", unit=NATS, where="page"),
    "loss_change": Term(
        "loss change",
        "Loss minus the first model's.",
        unit=NATS,
        column="loss\nchange",
        where="page",
    ),
    "top1_agreement": Term(
        "top-1", "Predictions whose likeliest token is the first model's.", range=(0, 1), places=3
    ),
    "share": Term(
        "share", "Of the second model's divergence; accumulated, what this part adds.", places=3
    ),
    "gain": Term(
        "gain",
        "Fall of the divergence where this part of the second model is restored.",
        unit=NATS,
        where="page",
    ),
    "relative_error": Term(
        "state error",
        "Of the states behind it, over their size (roots of sums of squares).",
        where="page",
    ),
    "mean_direction_error": Term("mean error", "The same of the mean vector.", where="page"),
    "outlier_error": Term(
        "outlier error", "The same in coordinates above six times the median's size.", where="page"
    ),
    "more_kl": Term(
        "KL more", "Minus that of the greedy choice, by token.", unit=NATS, spread=True
    ),
    "bytes": Term(
        "bytes", "What the kept parts take more.", places=0, interval="counted", where="page"
    ),
}
SHAPES = {
    "average_cosine": Term(
        "cosine", "Average cosine of two tokens, without sinks, as scan has it."
    ),
    "effective_rank": Term("rank", "Effective rank, without sinks, as scan has it."),
    "sink_share": Term(
        "sinks", "Share of tokens longer than three times their window's median.", percent=True
    ),
    "bits_lower": Term(
        "bits, at least",
        "What a state in noise tells of which of the tokens it is of: U(2σ).",
        unit="bits",
    ),
    "bits_upper": Term(
        "bits, at most",
        "The same from above: U(σ), σ half of the root of the total variance.",
        unit="bits",
    ),
}
BOTH = ("first", "second", "change")
SAME = {
    "second": "The same of the second model.",
    "change": "The second model's minus the first's, paired by token.",
}
TERMS |= {
    f"{name}_{which}": replace(
        term,
        title=f"{term.title} {which}",
        sentence=SAME.get(which, term.sentence),
        spread=True,
        where="everywhere" if which == "change" and name in list(SHAPES)[:2] else "page",
    )
    for name, term in SHAPES.items()
    for which in BOTH
}
COSTS = ("kl", "kl_reverse", "loss_change", "top1_agreement")
STATES = ("relative_error", "mean_direction_error", "outlier_error")


@page("damage")
def damage(result: DamageResult) -> Head:
    row = result.totals["whole"]
    models = [named(model.name) for model in result.models]
    kl, loss, same = (number(row.number(name)) for name in ("kl", "loss_change", "top1_agreement"))
    said = (
        f"{models[1]} diverges from {models[0]} by {kl} nats a token and its loss changes by "
        f"{loss}; {same} of its likeliest "
    )
    return Head(models, f"{said}tokens are the same, on {result.tokens:,} predictions.")


@section("damage", 20)
def shape(result: DamageResult) -> Section | None:
    """What became of the states' shape at each site."""
    if not result.shape:
        return None

    def coordinates(row: Row) -> str:
        told = [
            [row[f"{kind}_coordinates_{which}"] for kind in ("massive", "rogue")]
            for which in BOTH[:2]
        ]
        return " → ".join(
            ", ".join(str(one) for kind in each for one in cast(list[int], kind)) or "none"
            for each in told
        )

    outlying = Term(
        "outlying coordinates",
        "Massive or rogue ones, as scan names them: first → second.",
        where="page",
    )
    columns = [f"{name}_{which}" for name in SHAPES for which in BOTH]
    every = table(
        result.shape, "site", *columns, (outlying, coordinates), terms=TERMS, title="Shape"
    )
    said = list[str]()
    for name, words in {
        "average_cosine": "the cosine",
        "effective_rank": "the effective rank",
        "bits_upper": "the bits",
    }.items():
        known = [ends for row in result.shape if (ends := row.interval(f"{name}_change"))]
        said += [
            f"at {sum(low > 0 or high < 0 for low, high in known)} of {len(known)} sites for "
            f"{words}"
        ] * bool(known)
    prose = Prose(f"The interval of the change, paired by token, leaves out 0 {', '.join(said)}.")
    lead = "The states of both models behind each part that changes them."
    return Section(
        "The shape, before and after", lead, [every, *[prose] * bool(said)], name="shape"
    )


@section("damage", 10)
def parts(result: DamageResult) -> list[Section]:
    """The second model, the picture and the rows of both modes, and the choices."""
    alone = [row for row in result.damage if row["mode"] == "isolated"]
    sums = {k: number(v) for k, v in result.sums.items()}
    series = {"alone in the first model": "kl", "given back where it is restored": "gain"}
    at = [row.text("block") for row in alone]
    picture = Figure(
        "damage",
        lambda: lines(
            {
                words: (
                    at,
                    [row.number(key) for row in alone],
                    [row.interval(key) for row in alone],
                )
                for words, key in series.items()
            },
            "part",
            f"KL, {NATS}",
            zero=True,
        ),
        "Divergence of the logits by part, with intervals",
        height=420,
    )
    added = (
        f"Alone the parts' divergences add up to {sums['isolated']}, restored alone to "
        f"{sums['restored']}; the whole second "
    )
    added += (
        f"model's is {sums['total']}: the rest is what parts do together. Accumulated shares add "
        "up to 1."
    )
    every = table(
        result.damage, "block", "mode", *COSTS, "share", "gain", *STATES, terms=TERMS, title="Parts"
    )
    whole = [row | {"of": name} for name, row in result.totals.items()]
    costs = table(whole, "of", *COSTS, terms=TERMS, title="The whole")
    made = [Section("The whole", "Sample: where parts were exchanged.", [costs], name="whole")]
    lead = (
        "Isolated: one part of the second model in the first; accumulated: all up to it. On "
        f"{result.sampled:,} predictions."
    )
    made += [Section("Part by part", lead, (picture, every, Prose(added)), name="parts")] * bool(
        alone
    )
    if result.choices:
        shown = table(
            result.choices, "choice", "bytes", *COSTS[:3], "more_kl", terms=TERMS, title="Choices"
        )
        kept = Prose(
            "; ".join(f"{row['choice']}: {', '.join(row['kept'])}" for row in result.choices[1:-1])
            + "."
        )  # type: ignore[arg-type]
        made.append(
            Section(
                "Which parts to keep",
                "On other windows. Random: the mean of 8 choices.",
                [shown, kept],
                name="keep",
            )
        )
    return made
