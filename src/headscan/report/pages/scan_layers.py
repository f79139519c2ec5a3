"""The rows of a scan by model and null, the place of a site on the axis that all models share, and lines along it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS
from headscan.report.kit import Term, palette
from headscan.report.kit.figures import empty
from headscan.report.kit.words import literal
from headscan.report.kit.words import number as written

if TYPE_CHECKING:
    from headscan.run import Interval, Row
    from headscan.scanner.result import ScanResult

NULLS = {"random-init": "random weights", "gaussian": "Gaussian"}
"""What stands beside a model: its architecture with random weights, and a Gaussian cloud."""

NAME = re.compile(
    r"^(?:(?P<stack>encoder|decoder)\.)?(?P<base>embedding|block|final_norm|head)"
    r"(?:\.(?P<index>\d+))?(?:\.(?P<part>.+))?$"
)


class Place(NamedTuple):
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

    def __init__(self, result: ScanResult) -> None:
        self.blocks: dict[tuple[str, str], int] = {}
        self.deepest: dict[str, float] = {}
        for row in result.sites:
            model, match = row.text("model"), NAME.match(row.text("site"))
            self.deepest[model] = max(self.deepest.get(model, 1.0), depth_of(row))
            if match and match["index"] is not None:
                key = model, match["stack"] or ""
                self.blocks[key] = max(self.blocks.get(key, 0), int(match["index"]) + 1)
        for record in result.models:  # a scan of a few sites does not show how deep the model is
            if (record.name, "") in self.blocks:
                self.blocks[record.name, ""] = max(self.blocks[record.name, ""], record.depth or 0)
        self.counts = len(set(self.blocks.values())) <= 1
        self.title = "layer" if self.counts else "share of the blocks"

    def place(self, row: Row) -> Place:
        """The place of a row's site; one with a name of its own kind stands at its depth."""
        model, site = row.text("model"), row.text("site")
        match, depth = NAME.match(site), depth_of(row)
        if not match:
            return Place("", "", depth if self.counts else depth / self.deepest.get(model, 1.0), site)
        stack, base, part = match["stack"] or "", match["base"], match["part"] or ""
        blocks = self.blocks.get((model, stack)) or max(self.blocks.values(), default=0)
        if base == "block" and match["index"] is not None:
            x = int(match["index"]) + 1.0 - (0.25 if part == "mlp" else 0.5 if part else 0)
            return Place(stack, part, x if self.counts else x / blocks, match["index"] + (f".{part}" if part else ""))
        beyond = {"final_norm": 1, "head": 2}.get(base)
        label = {"embedding": "emb", "final_norm": "norm"}.get(base, base)
        if beyond is None:
            return Place(stack, part, 0.0, label)
        return Place(stack, part, blocks + beyond if self.counts else 1 + 0.08 * beyond, label)

    def ticks(self, rows: Iterable[Row]) -> dict[float, str]:
        """Labels by their place, for the sites of the main stream."""
        places = [place for place in map(self.place, rows) if not place.part]
        if self.counts:
            return {place.x: place.label for place in reversed(places)}
        ends = {place.x: place.label for place in places if place.label in ("emb", "norm", "head")}
        return {0.25: "¼", 0.5: "½", 0.75: "¾", 1.0: "last"} | ends


def depth_of(row: Row) -> float:
    return float(row.number("depth") or 0)


def models(result: ScanResult) -> list[str]:
    """The models' names, in order; those that only the sites name come last."""
    return list(dict.fromkeys([*(model.name for model in result.models), *(row.text("model") for row in result.sites)]))


def of_model(rows: Iterable[Row], model: str, null: str | None = None) -> list[Row]:
    """The rows of one model (and one null), in order of depth."""
    return sorted(
        (row for row in rows if row.get("model") == model and (row.get("null") or None) == null), key=depth_of
    )


def real(rows: Iterable[Row]) -> list[Row]:
    """The rows that are no null's."""
    return [row for row in rows if not row.get("null")]


def last_block(rows: Iterable[Row]) -> Row | None:
    """The row of the deepest whole block; without any block the deepest row; without rows None."""
    known = list(rows)
    whole = [row for row in known if re.fullmatch(r"(?:(?:encoder|decoder)\.)?block\.\d+", row.text("site"))]
    return max(whole or known, key=depth_of, default=None)


def term(words: Term, name: str, column: str = "") -> Term:
    """The words of a measure or a probe's field above a column of its own."""
    return replace(words, name=name, group="", column=column)


# ---- Measures by layer: a line with its interval band for each model, and its nulls beside it.
#
# `first` says whether sink tokens count: "with", "without", or "both" (then the traces with them are hidden, and each trace
# carries `meta = {"first": ...}` by which a page switches between them). Results that know of no sinks have "with" alone.

First = Literal["with", "without", "both"]
DASH = {"random-init": "dot", "gaussian": "dash"}


class Treatment(TypedDict):
    """Which treatment of sinks a trace is of, and whether it is seen at first."""

    visible: bool
    meta: dict[str, str]


