"""Measures of a scan by layer: its rows by model and null, the layer axis, and lines along it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS
from headscan.model import sites
from headscan.report.kit import Figure, Term, palette
from headscan.report.kit.figures import empty, set_log
from headscan.report.kit.words import literal, named, number

if TYPE_CHECKING:
    from headscan.run import Interval, ModelRecord, Row
    from headscan.scanner.result import ScanResult

NULLS = {"random-init": "random weights", "gaussian": "Gaussian"}
"""The controls of a model: its architecture with random weights, and a Gaussian cloud."""

SITE_NAME = re.compile(
    r"^(?:(?P<stack>encoder|decoder)\.)?(?P<base>embedding|block|final_norm|head)"
    r"(?:\.(?P<index>\d+))?(?:\.(?P<part>.+))?$"
)
# The norm and the head stand so many layers, or shares of the blocks, behind the last block.
LAYERS_BEHIND = {"final_norm": 1, "head": 2}
SHARE_BEHIND = 0.08
SHORT_NAMES = {"embedding": "emb", "final_norm": "norm"}


class Place(NamedTuple):
    """The position of a site on the layer axis.

    `stack` is '' unless the model is an encoder-decoder, `part` is '' in the main stream; `label`
    is short.
    """

    stack: str
    part: str
    x: float
    label: str


class Axis:
    """The layer axis of models that may differ in depth, as may an encoder and its decoder.

    Where all stacks have the same number of blocks, the axis counts layers: the embedding at 0,
    block k at k + 1, its parts just before it, then the final norm and the head. Where they differ,
    block 4 of one is not block 4 of another: the axis is the share of the blocks passed, 0 at the
    embedding and 1 after the last block, with the norm and the head beyond.
    """

    def __init__(self, rows: Iterable[Row], records: Iterable[ModelRecord]) -> None:
        self.blocks: dict[tuple[str, str], int] = {}
        self.deepest: dict[str, float] = {}
        for row in rows:
            model = row.text("model")
            self.deepest[model] = max(self.deepest.get(model, 1.0), depth_of(row))
            match = SITE_NAME.match(row.text("site"))
            if match and match["index"] is not None:
                key = model, match["stack"] or ""
                self.blocks[key] = max(self.blocks.get(key, 0), int(match["index"]) + 1)
        # A scan of a few sites does not show how deep the model is.
        for record in records:
            key = record.name, ""
            if key in self.blocks:
                self.blocks[key] = max(self.blocks[key], record.depth or 0)
        self.counts = len(set(self.blocks.values())) <= 1
        self.title = "layer" if self.counts else "share of the blocks"

    def place(self, row: Row) -> Place:
        """Return the place of a row's site; a site with another name stands at its depth."""
        model = row.text("model")
        site = row.text("site")
        match = SITE_NAME.match(site)
        if not match:
            depth = depth_of(row)
            x = depth if self.counts else depth / self.deepest.get(model, 1.0)
            return Place("", "", x, site)
        stack = match["stack"] or ""
        part = match["part"] or ""
        base = match["base"]
        block_count = self.blocks.get((model, stack)) or max(self.blocks.values(), default=0)
        if base == "block" and match["index"] is not None:
            layers = int(match["index"]) + 1.0 - _before_block_end(part)
            x = layers if self.counts else layers / block_count
            label = f"{match['index']}.{part}" if part else match["index"]
            return Place(stack, part, x, label)
        label = SHORT_NAMES.get(base, base)
        if base not in LAYERS_BEHIND:
            return Place(stack, part, 0.0, label)
        behind = LAYERS_BEHIND[base]
        x = block_count + behind if self.counts else 1 + SHARE_BEHIND * behind
        return Place(stack, part, x, label)

    def ticks(self, rows: Iterable[Row]) -> dict[float, str]:
        """Return labels by their x, for the sites of the main stream."""
        places = [place for place in map(self.place, rows) if not place.part]
        if self.counts:
            labels = {place.x: place.label for place in reversed(places)}
            return dict(sorted(labels.items()))
        ticks = {0.25: "¼", 0.5: "½", 0.75: "¾", 1.0: "last"}
        for place in places:
            if place.label in ("emb", "norm", "head"):
                ticks[place.x] = place.label
        return dict(sorted(ticks.items()))


