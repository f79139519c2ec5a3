"""How cone, how round, how long: the core measures by layer, and the spectra."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Line, Panels, Section, Table, palette, section
from headscan.report.kit.figures import empty, heat, thin
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, numbers, strings, text
from headscan.report.kit.words import grouped, literal, named
from headscan.report.pages.scan_layers import (
    NULLS,
    First,
    by_layer,
    choices,
    field_of,
    knows,
    last_block,
    leading,
    models,
    of_model,
    rows_of,
    small,
)

if TYPE_CHECKING:
    from headscan.scanner.result import ScanResult


MULTIPLES = ("effective_rank", "participation_ratio", "top_direction_share", "isoscore")
HEADS = {
    "effective_rank": "eff.\nrank", "participation_ratio": "part.\nratio", "isoscore": "iso-\nscore",
    "top_direction_share": "top\nshare", "mean_norm": "mean\nnorm",
}  # fmt: skip
"""For results whose measures do not say how they are shown."""
ASIDE = "all columns but the last are of the tokens that are no sinks (longer than 3 times the median of their window)"


@section("scan", 10)
def cone(result: ScanResult) -> Section:
    """The average cosine by layer; in the terminal the tables of the core measures."""
    document: Entry = result.document
    nulls = [n for n in NULLS if any(entry.get("null") == n for entry in entries(document, "nulls"))]
    beside = {"random-init": "the same architecture with random weights", "gaussian": "a Gaussian cloud"}
    caption = (
        "Average cosine between two different tokens, by layer: 0 for a round cloud, 1 when all tokens point the same "
        "way. Bands are 95 % intervals."
    )
    if knows(document, "average_cosine"):
        caption += " Sink tokens are left out; the switch above counts them, too."
    if nulls:
        each = "each model" if len(models(document)) > 1 else "the model"
        caption += f" Beside {each}: {' and '.join(beside[n] for n in nulls)}, where nothing was learned."
    return Section(
        "How cone are you?", "Anisotropy, n. — Non-uniformity in direction. How much of a cone a cloud of vectors is.",
        [Figure("cosine", partial(_average_cosine, document, "both"), "Average cosine by layer", caption, 380),
         *in_short(document)],
        "cosine",
    )  # fmt: skip


def _average_cosine(document: Entry, first: First = "without") -> go.Figure:
    """How cone a model is: the mean cosine between two tokens at each site, with its interval and its nulls."""
    figure = by_layer(document, "average_cosine", first)
    low = min([0.0, *(v for trace in figure.data if not trace.fill for v in trace.y if v is not None)])
    figure.update_yaxes(
        range=[low * 1.1 - 0.02, 1.03], title_text="average cosine", tickvals=[-1, -0.5, 0, 0.25, 0.5, 0.75, 1]
    )
    return figure


def in_short(document: Entry) -> list[Part]:
    """The terminal's table of each model: one row a site, the nulls at the last block below."""
    measures = mapping(document, "measures")
    shown = {name: text(mapping(measures, name), "column") for name in measures} if measures else {}
    shown = {name: head for name, head in shown.items() if head and name != "average_cosine"} or HEADS
    columns = [Column("site"), Column("average cosine", places=3, spread=True)]
    columns += [Column(text(mapping(measures, name), "title", name), short=head) for name, head in shown.items()]
    columns.append(Column("energy of sink tokens", short="sinks'\nenergy", percent=True, places=0))
    parts: list[Part] = []
    for name in models(document):
        own = of_model(entries(document, "sites"), name)
        last = last_block(own)
        lines = [_short(entry, text(entry, "site"), "", shown) for entry in own]
        for null, words in NULLS.items():
            other = of_model(entries(document, "nulls"), name, null)
            lines += [_short(e, words, "", shown, True) for e in other if last and e.get("site") == last.get("site")]
        notes = dict.fromkeys(note for entry in own for note in strings(entry, "notes"))
        if any(number(entry, "sinks") for entry in own):
            notes = dict.fromkeys([ASIDE, *notes])
        tokens = max((int(number(entry, "tokens") or 0) for entry in own), default=0)
        title = f"{named(name)}  {grouped(tokens)} tokens" if len(models(document)) > 1 else ""
        parts.append(Table(columns, lines, title, footnotes=list(notes), where="terminal"))
    return parts


