"""The shape on a scan's page: the cone by layer, the spectra, the rank over the text's length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.model.sentence import SENTENCE
from headscan.report.kit import Figure, Line, Panels, Section, Table, Term, palette, section
from headscan.report.kit.figures import dots, empty, lines, log_ticks, set_log, thin
from headscan.report.kit.parts import cell_of
from headscan.report.kit.words import in_unit, literal, named
from headscan.report.pages.scan_layers import (
    NULLS,
    First,
    TraceOptions,
    by_layer,
    has_one_site,
    has_sinks,
    knows,
    last_block,
    models,
    of_model,
    small,
    small_figure,
    term,
    treatments,
    unit_of,
)

if TYPE_CHECKING:
    from headscan.run import Row
    from headscan.scanner.result import ScanResult

SINKS_NOTE = (
    "all columns but the last are of the tokens that are no sinks (longer than 3 times the median "
    "of their window)"
)
RANKS_NOTE = (
    "top share and eff. rank are uncentred and count the common direction; part. ratio and "
    "iso-score are centred and may exceed them; --measures spectra gives both of each"
)
NULL_DESCRIPTIONS = {
    "random-init": "the same architecture with random weights",
    "gaussian": "a Gaussian cloud",
}
NO_INTERVAL = " has no interval: "
EXPECTATION = "expectation: Gaussian"
TINIEST_VALUE = 1e-6  # relative; below it a singular value is a rounding error


@section("scan", 35)
def over_length(result: ScanResult) -> Section | None:
    """Return the effective rank at each doubling of the text, at the last block of each model."""
    field = f"effective_rank{WITHOUT_SINKS}"
    series: dict[str, tuple[list[Any], list[Any], list[Any]]] = {}
    for model in models(result):
        row = last_block(of_model(result.sites, model))
        if row is None:
            continue
        lengths = row.get("lengths")
        curve = row.get(f"{field}_curve")
        if isinstance(lengths, list) and isinstance(curve, list):
            intervals = [*[None] * (len(curve) - 1), row.interval(field)]
            series[f"{named(model)}, {row.text('site')}"] = (lengths, curve, intervals)
    if not series:
        return None
    unit = unit_of(result)
    figure = Figure(
        "length",
        lambda: lines(series, f"{unit} read", "effective rank", log="x"),
        f"Effective rank at the last block by {unit} read, at each doubling of the text",
        f"The first {unit}, at each doubling; the bar is the 95 % interval of the whole.",
        320,
    )
    lead = (
        f"A spectral number depends on how many {unit} were read: compare models, layers and "
        "checkpoints at equal numbers."
    )
    title = "Over the length of the text" if unit == "tokens" else f"Over the number of {unit}"
    return Section(title, lead, [figure], "length")


@section("scan", 10)
def cone(result: ScanResult) -> Section:
    """Return the average cosine by layer; in the terminal the tables of the core measures."""
    figure = Figure(
        "cosine",
        partial(average_cosine, result, "both"),
        "Average cosine by layer",
        _cone_caption(result),
        380,
    )
    title = "The cone, layer by layer"
    if has_one_site(result):
        title = "The cone"
        draw = partial(cosine_of_one_site, result)
        figure = replace(figure, draw=draw, alt="Average cosine of each model", height=220)
    lead = (
        "Anisotropy: vectors share a direction. The average cosine says how narrow their cone is."
    )
    tables = [terminal_table(result, model) for model in models(result)]
    return Section(title, lead, [figure, *tables], "cosine")


def _cone_caption(result: ScanResult) -> str:
    where = "" if has_one_site(result) else ", by layer"
    unit = unit_of(result)
    caption = (
        f"Average cosine between two different {unit}{where}: 0 for a round cloud, 1 when all "
        f"{unit} point the same way. {'Bars' if not where else 'Bands'} are 95 % intervals."
    )
    if has_sinks(result) and knows(result, "average_cosine") and where:
        caption += " Sink tokens are left out; the switch above counts them, too."
    present = {row.get("null") for row in result.nulls}
    nulls = [words for null, words in NULL_DESCRIPTIONS.items() if null in present]
    if nulls:
        subject = "each model" if len(models(result)) > 1 else "the model"
        caption += (
            f" For comparison with {subject}: {' and '.join(nulls)}, where nothing was learned."
        )
    return caption


def average_cosine(result: ScanResult, first: First = "without") -> go.Figure:
    """Return the mean cosine between two tokens at each site, with its interval and its nulls."""
    figure = by_layer(result, "average_cosine", first)
    values = [value for trace in figure.data for value in trace.y if value is not None]
    low = min([0.0, *values])
    high = max([0.25, *values])
    limits = [low * 1.1 - 0.02, min(high * 1.08, 1.03)]
    return figure.update_yaxes(range=limits, title_text="average cosine")


def cosine_of_one_site(result: ScanResult) -> go.Figure:
    """Return the mean cosine of each model's one site, and of its nulls, without sinks."""
    rows = {f"{named(row.text('model'))}, {row.text('site')}": row for row in result.sites}
    for row in result.nulls:
        null_name = NULLS[row.text("null")]
        rows[f"{named(row.text('model'))}, {null_name}"] = row
    fields = {label: leading(row, "average_cosine") for label, row in rows.items()}
    values = {label: row.number(fields[label]) for label, row in rows.items()}
    intervals = [row.interval(fields[label]) for label, row in rows.items()]
    low = min([0.0, *(value for value in values.values() if value is not None)])
    return dots(values, intervals, "average cosine").update_xaxes(range=[low - 0.03, 1.03])


