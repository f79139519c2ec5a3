"""The entries of a scan's document, in order, and the place of a site on an axis that all models of a figure share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

import plotly.graph_objects as go

from headscan.report.kit import palette
from headscan.report.kit.figures import empty
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, text
from headscan.report.kit.words import literal
from headscan.report.kit.words import number as written

NULLS = {"random-init": "random weights", "gaussian": "Gaussian"}
"""What stands beside a model: its architecture with random weights, and a Gaussian cloud."""

NAME = re.compile(
    r"^(?:(?P<stack>encoder|decoder)\.)?(?P<base>embedding|block|final_norm|head)"
    r"(?:\.(?P<index>\d+))?(?:\.(?P<part>.+))?$"
)


@dataclass(frozen=True)
class Place:
    """Where a site stands: `stack` ('' unless encoder-decoder), `part` ('' in the main stream), x, and a short label."""

    stack: str
    part: str
    x: float
    label: str


class Axis:
    """The layer axis of models that may differ in depth, and of encoders that differ in depth from their decoders.

    Where all stacks have the same number of blocks, the axis counts layers: the embedding at 0, block k at k + 1, its parts
    just before it, then the final norm and the head. Where they differ, block 4 of one is not block 4 of another: the axis
    is the share of the blocks passed, 0 at the embedding and 1 after the last block, with the norm and the head beyond.
    """

    def __init__(self, document: Entry) -> None:
        self.blocks: dict[tuple[str, str], int] = {}
        self.deepest: dict[str, float] = {}
        for entry in entries(document, "sites"):
            model, found = text(entry, "model"), NAME.match(text(entry, "site"))
            self.deepest[model] = max(self.deepest.get(model, 1.0), number(entry, "depth") or 0)
            if found and found["index"] is not None:
                key = model, found["stack"] or ""
                self.blocks[key] = max(self.blocks.get(key, 0), int(found["index"]) + 1)
        for record in entries(document, "models"):  # a scan of a few sites does not show how deep the model is
            key = text(record, "name"), ""
            if key in self.blocks:
                self.blocks[key] = max(self.blocks[key], int(number(record, "depth") or 0))
        self.counts = len(set(self.blocks.values())) <= 1
        self.title = "layer" if self.counts else "share of the blocks"

    def place(self, entry: Entry) -> Place:
        """The place of an entry's site; one with a name of its own kind stands at its depth."""
        model, site = text(entry, "model"), text(entry, "site")
        found, depth = NAME.match(site), float(number(entry, "depth") or 0)
        if not found:
            return Place("", "", depth if self.counts else depth / self.deepest.get(model, 1.0), site)
        stack, base, part = found["stack"] or "", found["base"], found["part"] or ""
        blocks = self.blocks.get((model, stack)) or max(self.blocks.values(), default=0)
        if base == "block" and found["index"] is not None:
            x = int(found["index"]) + 1.0 - (0.25 if part == "mlp" else 0.5 if part else 0)
            return Place(stack, part, x if self.counts else x / blocks, found["index"] + (f".{part}" if part else ""))
        beyond = {"final_norm": 1, "head": 2}.get(base)
        label = {"embedding": "emb", "final_norm": "norm"}.get(base, base)
        if beyond is None:
            return Place(stack, part, 0.0, label)
        return Place(stack, part, blocks + beyond if self.counts else 1 + 0.08 * beyond, label)

    def ticks(self, shown: Iterable[Entry]) -> dict[float, str]:
        """Labels by their place, for the sites of the main stream."""
        places = [place for place in map(self.place, shown) if not place.part]
        if self.counts:
            return {place.x: place.label for place in reversed(places)}
        ends = {place.x: place.label for place in places if place.label in ("emb", "norm", "head")}
        return {0.25: "¼", 0.5: "½", 0.75: "¾", 1.0: "last"} | ends


def models(document: Entry) -> list[str]:
    """The models' names, in order; those that only the sites name come last."""
    named = [text(model, "name") for model in entries(document, "models")]
    return list(dict.fromkeys([*named, *(text(entry, "model") for entry in entries(document, "sites"))]))


def rows_of(document: Entry, name: str) -> list[Entry]:
    """The rows of a probe's table."""
    tables = document.get("tables")
    return entries(tables if isinstance(tables, dict) and name in tables else document, name)