def _short(entry: Entry, label: str, note: str, shown: dict[str, str], null: bool = False) -> Line:
    field = leading(entry, "average_cosine")
    cosine = Cell(number(entry, field), bounds(entry, field))
    cells = [cosine, *(number(entry, leading(entry, key)) for key in shown), number(entry, "sink_energy")]
    return Line("" if null else label, cells, label if null else note)


@section("scan", 20)
def spectrum(result: ScanResult) -> Section:
    """Singular values by rank, and what sums them up."""
    document: Entry = result.document
    names, sites = models(document), entries(result.document, "sites")
    drawn = {name: _spectrum(document, name, "both") for name in names}
    _same_floor(list(drawn.values()))
    ends = [text(of_model(sites, names[0])[k], "site") for k in (0, -1)]
    expectation = " Dashed: the expectation, a cloud that uses all its directions alike."
    gaussian = any(entry.get("null") == "gaussian" for entry in entries(document, "nulls"))
    caption = (
        f"Singular values by rank, divided by the first; one line a site, from {ends[0]} (faint) to {ends[1]} (strong)."
        f"{expectation if gaussian else ''} A cliff after rank 1 is a cone."
    )
    spectra = [
        Figure(f"spectrum-{k}", drawn[name], f"Singular values of {named(name)} by rank, divided by the first", height=360,
               title=named(name) if len(names) > 1 else "")
        for k, name in enumerate(names)
    ]  # fmt: skip
    measures = mapping(document, "measures")
    marked = [
        name for name in measures if mapping(measures, name).get("multiple") and mapping(measures, name).get("core")
    ]
    multiples = [
        Figure(f"small-{key}", partial(small, document, key), f"{text(mapping(measures, key), 'title', key)} by layer",
               height=190, title=text(mapping(measures, key), "title", key.replace("_", " ").capitalize()),
               sentence=text(mapping(measures, key), "sentence"))
        for key in marked or MULTIPLES
    ]  # fmt: skip
    return Section(
        "Expectation and reality", "Singular value decomposition: how much of the cloud lies on each of its directions.",
        [Panels(spectra, caption), Panels(multiples, "Summaries of the spectrum, by layer; lines as in Fig. 1.", small=True)],
    )  # fmt: skip


def _spectrum(document: Entry, model: str, first: First = "without") -> go.Figure:
    """Singular values of each site of one model, divided by the first, on log axes; the Gaussian null is the expectation."""
    figure = empty("singular value, by rank", "σ<sub>i</sub> / σ<sub>1</sub>")
    found = of_model(entries(document, "sites"), model)
    if not knows(document, "singular_values"):
        first = "with"
    muted = palette.ROLES["muted"][0]
    gaussian = last_block(of_model(entries(document, "nulls"), model, "gaussian"))
    for choice in choices(first):
        for entry, (colour, _) in zip(found, palette.depth_colours(len(found)), strict=True):
            _add_spectrum(figure, entry, choice, first, text(entry, "site"), {"color": colour, "width": 1.6})
        if gaussian:
            line = {"color": muted, "width": 1.6, "dash": "dash"}
            _add_spectrum(figure, gaussian, choice, first, "expectation: Gaussian", line)
    if figure.data and figure.data[-1].line.dash == "dash":
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=0.02, yanchor="bottom", text="expectation: Gaussian", showarrow=False,
            font={"size": 12, "color": muted},
        )  # fmt: skip
    figure.update_xaxes(type="log", dtick=1)
    ticks = [f"{10.0**-k:g}" for k in range(5)] + ["10⁻⁵", "10⁻⁶"]
    figure.update_yaxes(type="log", tickvals=[10.0**-k for k in range(7)], ticktext=ticks)
    figure.update_layout(showlegend=False)
    return figure