def terminal_table(result: ScanResult, model: str) -> Table:
    """Return the terminal's table of a model: its sites, and below the nulls at the last block."""
    columns = {
        name: words
        for name, words in result.measures.items()
        if words.column and name != "average_cosine"
    }
    headings = [Term("site"), Term("average cosine", places=3, spread=True)]
    headings += [term(words, name, words.column) for name, words in columns.items()]
    headings.append(Term("energy of sink tokens", column="sinks'\nenergy", percent=True, places=1))
    rows = of_model(result.sites, model)
    lines = [_terminal_line(row, columns) for row in rows]
    last = last_block(rows)
    for null, null_name in NULLS.items():
        for row in of_model(result.nulls, model, null):
            if last and row["site"] == last["site"]:
                lines.append(_terminal_line(row, columns, null_name))
    footnotes = _footnotes(rows, unit_of(result))
    is_last_model = model == models(result)[-1]
    if is_last_model and {"effective_rank", "participation_ratio"} <= columns.keys():
        footnotes.append(RANKS_NOTE)
    title = ""
    if len(models(result)) > 1:
        tokens = max((int(row.number("tokens") or 0) for row in rows), default=0)
        title = f"{named(model)}  {tokens:,} {unit_of(result)}"
    return Table(headings, lines, title, footnotes=footnotes, where="terminal")


def _terminal_line(row: Row, columns: Iterable[str], null_name: str = "") -> Line:
    """Return the core measures of a site, or of a null at the last block, which has no label."""
    label = row.text("site")
    if label == SENTENCE:
        # There are few of them, beside so many tokens.
        label += f" ({row.number('tokens') or 0:,.0f} vectors)"
    cells = [
        cell_of(row, leading(row, "average_cosine")),
        *(row.number(leading(row, name)) for name in columns),
        row.number("sink_energy"),
    ]
    return Line("" if null_name else label, cells, null_name)


def _footnotes(rows: list[Row], unit: str) -> list[str]:
    """Return the notes under the terminal's table of a model."""
    footnotes = []
    if any(row.number("sinks") for row in rows):
        footnotes.append(SINKS_NOTE)
    clusters = next((row["clusters"] for row in rows if row.get("clusters")), None)
    if clusters:
        population = "stretches of this text of the same length"
        if unit == "vectors":
            population = "rows like those read"
        elif clusters == "documents":
            population = "another text of this length and kind"
        footnotes.append(f"[low, high]: the 95 % interval for {population}")
    footnotes += merged_notes(note for row in rows for note in row.notes)
    return list(dict.fromkeys(footnotes))


def merged_notes(notes: Iterable[str]) -> list[str]:
    """Return the notes, with one line for all numbers that have no interval for the same reason.

    >>> merged_notes(["a has no interval: few.", "b has no interval: few.", "Other."])
    ['a, b have no interval: few.', 'Other.']
    """
    names_by_reason: dict[str, list[str]] = {}
    for note in notes:
        name, separator, reason = note.partition(NO_INTERVAL)
        if separator:
            names = names_by_reason.setdefault(reason, [])
            name = name.split("_without_")[0]
            if name not in names:
                names.append(name)
        else:
            names_by_reason.setdefault(note, [])
    merged = []
    for reason, names in names_by_reason.items():
        verb = "has" if len(names) == 1 else "have"
        merged.append(f"{', '.join(names)} {verb} no interval: {reason}" if names else reason)
    return merged