def _before_block_end(part: str) -> float:
    """Return how far, in layers, a part of a block stands before the block's own output."""
    if not part:
        return 0.0
    return 0.25 if part == "mlp" else 0.5


def depth_of(row: Row) -> float:
    """Return the depth of a row's site; 0 where it is not known."""
    return float(row.number("depth") or 0)


def models(result: ScanResult) -> list[str]:
    """Return the models' names, in order; those that only the sites name come last."""
    recorded = [model.name for model in result.models]
    named_by_sites = [row.text("model") for row in result.sites]
    return list(dict.fromkeys(recorded + named_by_sites))


def of_model(rows: Iterable[Row], model: str, null: str | None = None) -> list[Row]:
    """Return the rows of a model (and a null), in order of depth."""
    chosen_rows = []
    for row in rows:
        row_null = row.get("null") or None
        if row.get("model") == model and row_null == null:
            chosen_rows.append(row)
    return sorted(chosen_rows, key=depth_of)


def last_block(rows: Iterable[Row]) -> Row | None:
    """Return the row of the last block, which stands for the model; without rows None."""
    row_by_site = {row.text("site"): row for row in sorted(rows, key=depth_of)}
    if not row_by_site:
        return None
    return row_by_site[sites.last_block(list(row_by_site))]


def term(words: Term, name: str, column: str = "") -> Term:
    """Return the words of a measure or a probe's field above a column of its own."""
    return replace(words, name=name, group="", column=column)


# Lines of a measure: `First` says if sink tokens count: "with", "without", or "both" (then the
# traces with them are hidden, and each trace carries `meta = {"first": ...}` by which a page
# switches between them). Results that know of no sinks have "with" alone.
First = Literal["with", "without", "both"]
DASH = {"random-init": "dot", "gaussian": "dash"}
TraceOptions = dict[str, object]
"""Options of a trace: if it is visible at first, and which treatment of sinks it shows."""


def treatments(result: ScanResult, measure: str, first: First) -> list[tuple[str, TraceOptions]]:
    """Return the fields of a measure to draw, each with the options of its trace."""
    fields = {"without": measure + WITHOUT_SINKS, "with": measure}
    if not knows(result, measure):
        first = "with"
    if first != "both":
        return [(fields[first], {"visible": True, "meta": {}})]
    return [
        (field, {"visible": name == "without", "meta": {"first": name}})
        for name, field in fields.items()
    ]


def has_sinks(result: ScanResult) -> bool:
    """Tell whether any token was found to be a sink: without one, all numbers are the same."""
    return any(row.number("sinks") for row in [*result.sites, *result.nulls])


def unit_of(result: ScanResult) -> str:
    """Return what was read: tokens, or vectors of a column."""
    text = result.protocol.text
    return text.unit if text else "tokens"


def has_one_site(result: ScanResult) -> bool:
    """Tell whether no model has several sites, so that nothing changes from layer to layer."""
    sites_of: defaultdict[str, set[str]] = defaultdict(set)
    for row in result.sites:
        sites_of[row.text("model")].add(row.text("site"))
    return all(len(sites) == 1 for sites in sites_of.values())


def knows(result: ScanResult, measure: str) -> bool:
    """Tell whether a result has the measure without sinks."""
    return any(measure + WITHOUT_SINKS in row for row in result.sites)


