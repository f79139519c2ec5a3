"""What a scan's page draws: the core measures by layer, the spectra, who builds the cone, the
measures beyond the core, the probes' tables, and how all change from checkpoint to checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.model.sentence import SENTENCE
from headscan.report.kit import Figure, Line, Panels, Prose, Section, Table, Term, palette, section
from headscan.report.kit.figures import empty, heat, lines, thin
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import literal, named, noted
from headscan.report.pages.scan_layers import (
    NULLS,
    Axis,
    First,
    by_layer,
    knows,
    last_block,
    models,
    of_model,
    term,
    treatments,
)

if TYPE_CHECKING:
    from headscan.measures.measure import Field, MeasureWords
    from headscan.report.pages.scan_layers import Treatment
    from headscan.run import Row
    from headscan.scanner.result import ProbeRecord, ScanResult

    Words = Mapping[str, MeasureWords] | Mapping[str, Field]

ASIDE = (
    "all columns but the last are of the tokens that are no sinks (longer than 3 times the median "
    "of their window)"
)
ABOUT = (
    "top share and eff. rank count the common direction; part. ratio and iso-score leave it out, "
    "and may exceed them"
)


@section("scan", 35)
def over_length(result: ScanResult) -> Section | None:
    """The effective rank at each doubling of the text, at the last block of each model."""
    field = f"effective_rank{WITHOUT_SINKS}"
    series = dict[str, tuple[list[Any], list[Any], list[Any]]]()
    for model in models(result):
        row = last_block(of_model(result.sites, model))
        read, curve = (
            (None, None) if row is None else (row.get("lengths"), row.get(f"{field}_curve"))
        )
        if row is not None and isinstance(read, list) and isinstance(curve, list):
            series[f"{named(model)}, {row.text('site')}"] = (
                read,
                curve,
                [*[None] * (len(curve) - 1), row.interval(field)],
            )
    if not series:
        return None
    alt = "Effective rank at the last block by tokens read, at each doubling of the text"
    caption = (
        "The first tokens of the text, at each doubling; the bar is the 95 % interval of the whole."
    )
    drawn = Figure(
        "length", lambda: lines(series, "tokens read", "effective rank", log="x"), alt, caption, 320
    )
    lead = (
        "A spectral number is one at a length: compare models, layers and checkpoints that read "
        "as many tokens."
    )
    return Section("Over the length of the text", lead, [drawn], "length")


@section("scan", 10)
def cone(result: ScanResult) -> Section:
    """The average cosine by layer; in the terminal the tables of the core measures."""
    nulls = [null for null in NULLS if any(row.get("null") == null for row in result.nulls)]
    beside = {
        "random-init": "the same architecture with random weights",
        "gaussian": "a Gaussian cloud",
    }
    caption = (
        "Average cosine between two different tokens, by layer: 0 for a round cloud, 1 when all "
        "tokens point the same way. "
    )
    caption += "Bands are 95 % intervals."
    if knows(result, "average_cosine"):
        caption += " Sink tokens are left out; the switch above counts them, too."
    if nulls:
        each = "each model" if len(models(result)) > 1 else "the model"
        caption += (
            f" Beside {each}: {' and '.join(beside[n] for n in nulls)}, where nothing was learned."
        )
    figure = Figure(
        "cosine", partial(_average_cosine, result, "both"), "Average cosine by layer", caption, 380
    )
    lead = (
        "Anisotropy: vectors share a direction. The average cosine says how narrow their cone is."
    )
    return Section("The cone, layer by layer", lead, [figure, *_in_short(result)], "cosine")


def _average_cosine(result: ScanResult, first: First = "without") -> go.Figure:
    """The mean cosine between two tokens at each site, with its interval and its nulls."""
    figure = by_layer(result, "average_cosine", first)
    values = [v for trace in figure.data for v in trace.y if v is not None]
    low = min([0.0, *values])
    high = max([0.25, *values])
    return figure.update_yaxes(
        range=[low * 1.1 - 0.02, min(high * 1.08, 1.03)], title_text="average cosine"
    )


def _in_short(result: ScanResult) -> list[Part]:
    """The terminal's table of each model: one row a site, the nulls at the last block below."""
    shown = [
        name for name, words in result.measures.items() if words.column and name != "average_cosine"
    ]
    columns = [Term("site"), Term("average cosine", places=3, spread=True)]
    columns += [term(result.measures[name], name, result.measures[name].column) for name in shown]
    columns.append(Term("energy of sink tokens", column="sinks'\nenergy", percent=True, places=1))

    def line(row: Row, null: str = "") -> Line:
        cells = [
            cell_of(row, leading(row, "average_cosine")),
            *(row.number(leading(row, name)) for name in shown),
        ]
        site = row.text("site")
        # few, beside so many tokens
        name = f"{site} ({row.number('tokens') or 0:,.0f} vectors)" if site == SENTENCE else site
        return Line("" if null else name, [*cells, row.number("sink_energy")], null)

    parts: list[Part] = []
    for name in models(result):
        own = of_model(result.sites, name)
        last = last_block(own)
        lines = [line(row) for row in own]
        for null, words in NULLS.items():
            lines += [
                line(row, words)
                for row in of_model(result.nulls, name, null)
                if last and row["site"] == last["site"]
            ]
        notes = dict.fromkeys(noted(note for row in own for note in row.notes))
        if clusters := next((row["clusters"] for row in own if row.get("clusters")), None):
            of = (
                "another text of this length and kind"
                if clusters == "documents"
                else "stretches of this text like those read"
            )
            notes = dict.fromkeys([f"[low, high]: the 95 % interval for {of}", *notes])
        if any(row.number("sinks") for row in own):
            notes = dict.fromkeys([ASIDE, *notes])
        if name == models(result)[-1] and {"effective_rank", "participation_ratio"} <= {*shown}:
            notes[ABOUT] = None
        tokens = max((int(row.number("tokens") or 0) for row in own), default=0)
        title = f"{named(name)}  {tokens:,} tokens" if len(models(result)) > 1 else ""
        parts.append(Table(columns, lines, title, footnotes=list(notes), where="terminal"))
    return parts