@section("scan", 20)
def spectrum(result: ScanResult) -> Section:
    """Return the singular values by rank, and the measures that sum them up."""
    names = models(result)
    spectra = [spectrum_of(result, name, "both") for name in names]
    _set_same_floor(spectra)
    figures = []
    for number, (name, drawn) in enumerate(zip(names, spectra, strict=True)):
        alt = f"Singular values of {named(name)} by rank, divided by the first"
        title = named(name) if len(names) > 1 else ""
        figures.append(Figure(f"spectrum-{number}", drawn, alt, height=360, title=title))
    multiples = []
    for key, words in result.measures.items():
        if words.core and key != "average_cosine" and not has_one_site(result):
            in_words = replace(words, sentence=in_unit(words.sentence, unit_of(result)))
            draw = partial(small, result, key)
            multiples.append(
                small_figure(f"small-{key}", in_words, draw, f"{words.title} by layer")
            )
    lead = "Singular value decomposition: how much of the cloud lies on each of its directions."
    small_caption = "Spectra and lengths in short, by layer; lines as in Fig. 1."
    panels = [Panels(figures, _spectrum_caption(result, names[0]))]
    if multiples:
        panels.append(Panels(multiples, small_caption, small=True))
    return Section("Singular values", lead, panels)


def _spectrum_caption(result: ScanResult, model: str) -> str:
    rows = of_model(result.sites, model)
    first = rows[0].text("site")
    last = rows[-1].text("site")
    caption = "Singular values by rank, divided by the first"
    if first != last:
        caption += f"; one line a site, from {first} (faint) to {last} (strong)"
    caption += "."
    if any(row.get("null") == "gaussian" for row in result.nulls):
        caption += " Dashed: the expectation, a cloud that uses all its directions alike."
    return f"{caption} A cliff after rank 1 is a cone."


def spectrum_of(result: ScanResult, model: str, first: First = "without") -> go.Figure:
    """Return the singular values of each site of a model, divided by the first, on log axes.

    The Gaussian null is the expectation.
    """
    figure = empty("singular value, by rank", "σ<sub>i</sub> / σ<sub>1</sub>")
    rows = of_model(result.sites, model)
    gaussian = last_block(of_model(result.nulls, model, "gaussian"))
    muted = palette.ROLES["muted"][0]
    for field, options in treatments(result, "singular_values", first):
        for row, (colour, _) in zip(rows, palette.depth_colours(len(rows)), strict=True):
            line = {"color": colour, "width": 1.6}
            _add_spectrum(figure, row.numbers(field), row.text("site"), line, options)
        if gaussian:
            line = {"color": muted, "width": 1.6, "dash": "dash"}
            values = gaussian.numbers(field) or gaussian.numbers("singular_values")
            _add_spectrum(figure, values, EXPECTATION, line, options)
    if figure.data and figure.data[-1].line.dash == "dash":
        figure.add_annotation(
            x=1,
            xref="paper",
            xanchor="right",
            y=0.02,
            yanchor="bottom",
            text=EXPECTATION,
            showarrow=False,
            font={"size": 12, "color": muted},
        )
    return set_log(figure, "x", "y").update_layout(showlegend=False)


def _add_spectrum(
    figure: go.Figure, values: list[float], name: str, line: dict[str, Any], options: TraceOptions
) -> None:
    """Add the line of singular values over the first, thinned to what a screen can show."""
    if not values or values[0] <= 0:
        return
    ranks = thin(len(values))
    # A value of 0 has no logarithm: it leaves a gap.
    relative = [float(f"{values[rank] / values[0]:.4g}") or None for rank in ranks]
    label = literal(name)
    figure.add_scatter(
        x=[rank + 1 for rank in ranks],
        y=relative,
        name=label,
        mode="lines",
        line=line,
        hovertemplate=f"rank %{{x}}: <b>%{{y:.3g}}</b><extra>{label}</extra>",
        **options,
    )


def _set_same_floor(spectra: list[go.Figure]) -> None:
    """Give the spectra of all models one scale, so that they can be compared by eye."""
    values = [value for figure in spectra for trace in figure.data for value in trace.y]
    # Beyond a cloud's rank its singular values are rounding errors: such a line falls out of the
    # picture.
    sound = [value for value in values if value is not None and value > TINIEST_VALUE]
    low = max(float(np.quantile(sound, 0.01)), 1e-4) if sound else 1e-3
    for figure in spectra:
        figure.update_yaxes(range=[float(np.log10(low)) - 0.1, 0.16], **log_ticks([low, 1.0]))