def _add_spectrum(figure: go.Figure, entry: Entry, choice: str, first: First, name: str, line: dict[str, Any]) -> None:
    """The line of one site's singular values over the first of them, thinned to what a screen can show."""
    values = numbers(entry, field_of("singular_values", choice))
    if not values and entry.get("null"):
        values = numbers(entry, "singular_values")
    if not values or values[0] <= 0:
        return
    ranks = thin(len(values))
    figure.add_scatter(
        x=[r + 1 for r in ranks], y=[float(f"{values[r] / values[0]:.4g}") or None for r in ranks], name=literal(name),
        mode="lines", line=line, hovertemplate="rank %{x}: <b>%{y:.3g}</b><extra>" + literal(name) + "</extra>",
        visible=choice == "without" or first != "both", meta={"first": choice} if first == "both" else {},
    )  # fmt: skip


def _same_floor(spectra: list[go.Figure]) -> None:
    """Gives the spectra of all models one scale, so that they can be compared by eye."""
    values = [v for figure in spectra for trace in figure.data for v in trace.y if v]
    # Beyond a cloud's rank its singular values are rounding errors: such a line falls out of the picture.
    real = [v for v in values if v > 1e-6]
    low = max(float(np.quantile(real, 0.01)), 1e-4) if real else 1e-3
    for figure in spectra:
        figure.update_yaxes(range=[float(np.log10(low)) - 0.1, 0.16])


@section("scan", 40)
def length(result: ScanResult) -> Section:
    """How long the vectors are, and how long the one is that they share."""
    caption = (
        "Mean norm of the tokens' vectors (solid) and norm of their mean, which all tokens share (dotted), by layer."
    )
    figure = Figure("norms", partial(_norms, result.document, "both"), "Norms by layer", caption, 320)
    lead = "When the two lines meet, every token carries the same vector."
    return Section("How long are the vectors?", lead, [figure], "norms")


def _norms(document: Entry, first: First = "without") -> go.Figure:
    """How long the vectors are (solid) and how long the vector is that they share (dotted), at each site."""
    figure = by_layer(document, "mean_norm", first, nulls=False, dash="solid")
    shared = by_layer(document, "mean_vector_norm", first, nulls=False, dash="dot")
    for trace in figure.data:
        trace.name = f"{trace.name}, mean norm"
    for trace in shared.data:
        trace.name, trace.legendgroup = f"{trace.name}, norm of the mean", f"shared {trace.legendgroup}"
    figure.add_traces(shared.data)
    values = [v for t in figure.data if not t.fill for v in t.y if v]
    if values and max(values) > 30 * min(values) > 0:
        figure.update_yaxes(type="log", dtick=1)
    else:
        figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="norm")
    return figure


# ---- What changes from layer to layer, from model to model, and from trained to random weights: paired differences.

LEAD = (
    "Sites that read the same text err together, so an interval of a difference is narrower than two intervals say. "
    "Each site less the one before it, the last less the first, each less the same site of the model before, and of random "
    "weights."
)