@section("scan", 20)
def spectrum(result: ScanResult) -> Section:
    """Singular values by rank, and what sums them up."""
    names = models(result)
    drawn = {name: _spectrum(result, name, "both") for name in names}
    _same_floor(list(drawn.values()))
    ends = [of_model(result.sites, names[0])[k].text("site") for k in (0, -1)]
    gaussian = any(row.get("null") == "gaussian" for row in result.nulls)
    caption = (
        f"Singular values by rank, divided by the first; one line a site, from {ends[0]} (faint) "
        f"to {ends[1]} (strong)."
    )
    caption += (
        f"{' Dashed: the expectation, a cloud that uses all its directions alike.' * gaussian} A "
        "cliff after rank 1 is a "
    )
    caption += "cone."
    spectra = [
        Figure(
            f"spectrum-{k}",
            drawn[name],
            f"Singular values of {named(name)} by rank, divided by the first",
            height=360,
            title=named(name) if len(names) > 1 else "",
        )
        for k, name in enumerate(names)
    ]
    multiples = [
        Figure(
            f"small-{key}",
            partial(small, result, key),
            f"{words.title} by layer",
            height=190,
            title=words.title,
            sentence=words.sentence,
        )
        for key, words in result.measures.items()
        if words.core and key != "average_cosine"
    ]
    return Section(
        "Singular values",
        "Singular value decomposition: how much of the cloud lies on each of its directions.",
        [
            Panels(spectra, caption),
            Panels(
                multiples, "Spectra and lengths in short, by layer; lines as in Fig. 1.", small=True
            ),
        ],
    )


