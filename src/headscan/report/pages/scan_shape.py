"""The core measures by layer, the spectra, who builds the cone, and paired differences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from headscan.measures.measure import leading
from headscan.report.kit import Cell, Figure, Line, Panels, Section, Table, Term, palette, section
from headscan.report.kit.figures import empty, heat, thin
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import grouped, literal, named
from headscan.report.pages.scan_layers import (
    NULLS,
    First,
    Treatment,
    by_layer,
    knows,
    last_block,
    models,
    of_model,
    real,
    small,
    term,
    treatments,
)

if TYPE_CHECKING:
    from headscan.run import Row
    from headscan.scanner.result import ScanResult

ASIDE = "all columns but the last are of the tokens that are no sinks (longer than 3 times the median of their window)"


@section("scan", 10)
def cone(result: ScanResult) -> Section:
    """The average cosine by layer; in the terminal the tables of the core measures."""
    nulls = [null for null in NULLS if any(row.get("null") == null for row in result.nulls)]
    beside = {"random-init": "the same architecture with random weights", "gaussian": "a Gaussian cloud"}
    caption = (
        "Average cosine between two different tokens, by layer: 0 for a round cloud, 1 when all tokens point the same "
        "way. Bands are 95 % intervals."
    )
    if knows(result, "average_cosine"):
        caption += " Sink tokens are left out; the switch above counts them, too."
    if nulls:
        each = "each model" if len(models(result)) > 1 else "the model"
        caption += f" Beside {each}: {' and '.join(beside[n] for n in nulls)}, where nothing was learned."
    figure = Figure("cosine", partial(_average_cosine, result, "both"), "Average cosine by layer", caption, 380)
    lead = "Anisotropy, n. — Non-uniformity in direction. How much of a cone a cloud of vectors is."
    return Section("How cone are you?", lead, [figure, *_in_short(result)], "cosine")


def _average_cosine(result: ScanResult, first: First = "without") -> go.Figure:
    """How cone a model is: the mean cosine between two tokens at each site, with its interval and its nulls."""
    figure = by_layer(result, "average_cosine", first)
    low = min([0.0, *(v for trace in figure.data if not trace.fill for v in trace.y if v is not None)])
    figure.update_yaxes(
        range=[low * 1.1 - 0.02, 1.03], title_text="average cosine", tickvals=[-1, -0.5, 0, 0.25, 0.5, 0.75, 1]
    )
    return figure


def _in_short(result: ScanResult) -> list[Part]:
    """The terminal's table of each model: one row a site, the nulls at the last block below."""
    shown = [name for name, words in result.measures.items() if words.column and name != "average_cosine"]
    columns = [Term("site"), Term("average cosine", places=3, spread=True)]
    columns += [term(result.measures[name], name, result.measures[name].column) for name in shown]
    columns.append(Term("energy of sink tokens", column="sinks'\nenergy", percent=True, places=0))

    def line(row: Row, null: str = "") -> Line:
        cells = [cell_of(row, leading(row, "average_cosine")), *(row.number(leading(row, name)) for name in shown)]
        return Line("" if null else row.text("site"), [*cells, row.number("sink_energy")], null)

    parts: list[Part] = []
    for name in models(result):
        own = of_model(result.sites, name)
        last = last_block(own)
        lines = [line(row) for row in own]
        for null, words in NULLS.items():
            rows = of_model(result.nulls, name, null)
            lines += [line(row, words) for row in rows if last and row["site"] == last["site"]]
        notes = dict.fromkeys(note for row in own for note in row.notes)
        if any(row.number("sinks") for row in own):
            notes = dict.fromkeys([ASIDE, *notes])
        tokens = max((int(row.number("tokens") or 0) for row in own), default=0)
        title = f"{named(name)}  {grouped(tokens)} tokens" if len(models(result)) > 1 else ""
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
        f"Singular values by rank, divided by the first; one line a site, from {ends[0]} (faint) to {ends[1]} (strong)."
        f"{' Dashed: the expectation, a cloud that uses all its directions alike.' * gaussian} A cliff after rank 1 is a cone."
    )
    spectra = [
        Figure(f"spectrum-{k}", drawn[name], f"Singular values of {named(name)} by rank, divided by the first", height=360,
               title=named(name) if len(names) > 1 else "")
        for k, name in enumerate(names)
    ]  # fmt: skip
    multiples = [
        Figure(f"small-{key}", partial(small, result, key), f"{words.title} by layer", height=190, title=words.title,
               sentence=words.sentence)
        for key, words in result.measures.items() if words.core and key != "average_cosine"
    ]  # fmt: skip
    return Section(
        "Expectation and reality", "Singular value decomposition: how much of the cloud lies on each of its directions.",
        [Panels(spectra, caption), Panels(multiples, "Spectra and lengths in short, by layer; lines as in Fig. 1.", small=True)],
    )  # fmt: skip