def of_model(found: Iterable[Entry], model: str, null: str | None = None) -> list[Entry]:
    """The entries of one model (and one null), in order of depth."""
    mine = [e for e in found if e.get("model") == model and (e.get("null") or None) == null]
    return sorted(mine, key=lambda e: number(e, "depth") or 0)


def last_block(found: Iterable[Entry]) -> Entry | None:
    """The entry of the deepest whole block; without any block the deepest entry; without entries None.

    >>> last_block([{"site": "block.9", "depth": 10}, {"site": "block.10", "depth": 11}, {"site": "head", "depth": 12}])["site"]
    'block.10'
    """
    known = list(found)
    whole = [e for e in known if re.fullmatch(r"(?:(?:encoder|decoder)\.)?block\.\d+", text(e, "site"))]
    return max(whole or known, key=lambda e: number(e, "depth") or 0, default=None)


# ---- Measures by layer: a line with its interval band for each model, and its nulls beside it.
#
# `first` says whether sink tokens count: "with", "without", or "both" (then the traces with them are hidden, and each trace
# carries `meta = {"first": ...}` by which a page switches between them). Results that know of no sinks have "with" alone.

First = Literal["with", "without", "both"]
WITHOUT = "_without_sinks"
DASH = {"random-init": "dot", "gaussian": "dash"}
Band = tuple[float, float] | None


class Treatment(TypedDict):
    """Which treatment of sinks a trace is of, and whether it is seen at first."""

    visible: bool
    meta: dict[str, str]


@dataclass(frozen=True)
class Strand:
    """One line's looks: the model's index (colour, marker), its name, its null, its dash."""

    index: int
    name: str
    null: str = ""
    dash: str | None = None

    @property
    def colour(self) -> str:
        """The Gaussian belongs to no model."""
        return palette.ROLES["muted"][0] if self.null == "gaussian" else palette.model_colour(self.index)


def by_layer(
    document: Entry, measure: str, first: First = "without", *, nulls: bool = True, dash: str | None = None
) -> go.Figure:
    """One measure at each site of a scan.

    Sites inside a block (attention, mlp) get a thinner line of their own; values that are not defined leave a gap.
    """
    figure, axis, names = empty(), Axis(document), models(document)
    if not knows(document, measure):
        first = "with"
    for index, name in enumerate(names):
        found = of_model(entries(document, "sites"), name)
        add_lines(figure, axis, found, measure, first, Strand(index, literal(name), dash=dash))
        for null in NULLS if nulls else ():
            other = of_model(entries(document, "nulls"), name, null)
            if other and (null == "random-init" or index == 0):
                whose = f"{NULLS[null]} of {literal(name)}" if null == "random-init" and len(names) > 1 else NULLS[null]
                add_lines(figure, axis, other, measure, first, Strand(index, whose, null))
    ticks = axis.ticks(entries(document, "sites"))
    places = sorted(ticks)
    figure.update_xaxes(tickvals=places, ticktext=[literal(ticks[x]) for x in places], title_text=axis.title)
    title = text(mapping(mapping(document, "measures"), measure), "title", measure.replace("_", " "))
    figure.update_yaxes(title_text=literal(title).lower() if len(title) < 30 else "")
    return figure


def small(document: Entry, measure: str) -> go.Figure:
    """A small multiple: no legend (the first figure has it), little margin."""
    figure = by_layer(document, measure, "both")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36})
    figure.update_yaxes(title_text="", nticks=5)
    figure.update_xaxes(title_text="", tickangle=0)
    words = dict(zip(figure.layout.xaxis.tickvals or (), figure.layout.xaxis.ticktext or (), strict=True))
    places = apart(list(words))
    figure.update_xaxes(tickvals=places, ticktext=[words[x] for x in places])
    values = [v for trace in figure.data for v in trace.y if v is not None]
    share = text(mapping(mapping(document, "measures"), measure), "range").endswith("1.0]")
    # Beside the Gaussian, which uses all directions, a model's ranks would lie flat on the axis.
    if not share and values and min(values) > 0 and max(values) > 8 * min(values):
        figure.update_yaxes(type="log", dtick=1, tickformat="~g")
    elif values and min(values) >= 0:
        figure.update_yaxes(rangemode="tozero")
    return figure