def _spectrum(result: ScanResult, model: str, first: First = "without") -> go.Figure:
    """Singular values of each site of one model, divided by the first, on log axes; the Gaussian
    null is the expectation.
    """
    figure = empty("singular value, by rank", "σ<sub>i</sub> / σ<sub>1</sub>")
    rows = of_model(result.sites, model)
    muted = palette.ROLES["muted"][0]
    gaussian = last_block(of_model(result.nulls, model, "gaussian"))
    for field, shown in treatments(result, "singular_values", first):
        for row, (colour, _) in zip(rows, palette.depth_colours(len(rows)), strict=True):
            _add_spectrum(
                figure, row.numbers(field), row.text("site"), {"color": colour, "width": 1.6}, shown
            )
        if gaussian:
            line = {"color": muted, "width": 1.6, "dash": "dash"}
            values = gaussian.numbers(field) or gaussian.numbers("singular_values")
            _add_spectrum(figure, values, "expectation: Gaussian", line, shown)
    if figure.data and figure.data[-1].line.dash == "dash":
        figure.add_annotation(
            x=1,
            xref="paper",
            xanchor="right",
            y=0.02,
            yanchor="bottom",
            text="expectation: Gaussian",
            showarrow=False,
            font={"size": 12, "color": muted},
        )
    figure.update_xaxes(type="log", dtick=1)
    ticks = [f"{10.0**-k:g}" for k in range(5)] + ["10⁻⁵", "10⁻⁶"]
    return figure.update_yaxes(
        type="log", tickvals=[10.0**-k for k in range(7)], ticktext=ticks
    ).update_layout(showlegend=False)


def _add_spectrum(
    figure: go.Figure, values: list[float], name: str, line: dict[str, Any], shown: Treatment
) -> None:
    """The line of singular values over the first of them, thinned to what a screen can show."""
    if not values or values[0] <= 0:
        return
    ranks = thin(len(values))
    figure.add_scatter(
        x=[r + 1 for r in ranks],
        y=[float(f"{values[r] / values[0]:.4g}") or None for r in ranks],
        name=literal(name),
        mode="lines",
        line=line,
        hovertemplate="rank %{x}: <b>%{y:.3g}</b><extra>" + literal(name) + "</extra>",
        **shown,
    )


def _same_floor(spectra: list[go.Figure]) -> None:
    """Gives the spectra of all models one scale, so that they can be compared by eye."""
    values = [v for figure in spectra for trace in figure.data for v in trace.y if v]
    # Beyond a cloud's rank its singular values are rounding errors: such a line falls out of the
    # picture.
    sound = [v for v in values if v > 1e-6]
    low = max(float(np.quantile(sound, 0.01)), 1e-4) if sound else 1e-3
    for figure in spectra:
        figure.update_yaxes(range=[float(np.log10(low)) - 0.1, 0.16])


# ---- Who builds the cone and who takes it away, layer by layer, and what else it is made of.

SCALE = (palette.MODELS[1][0], palette.ROLES["paper"][0], palette.MODELS[0][0])
"""From what takes away to what builds."""


@section("scan", 15)
def anatomy(result: ScanResult) -> Section | None:
    """A map of branches by sites for each model, and the parts of its deepest site."""
    if not (rows := real(result.tables.get("anatomy", []))):
        return None
    names = [name for name in models(result) if any(row["model"] == name for row in rows)]
    figures = []
    tables = []
    for number, name in enumerate(names):
        own = [row for row in rows if row["model"] == name]
        title = named(name) if len(names) > 1 else ""
        branches = [row for row in own if row["kind"] == "branch"]
        if len({row["site"] for row in branches}) > 1:
            height = 120 + 15 * len({row["part"] for row in branches})
            alt = f"Share of the cone of {named(name)} that each branch makes, by site"
            figures.append(
                Figure(
                    f"anatomy-{number}",
                    partial(_branch_map, branches),
                    alt,
                    height=height,
                    title=title,
                )
            )
        for kind in ("branch", "band", "position", "coordinate", "document"):
            some = [row for row in own if row["kind"] == kind]
            tables += (
                [_parts_of(some, f"{title}: by {kind}" if title else f"By {kind}")] if some else []
            )
    caption = (
        "What each branch adds to the squared length of the mean direction at each site, as a "
        "share: blue builds the cone, "
    )
    caption += "rust takes it away, and every column adds up to 1."
    lead = (
        "The average cosine is, up to the diagonal, the squared length of the mean unit state, "
        "and a state is a sum: so the "
    )
    lead += "cone is, too."
    return Section(
        "Who builds the cone?",
        lead,
        [*([Panels(figures, caption)] if figures else []), *tables],
        "anatomy",
    )