def _spectrum(result: ScanResult, model: str, first: First = "without") -> go.Figure:
    """Singular values of each site of one model, divided by the first, on log axes; the Gaussian null is the expectation."""
    figure = empty("singular value, by rank", "σ<sub>i</sub> / σ<sub>1</sub>")
    rows = of_model(result.sites, model)
    muted = palette.ROLES["muted"][0]
    gaussian = last_block(of_model(result.nulls, model, "gaussian"))
    for field, shown in treatments(result, "singular_values", first):
        for row, (colour, _) in zip(rows, palette.depth_colours(len(rows)), strict=True):
            _add_spectrum(figure, row.numbers(field), row.text("site"), {"color": colour, "width": 1.6}, shown)
        if gaussian:
            line = {"color": muted, "width": 1.6, "dash": "dash"}
            values = gaussian.numbers(field) or gaussian.numbers("singular_values")
            _add_spectrum(figure, values, "expectation: Gaussian", line, shown)
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


def _add_spectrum(figure: go.Figure, values: list[float], name: str, line: dict[str, Any], shown: Treatment) -> None:
    """The line of singular values over the first of them, thinned to what a screen can show."""
    if not values or values[0] <= 0:
        return
    ranks = thin(len(values))
    figure.add_scatter(
        x=[r + 1 for r in ranks], y=[float(f"{values[r] / values[0]:.4g}") or None for r in ranks], name=literal(name),
        mode="lines", line=line, hovertemplate="rank %{x}: <b>%{y:.3g}</b><extra>" + literal(name) + "</extra>", **shown,
    )  # fmt: skip


def _same_floor(spectra: list[go.Figure]) -> None:
    """Gives the spectra of all models one scale, so that they can be compared by eye."""
    values = [v for figure in spectra for trace in figure.data for v in trace.y if v]
    # Beyond a cloud's rank its singular values are rounding errors: such a line falls out of the picture.
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
    rows = real(result.tables.get("anatomy", []))
    if not rows:
        return None
    names = [name for name in models(result) if any(row["model"] == name for row in rows)]
    figures, tables = [], []
    for number, name in enumerate(names):
        own = [row for row in rows if row["model"] == name]
        title = named(name) if len(names) > 1 else ""
        branches = [row for row in own if row["kind"] == "branch"]
        if len({row["site"] for row in branches}) > 1:
            height = 120 + 15 * len({row["part"] for row in branches})
            alt = f"Share of the cone of {named(name)} that each branch makes, by site"
            figures.append(Figure(f"anatomy-{number}", partial(_map, branches), alt, height=height, title=title))
        for kind in ("branch", "band", "position", "coordinate", "document"):
            some = [row for row in own if row["kind"] == kind]
            tables += [_parts_of(some, f"{title}: by {kind}" if title else f"By {kind}")] if some else []
    caption = (
        "What each branch adds to the squared length of the mean direction at each site, as a share: blue builds the "
        "cone, rust takes it away, and every column adds up to 1."
    )
    lead = (
        "The average cosine is, up to the diagonal, the squared length of the mean unit state, and a state is a sum: so the cone "
        "is, too."
    )
    return Section("Who builds the cone?", lead, [*([Panels(figures, caption)] if figures else []), *tables], "anatomy")


def _map(rows: list[Row]) -> go.Figure:
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
    columns = [Term(""), Term("share of the cone", "aᵢ·m/|m|² of the mean unit state m = Σaᵢ.", percent=True, places=1)]
    tokens = any(row.number("tokens") is not None for row in shown)
    columns += [Term("share of the tokens", percent=True, places=1)] * tokens
    names = ("share", "tokens") if tokens else ("share",)
    lines = [Line(row.text("part"), [cell_of(row, name) for name in names]) for row in shown]
    return Table(columns, lines, f"{title} at {site}", folded=True, where="page")


@section("scan", 99)
def differences(result: ScanResult) -> Section | None:
    """What changes from layer to layer, from model to model, and from random weights: a row a pair, a column a measure."""
    if not result.differences:
        return None
    core = [name for name, words in result.measures.items() if words.core]
    pairs: dict[tuple[str, str, str, str], dict[str, Cell]] = {}
    for one in result.differences:
        ends = (one.interval[0], one.interval[1]) if one.interval else None
        pair = pairs.setdefault((one.model_a, one.site_a, one.model_b, one.site_b), {})
        pair[one.measure] = Cell(one.difference, ends, UNDEFINED)
    lines = [
        Line(
            f"{named(model_a)} {site_a}",
            [site_b if model_a == model_b else f"{named(model_b)} {site_b}",
             *(cells.get(name, Cell(None, why=UNDEFINED)) for name in core)],
        )
        for (model_a, site_a, model_b, site_b), cells in pairs.items()
    ]  # fmt: skip
    columns = ["of", "minus", *(result.measures[name].title for name in core)]
    lead = (
        "Sites that read the same text err together, so an interval of a difference is narrower than two intervals suggest. "
        "Each layer minus the previous one; last minus first; each minus the same site of the previous model, and of random "
        "weights."
    )
    return Section("Differences", lead, [Table(columns, lines, "Differences", folded=True, where="page")])


UNDEFINED = "not defined at one of the two"