@section("scan", 99)
def differences(result: ScanResult) -> Section | None:
    """A row a pair, a column a core measure."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    core = [name for name in measures if mapping(measures, name).get("core")]
    rows: dict[tuple[str, str, str, str], dict[str, Entry]] = {}
    for one in entries(document, "differences"):
        place = (text(one, "model_a"), text(one, "site_a"), text(one, "model_b"), text(one, "site_b"))
        rows.setdefault(place, {})[text(one, "measure")] = one
    titles = [text(mapping(measures, name), "title", name) for name in core]
    columns = [Column("of"), Column("less"), *(Column(title) for title in titles)]
    table = Table(
        columns, [_line(place, found, core) for place, found in rows.items()], "Differences", folded=True, where="page"
    )
    return Section("Differences", LEAD, [table]) if rows else None


def _line(place: tuple[str, str, str, str], found: dict[str, Entry], core: list[str]) -> Line:
    model_a, site_a, model_b, site_b = place
    less = site_b if model_a == model_b else f"{named(model_b)} {site_b}"
    cells: list[Cell] = [Cell(less)]
    for name in core:
        one = found.get(name, {})
        ends = numbers(one, "interval")
        cells.append(
            Cell(number(one, "difference"), (ends[0], ends[1]) if ends else None, "not defined at one of the two")
        )
    return Line(f"{named(model_a)} {site_a}", cells)


# ---- Who builds the cone and who takes it away, layer by layer, and what else it is made of.

SCALE = (palette.MODELS[1][0], palette.ROLES["paper"][0], palette.MODELS[0][0])
"""From what takes away to what builds."""


@section("scan", 15)
def anatomy(result: ScanResult) -> Section | None:
    """A map of branches by sites for each model, and the parts of its deepest site."""
    rows = [row for row in rows_of(result.document, "anatomy") if not row.get("null")]
    if not rows:
        return None
    names = [name for name in models(result.document) if any(row.get("model") == name for row in rows)]
    parts: list[Part] = []
    figures = []
    for number_, name in enumerate(names):
        own = [row for row in rows if row.get("model") == name and row.get("kind") == "branch"]
        if len({row.get("site") for row in own}) > 1:
            height = 120 + 15 * len({row.get("part") for row in own})
            title = named(name) if len(names) > 1 else ""
            alt = f"Share of the cone of {named(name)} that each branch makes, by site"
            figures.append(Figure(f"anatomy-{number_}", partial(_map, own), alt, height=height, title=title))
    if figures:
        parts.append(
            Panels(
                figures,
                "What each branch adds to the squared length of the mean direction at each site, as a share: blue builds the "
                "cone, rust takes it away, and every column adds up to 1.",
            )
        )
    for name in names:
        parts += [_table(name, kind, rows, len(names) > 1) for kind in ("branch", "band", "position", "coordinate", "document")
                  if any(row.get("model") == name and row.get("kind") == kind for row in rows)]  # fmt: skip
    lead = (
        "The average cosine is, up to the diagonal, the squared length of the mean unit state, and a state is a sum: so the cone "
        "is, too."
    )
    return Section("Who builds the cone?", lead, parts, "anatomy")


def _map(rows: list[Entry]) -> go.Figure:
    """Branches down, sites across."""
    sites, parts = (list(dict.fromkeys(text(row, key) for row in rows)) for key in ("site", "part"))
    parts = [part for part in parts if part != "rounding"]
    found = {(text(row, "part"), text(row, "site")): number(row, "share") for row in rows}
    values = [[found.get((part, site)) for site in sites] for part in parts]
    most = max((abs(value) for line in values for value in line if value is not None), default=1.0)
    return heat(
        values,
        sites,
        parts,
        low=-most,
        high=most,
        scale=SCALE,
        hover="%{y} at %{x}: %{z:.3f} of the cone<extra></extra>",
    )


def _table(model: str, kind: str, rows: list[Entry], several: bool) -> Table:
    """The shares of one kind at the deepest site that has any."""
    own = [row for row in rows if row.get("model") == model and row.get("kind") == kind]
    site = text(own[-1], "site")
    shown = [row for row in own if row.get("site") == site]
    columns = [
        Column(""),
        Column("share of the cone", "aᵢ·m/|m|² of the mean unit state m = Σaᵢ.", percent=True, places=1),
    ]
    tokens = any(number(row, "tokens") is not None for row in shown)
    columns += [Column("share of the tokens", percent=True, places=1)] if tokens else []
    lines = [
        Line(
            text(row, "part"),
            [Cell(number(row, "share"), bounds(row, "share")), *([number(row, "tokens")] if tokens else [])],
        )
        for row in shown
    ]
    title = f"{named(model)}: by {kind} at {site}" if several else f"By {kind} at {site}"
    return Table(columns, lines, title, folded=True, where="page")