def _branch_map(rows: list[Row]) -> go.Figure:
    """Branches down, sites across."""
    sites, parts = (list(dict.fromkeys(row.text(key) for row in rows)) for key in ("site", "part"))
    parts = [part for part in parts if part != "rounding"]
    shares = {(row.text("part"), row.text("site")): row.number("share") for row in rows}
    values = [[shares.get((part, site)) for site in sites] for part in parts]
    most = max((abs(value) for line in values for value in line if value is not None), default=1.0)
    hover = "%{y} at %{x}: %{z:.3f} of the cone<extra></extra>"
    return heat(values, sites, parts, low=-most, high=most, scale=SCALE, hover=hover)


def _parts_of(rows: list[Row], title: str) -> Table:
    """The shares of one kind at the deepest site that has any."""
    site = rows[-1].text("site")
    shown = [row for row in rows if row.text("site") == site]
    columns = [
        Term(""),
        Term(
            "share of the cone", "aᵢ·m/|m|² of the mean unit state m = Σaᵢ.", percent=True, places=1
        ),
    ]
    tokens = any(row.number("tokens") is not None for row in shown)
    columns += [Term("share of the tokens", percent=True, places=1)] * tokens
    names = ("share", "tokens") if tokens else ("share",)
    lines = [Line(row.text("part"), [cell_of(row, name) for name in names]) for row in shown]
    return Table(columns, lines, f"{title} at {site}", folded=True, where="page")


# ---- The measures beyond the core, and the probes.

LONG = 16  # rows; a longer table is folded
FIRST = "_without_first"
ENDINGS = {WITHOUT_SINKS: "without sinks", FIRST: "without position 0"}
"""What a field's name ends in, and what its column says: measures leave out sinks, probes the first
positions.
"""
OWN = {
    "cones": "More about the cone",
    "spectra": "More about the spectrum",
    "norms": "More about lengths",
}


def real(rows: Iterable[Row]) -> list[Row]:
    """The rows that are no null's."""
    return [row for row in rows if not row.get("null")]


def small(result: ScanResult, measure: str) -> go.Figure:
    """A small multiple: no legend (the first figure has it), little margin."""
    figure = by_layer(result, measure, "both")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36}).update_yaxes(
        title_text="", nticks=5
    )
    words = dict(
        zip(figure.layout.xaxis.tickvals or (), figure.layout.xaxis.ticktext or (), strict=True)
    )
    places = apart(list(words))
    figure.update_xaxes(
        title_text="", tickangle=0, tickvals=places, ticktext=[words[x] for x in places]
    )
    values = [v for trace in figure.data for v in trace.y if v is not None]
    share = measure in result.measures and result.measures[measure].range[1] == 1
    # Beside the Gaussian, which uses all directions, a model's ranks would lie flat on the axis.
    if not share and values and min(values) > 0 and max(values) > 8 * min(values):
        figure.update_yaxes(type="log", dtick=1, tickformat="~g")
    elif values and min(values) >= 0:
        figure.update_yaxes(rangemode="tozero")
    return figure


def apart(places: list[float], room: float = 0.12) -> list[float]:
    """The first and the last of sorted places, and those between with so much of the whole length
    to either side.

    >>> apart([0, 1, 3, 14, 21, 28, 29])
    [0, 14, 21, 29]
    """
    if len(places) < 3:
        return places
    least = room * (places[-1] - places[0])
    chosen = places[:1]
    for place in places[1:-1]:
        if place - chosen[-1] >= least and places[-1] - place >= least:
            chosen.append(place)
    return [*chosen, places[-1]]


@section("scan", 50)
def more(result: ScanResult) -> list[Section]:
    """A section a group that the scan has something beyond the core of."""
    beyond = {name: words for name, words in result.measures.items() if not words.core}
    extra = [words.group for words in beyond.values()] + [probe.group for probe in result.probes]
    return [_group(result, one) for one in dict.fromkeys([*result.groups, *extra]) if one in extra]