@dataclass(frozen=True)
class LayerLine:
    """One line of a measure: the sites of one stack and part, of a model or one of its nulls.

    `points` are the sites with their x; `index` counts the models.
    """

    label: str
    points: list[tuple[float, Row]]
    index: int
    null: str
    is_part: bool

    @property
    def colour(self) -> str:
        """Return the model's colour; all models share one Gaussian, which is grey."""
        if self.null == "gaussian":
            return palette.ROLES["muted"][0]
        return palette.model_colour(self.index)

    @property
    def dash(self) -> str:
        """Return the dash pattern of a part, a null or the model."""
        if self.is_part:
            return "longdashdot"
        return DASH.get(self.null) or palette.DASHES[self.index % len(palette.DASHES)]


def by_layer(
    result: ScanResult, measure: str, first: First = "without", *, nulls: bool = True
) -> go.Figure:
    """Return one measure at each site of a scan.

    Sites inside a block (attention, mlp) get a thinner line of their own; values that are not
    defined leave a gap.
    """
    figure = empty()
    axis = Axis(result.sites, result.models)
    for line in _layer_lines(result, axis, nulls):
        for field, options in treatments(result, measure, first):
            _add_line(figure, line, field, measure, options)
    ticks = axis.ticks(result.sites)
    labels = [literal(label) for label in ticks.values()]
    figure.update_xaxes(tickvals=list(ticks), ticktext=labels, title_text=axis.title)
    figure.update_layout(hovermode="x unified", xaxis_unifiedhovertitle_text=" ")
    title = measure.replace("_", " ")
    if measure in result.measures:
        title = result.measures[measure].title
    return figure.update_yaxes(title_text=literal(title).lower() if len(title) < 30 else "")


def _layer_lines(result: ScanResult, axis: Axis, nulls: bool) -> list[LayerLine]:
    """Return the lines of all models, each followed by those of its nulls."""
    names = models(result)
    short_names = {name: named(name) for name in names}
    if len(set(short_names.values())) < len(names):
        short_names = {name: name for name in names}
    lines = []
    for index, name in enumerate(names):
        own_rows = of_model(result.sites, name)
        label_of_model = literal(short_names[name])
        lines += _lines_by_stream(axis, own_rows, label_of_model, index, "")
        if not nulls:
            continue
        for null, words in NULLS.items():
            if null == "gaussian" and index > 0:
                continue
            several = null == "random-init" and len(names) > 1
            label = f"{words} of {label_of_model}" if several else words
            null_rows = of_model(result.nulls, name, null)
            lines += _lines_by_stream(axis, null_rows, label, index, null)
    return lines