def apart(places: list[float], room: float = 0.12) -> list[float]:
    """The first and the last of sorted places, and those between with so much of the whole length to either side.

    >>> apart([0, 1, 3, 14, 21, 28, 29])
    [0, 14, 21, 29]
    """
    if len(places) < 3:
        return places
    least, kept = room * (places[-1] - places[0]), places[:1]
    for place in places[1:-1]:
        if place - kept[-1] >= least and places[-1] - place >= least:
            kept.append(place)
    return [*kept, places[-1]]


def knows(document: Entry, measure: str) -> bool:
    """Whether a result has the measure without sinks."""
    return any(measure + WITHOUT in entry for entry in entries(document, "sites"))


def choices(first: First) -> list[str]:
    """The treatments of sinks to draw."""
    return ["without", "with"] if first == "both" else [first]


def field_of(measure: str, choice: str) -> str:
    """The document's field of a measure under one treatment of sinks."""
    return measure if choice == "with" else measure + WITHOUT


def leading(entry: Entry, measure: str) -> str:
    """The field of a measure that is shown first: without sinks, where the entry knows of them."""
    return measure + WITHOUT if measure + WITHOUT in entry else measure


def add_lines(figure: go.Figure, axis: Axis, found: list[Entry], measure: str, first: First, strand: Strand) -> None:
    """Adds one line (and its interval band) for each stack and part of a model."""
    streams: dict[tuple[str, str], list[tuple[Place, Entry]]] = {}
    for entry in found:
        spot = axis.place(entry)
        streams.setdefault((spot.stack, spot.part), []).append((spot, entry))
    for (stack, part), members in streams.items():
        label = " ".join(word for word in (strand.name, literal(stack), literal(part)) if word)
        for choice in choices(first):
            shown = Treatment(visible=choice == "without" or first != "both", meta=_meta(choice, first))
            _add_line(figure, members, field_of(measure, choice), measure, strand, label, bool(part), shown)


def _meta(choice: str, first: First) -> dict[str, str]:
    """What the page's switch goes by: nothing where there is no choice."""
    return {"first": choice} if first == "both" else {}


def _add_line(
    figure: go.Figure, members: list[tuple[Place, Entry]], field: str, measure: str, strand: Strand, label: str, thin: bool,
    shown: Treatment,
) -> None:  # fmt: skip
    x = [spot.x for spot, _ in members]
    values = [number(entry, field) for _, entry in members]
    if strand.null == "gaussian" and not any(v is not None for v in values):
        values = [number(entry, measure) for _, entry in members]  # its rows have no position
    bands = [bounds(entry, field) for _, entry in members]
    if not strand.null and any(bands):
        _add_band(figure, x, bands, strand.colour, label, shown)
    hover = [
        f"{literal(text(entry, 'site'))}: <b>{written(v)}</b>" + (f" ({written(b[0])} to {written(b[1])})" if b else "")
        for (_, entry), v, b in zip(members, values, bands, strict=True)
    ]
    pattern = DASH.get(strand.null) or strand.dash or palette.DASHES[strand.index % len(palette.DASHES)]
    symbol = palette.SYMBOLS[strand.index % len(palette.SYMBOLS)]
    figure.add_scatter(
        x=x, y=[None if v is None else float(f"{v:.6g}") for v in values], name=label, legendgroup=label,
        mode="lines" if strand.null else "lines+markers", text=hover, hovertemplate="%{text}<extra>" + label + "</extra>",
        line={"color": strand.colour, "dash": "longdashdot" if thin else pattern, "width": 1.2 if thin or strand.null else 2.2},
        marker={"size": 3 if thin or len(x) > 30 else 6, "color": strand.colour, "symbol": symbol}, **shown,
    )  # fmt: skip


def _add_band(figure: go.Figure, x: list[float], bands: list[Band], colour: str, group: str, shown: Treatment) -> None:
    """The interval band; it is parted where a value is not defined."""
    run: list[tuple[float, tuple[float, float]]] = []
    for spot, pair in [*zip(x, bands, strict=True), (0.0, None)]:
        if pair is not None:
            run.append((spot, pair))
            continue
        if run:
            there = [p for p, _ in run]
            high, low = ([float(f"{band[k]:.6g}") for _, band in run] for k in (1, 0))
            figure.add_scatter(
                x=there + there[::-1], y=high + low[::-1], mode="lines", fill="toself", hoverinfo="skip", showlegend=False,
                fillcolor=palette.translucent(colour, 0.14), line={"width": 0}, legendgroup=group, **shown,
            )  # fmt: skip
        run = []