def _group(result: ScanResult, group: str) -> Section:
    """Its measures by site, then its probes."""
    parts: list[Part] = []
    measures = {
        name: words
        for name, words in result.measures.items()
        if not words.core and words.group == group
    }
    if measures:
        parts += _drawn(
            result, {name: words for name, words in measures.items() if words.multiple}, "measures"
        )
        parts.append(
            _table("By site", measures, [*result.sites, *result.nulls], WITHOUT_SINKS, folded=True)
        )
    for probe in result.probes:
        if probe.group == group:
            parts += _probe(result, probe)
    words = result.groups.get(group)
    title = OWN.get(group, group.replace("_", " ").capitalize())
    return Section(
        words.title if words else title, words.lead if words else "", parts, f"more-{group}"
    )


def _probe(result: ScanResult, probe: ProbeRecord) -> list[Part]:
    """One probe: what it is, its pictures, its table, its notes."""
    rows = result.tables.get(probe.name, [])
    literature = f" {probe.literature}." if probe.literature else ""
    parts: list[Part] = [
        Prose(probe.title, heading=True),
        Prose(probe.sentence + literature),
        *map(Prose, probe.notes),
    ]
    plotted = {name: words for name, words in probe.fields.items() if words.plotted and rows}
    parts += _drawn(result, plotted, probe.name, probe.picture)
    if rows and probe.picture != "own":
        parts.append(
            _table(f"{probe.title}: all numbers", probe.fields, rows, FIRST, folded=bool(plotted))
        )
    return parts


def _drawn(result: ScanResult, fields: Words, table: str, picture: str = "layers") -> list[Part]:
    """Small multiples of the fields that are plotted."""
    rows = real(result.tables.get(table, []))
    drawn = []
    for name, words in fields.items():
        if picture in ("heads", "pairs"):
            draw = (
                partial(_heads, rows, name)
                if picture == "heads"
                else partial(_pairs, result, rows, name)
            )
        else:
            draw = partial(small, result if table == "measures" else _as_scan(result, table), name)
        drawn.append(
            Figure(
                f"{table}.{name}",
                draw,
                words.title,
                height=190,
                title=words.title,
                sentence=words.sentence,
            )
        )
    return [Panels(drawn, small=True)] if drawn else []


def _table(title: str, fields: Words, rows: Iterable[Row], aside: str, *, folded: bool) -> Table:
    """Columns with their explanations, and rows of cells; the rows of nulls say so."""
    shown = list(rows)
    several = len({row.get("model") for row in shown}) > 1
    columns = [Term("")]
    names = []
    for name, words in fields.items():
        for end in dict.fromkeys(("", aside if getattr(words, "first", True) else "")):
            if any(name + end in row for row in shown):
                other = Term(
                    f"{words.title}, {ENDINGS.get(end)}", percent=words.percent, where="page"
                )
                columns.append(other if end else term(words, name))
                names.append(name + end)
    lined = []
    for row in shown:
        why = "; ".join(row.notes) or "not defined here"
        site = row.text("site") or row.text("head")
        label = f"{named(row.text('model'))}: {site}" if several else site
        lined.append(
            Line(
                label, [cell_of(row, name, why) for name in names], NULLS.get(row.text("null"), "")
            )
        )
    return Table(columns, lined, title, folded=folded or len(lined) > LONG)


def _as_scan(result: ScanResult, table: str) -> ScanResult:
    """A scan whose sites are a probe's rows, so that the same plots can show them."""
    depth = {(row.get("model"), row.get("site")): row.get("depth") for row in result.sites}
    rows = result.tables.get(table, [])
    placed = [
        row | {"depth": depth[key]}
        for row in rows
        if (key := (row.get("model"), row.get("site"))) in depth
    ]
    return replace(
        result, sites=real(placed), nulls=[row for row in placed if row.get("null")], measures={}
    )