def treatments(result: ScanResult, measure: str, first: First) -> list[tuple[str, Treatment]]:
    """The fields of a measure to draw, with what the page's switch goes by."""
    if not knows(result, measure):
        first = "with"
    if first != "both":
        return [(measure + (WITHOUT_SINKS if first == "without" else ""), Treatment(visible=True, meta={}))]
    return [
        (measure + WITHOUT_SINKS, Treatment(visible=True, meta={"first": "without"})),
        (measure, Treatment(visible=False, meta={"first": "with"})),
    ]


def knows(result: ScanResult, measure: str) -> bool:
    """Whether a result has the measure without sinks."""
    return any(measure + WITHOUT_SINKS in row for row in result.sites)


@dataclass(frozen=True)
class Strand:
    """One line's looks: the model's index (colour, dash, marker), its name, its null."""

    index: int
    name: str
    null: str = ""

    @property
    def colour(self) -> str:
        return palette.ROLES["muted"][0] if self.null == "gaussian" else palette.model_colour(self.index)


def by_layer(result: ScanResult, measure: str, first: First = "without", *, nulls: bool = True) -> go.Figure:
    """One measure at each site of a scan.

    Sites inside a block (attention, mlp) get a thinner line of their own; values that are not defined leave a gap.
    """
    figure, axis, names = empty(), Axis(result), models(result)
    for index, name in enumerate(names):
        strands = [(of_model(result.sites, name), Strand(index, literal(name)))]
        for null, words in NULLS.items() if nulls else ():
            rows = of_model(result.nulls, name, null)
            if rows and (null == "random-init" or index == 0):
                whose = f"{words} of {literal(name)}" if null == "random-init" and len(names) > 1 else words
                strands.append((rows, Strand(index, whose, null)))
        for rows, strand in strands:
            streams: dict[tuple[str, str], list[tuple[float, Row]]] = {}
            for row in rows:
                stack, part, x, _ = axis.place(row)
                streams.setdefault((stack, part), []).append((x, row))
            for (stack, part), members in streams.items():
                label = " ".join(word for word in (strand.name, literal(stack), literal(part)) if word)
                for field, treatment in treatments(result, measure, first):
                    _add_line(figure, members, field, measure, strand, label, bool(part), treatment)
    ticks = axis.ticks(result.sites)
    places = sorted(ticks)
    figure.update_xaxes(tickvals=places, ticktext=[literal(ticks[x]) for x in places], title_text=axis.title)
    title = result.measures[measure].title if measure in result.measures else measure.replace("_", " ")
    figure.update_yaxes(title_text=literal(title).lower() if len(title) < 30 else "")
    return figure


def small(result: ScanResult, measure: str) -> go.Figure:
    """A small multiple: no legend (the first figure has it), little margin."""
    figure = by_layer(result, measure, "both")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36})
    figure.update_yaxes(title_text="", nticks=5)
    figure.update_xaxes(title_text="", tickangle=0)
    words = dict(zip(figure.layout.xaxis.tickvals or (), figure.layout.xaxis.ticktext or (), strict=True))
    places = apart(list(words))
    figure.update_xaxes(tickvals=places, ticktext=[words[x] for x in places])
    values = [v for trace in figure.data for v in trace.y if v is not None]
    share = measure in result.measures and result.measures[measure].range[1] == 1
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
    least, chosen = room * (places[-1] - places[0]), places[:1]
    for place in places[1:-1]:
        if place - chosen[-1] >= least and places[-1] - place >= least:
            chosen.append(place)
    return [*chosen, places[-1]]


def _add_line(
    figure: go.Figure, members: list[tuple[float, Row]], field: str, measure: str, strand: Strand, label: str, thin: bool,
    shown: Treatment,
) -> None:  # fmt: skip
    """Adds the line of one stack and part of a model, and its interval band."""
    x = [spot for spot, _ in members]
    values = [row.number(field) for _, row in members]
    if strand.null == "gaussian" and not any(v is not None for v in values):
        values = [row.number(measure) for _, row in members]  # its rows have no position
    bands = [row.interval(field) if row.number(field) is not None else None for _, row in members]
    if not strand.null and any(bands):
        _add_band(figure, x, bands, strand.colour, label, shown)
    hover = [
        f"{literal(row.text('site'))}: <b>{written(v)}</b>" + (f" ({written(b[0])} to {written(b[1])})" if b else "")
        for (_, row), v, b in zip(members, values, bands, strict=True)
    ]
    pattern = DASH.get(strand.null) or palette.DASHES[strand.index % len(palette.DASHES)]
    symbol = palette.SYMBOLS[strand.index % len(palette.SYMBOLS)]
    figure.add_scatter(
        x=x, y=[None if v is None else float(f"{v:.6g}") for v in values], name=label, legendgroup=label,
        mode="lines" if strand.null else "lines+markers", text=hover, hovertemplate="%{text}<extra>" + label + "</extra>",
        line={"color": strand.colour, "dash": "longdashdot" if thin else pattern, "width": 1.2 if thin or strand.null else 2.2},
        marker={"size": 3 if thin or len(x) > 30 else 6, "color": strand.colour, "symbol": symbol}, **shown,
    )  # fmt: skip


def _add_band(
    figure: go.Figure, x: list[float], bands: list[Interval | None], colour: str, group: str, shown: Treatment
) -> None:
    """The interval band; it is parted where a value is not defined."""
    run: list[tuple[float, Interval]] = []
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