def _lines_by_stream(
    axis: Axis, rows: list[Row], label: str, index: int, null: str
) -> list[LayerLine]:
    """Return one line for each stack and part among the rows."""
    streams: defaultdict[tuple[str, str], list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        place = axis.place(row)
        streams[place.stack, place.part].append((place.x, row))
    lines = []
    for (stack, part), points in streams.items():
        full_label = " ".join(filter(None, (label, literal(stack), literal(part))))
        lines.append(LayerLine(full_label, points, index, null, bool(part)))
    return lines


def _add_line(
    figure: go.Figure, line: LayerLine, field: str, measure: str, options: TraceOptions
) -> None:
    """Add a line of a field of the measure, and a model's interval band."""
    x = [position for position, _ in line.points]
    rows = [row for _, row in line.points]
    values = [row.number(field) for row in rows]
    intervals = [row.interval(field) if row.number(field) is not None else None for row in rows]
    if line.null == "gaussian" and all(value is None for value in values):
        # Rows of a Gaussian have no positions, so they have the measure of all tokens only.
        values = [row.number(measure) for row in rows]
    if not line.null and any(intervals):
        add_band(figure, x, intervals, line.colour, line.label, options)
    hover_texts = [
        _hover_text(row.text("site"), value, interval)
        for row, value, interval in zip(rows, values, intervals, strict=True)
    ]
    is_thin = line.is_part or bool(line.null)
    is_small = line.is_part or len(x) > 30
    symbol = palette.SYMBOLS[line.index % len(palette.SYMBOLS)]
    figure.add_scatter(
        x=x,
        y=[None if value is None else float(f"{value:.6g}") for value in values],
        name=line.label,
        legendgroup=line.label,
        mode="lines" if line.null else "lines+markers",
        text=hover_texts,
        hovertemplate="%{text}<extra>" + line.label + "</extra>",
        line={"color": line.colour, "dash": line.dash, "width": 1.2 if is_thin else 2.2},
        marker={"size": 3 if is_small else 6, "color": line.colour, "symbol": symbol},
        **options,
    )


def _hover_text(site: str, value: float | None, interval: Interval | None) -> str:
    text = f"{literal(site)}: <b>{number(value)}</b>"
    if interval:
        text += f" ({number(interval[0])} to {number(interval[1])})"
    return text


def add_band(
    figure: go.Figure,
    x: list[float],
    intervals: list[Interval | None],
    colour: str,
    group: str,
    options: TraceOptions,
) -> None:
    """Add the band of the intervals; it is parted where a value is not defined."""
    pairs = zip(x, intervals, strict=True)
    for is_defined, stretch in groupby(pairs, key=lambda pair: pair[1] is not None):
        if not is_defined:
            continue
        positions = []
        lows = []
        highs = []
        for position, interval in stretch:
            assert interval is not None
            positions.append(position)
            lows.append(float(f"{interval[0]:.6g}"))
            highs.append(float(f"{interval[1]:.6g}"))
        figure.add_scatter(
            x=positions + positions[::-1],
            y=highs + lows[::-1],
            mode="lines",
            fill="toself",
            hoverinfo="skip",
            showlegend=False,
            fillcolor=palette.translucent(colour, 0.14),
            line={"width": 0},
            legendgroup=group,
            **options,
        )


def small(result: ScanResult, measure: str) -> go.Figure:
    """Return a small multiple of a measure by layer.

    It has little margin and no legend, which the first figure of the page has.
    """
    figure = by_layer(result, measure, "both")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36})
    figure.update_yaxes(title_text="", nticks=5)
    axis = figure.layout.xaxis
    labels = dict(zip(axis.tickvals or (), axis.ticktext or (), strict=True))
    positions = spaced(list(labels))
    figure.update_xaxes(
        title_text="",
        tickangle=0,
        tickvals=positions,
        ticktext=[labels[x] for x in positions],
    )
    values = [value for trace in figure.data for value in trace.y if value is not None]
    low = min(values, default=-1.0)
    is_share = measure in result.measures and result.measures[measure].range[1] == 1
    # Beside the Gaussian, which uses all directions, a model's ranks would lie flat on the axis.
    if not is_share and low > 0 and max(values) > 8 * low:
        set_log(figure, "y")
    elif low >= 0:
        figure.update_yaxes(rangemode="tozero")
    return figure


def small_figure(
    name: str, words: Term, draw: Callable[[], go.Figure], alt: str = "", height: int = 190
) -> Figure:
    """Return a small figure under the title and sentence of a measure or a probe's field."""
    alt = alt or words.title
    return Figure(name, draw, alt, height=height, title=words.title, sentence=words.sentence)


def spaced(positions: list[float], room: float = 0.12) -> list[float]:
    """Return the first and the last of sorted positions, and those between that have room.

    `room` is the least distance to the neighbours, as a share of the whole length.

    >>> spaced([0, 1, 3, 14, 21, 28, 29])
    [0, 14, 21, 29]
    """
    if len(positions) < 3:
        return positions
    first = positions[0]
    last = positions[-1]
    least = room * (last - first)
    spaced_positions = [first]
    for position in positions[1:-1]:
        if position - spaced_positions[-1] >= least and last - position >= least:
            spaced_positions.append(position)
    return [*spaced_positions, last]