def _pairs(result: ScanResult, rows: list[Row], field: str) -> go.Figure:
    """A field of each set of pairs and model, by site, on the axis of all layers."""
    rows = [row for row in rows if row.number(field) is not None]
    several = len({row.get("model") for row in rows}) > 1
    axis = Axis(result.sites, result.models)
    series: dict[str, tuple[list[float], list[float | None]]] = {}
    for row in sorted(rows, key=lambda row: axis.place(row).x):
        name = f"{named(row.text('model'))}: {row.text('set')}" if several else row.text("set")
        across, up = series.setdefault(name, ([], []))
        across.append(axis.place(row).x)
        up.append(row.number(field))
    figure = lines(series, zero=True)
    ticks = axis.ticks(result.sites)
    places = apart(sorted(ticks))
    return figure.update_xaxes(
        tickangle=0, tickvals=places, ticktext=[literal(ticks[x]) for x in places]
    )


def _heads(rows: list[Row], field: str) -> go.Figure:
    """One field of the first model's attention heads: heads across and layers down."""
    rows = [row for row in rows if row.number(field) is not None]
    rows = [row for row in rows if row["model"] == rows[0]["model"]]
    layers = list(dict.fromkeys(row.text("site") for row in rows))
    width = max((int(row.number("head") or 0) for row in rows), default=-1) + 1
    grid: list[list[float | None]] = [[None] * width for _ in layers]
    for row in rows:
        grid[layers.index(row.text("site"))][int(row.number("head") or 0)] = row.number(field)
    low = min((v for line in grid for v in line if v is not None), default=0.0)
    hover = "%{y} head %{x}: %{z:.3f}<extra></extra>"
    figure = heat(grid, list(range(width)), layers, hover=hover, low=-1 if low < 0 else 0, high=1)
    return figure.update_xaxes(title_text="head")


# ---- From checkpoint to checkpoint: every measure of a scan of several checkpoints of one model, as maps and as curves.
#
# Each field is a heat map, sites down and checkpoints across; what there is one of a model (the
# head, the loss) has one row.


def checkpoints(result: ScanResult) -> list[str]:
    """The models' names where they look like checkpoints of one model: at least three with the same
    sites; else none.
    """
    names = models(result)
    sites = [[row["site"] for row in result.sites if row["model"] == name] for name in names]
    return names if len(names) > 2 and all(each == sites[0] for each in sites) else []


@section("scan", 45)
def course(result: ScanResult) -> Section | None:
    """Maps of the clouds' measures and of the probes, sites by checkpoints."""
    if not (names := checkpoints(result)):
        return None

    def figure(
        table: str, key: str, words: MeasureWords | Field, draw: partial[go.Figure]
    ) -> Figure:
        return Figure(
            f"course.{table}.{key}",
            draw,
            f"{words.title} over the checkpoints",
            "",
            220,
            words.title,
            words.sentence,
        )

    maps = [
        figure("sites", key, words, partial(_course_map, result.sites, names, key))
        for key, words in result.measures.items()
    ]
    parts: list[Part] = [Prose("Sites by checkpoints", heading=True), Panels(maps, small=True)]
    for probe in result.probes:
        rows = real(result.tables.get(probe.name, []))
        fields = {  # counts of what was looked at are left out
            key: words
            for key, words in probe.fields.items()
            if words.interval not in ("a count", "known in closed form")
            and any(row.number(key) is not None for row in rows)
        }
        if (
            not fields
            or len({row["model"] for row in rows}) < len(names)
            or probe.picture != "layers"
        ):
            continue
        drawn = [
            figure(probe.name, key, words, partial(_course_map, rows, names, key))
            for key, words in fields.items()
        ]
        parts += [Prose(probe.title, heading=True), Panels(drawn, small=True)]
    lead = (
        "The same sites, one model after another. A small model that saturates loses rank late, "
        "and its loss rises."
    )
    return Section("From checkpoint to checkpoint", lead, parts)


def _course_map(rows: list[Row], names: list[str], field: str) -> go.Figure:
    """One field of all sites (down) over the checkpoints in their order (across)."""
    sites = list(dict.fromkeys(row.text("site") for row in rows))
    values = {(row.get("model"), row.get("site")): row.number(field) for row in rows}
    return heat(
        [[values.get((name, site)) for name in names] for site in sites],
        [named(name) for name in names],
        sites,
    )
