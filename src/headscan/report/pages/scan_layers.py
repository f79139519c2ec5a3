"""The rows of a scan by model and null, the place of a site on the axis that all models share, and
lines along it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS
from headscan.model import sites
from headscan.report.kit import Term, palette
from headscan.report.kit.figures import empty
from headscan.report.kit.words import literal
from headscan.report.kit.words import number as written

if TYPE_CHECKING:
    from headscan.run import Interval, ModelRecord, Row
    from headscan.scanner.result import ScanResult

NULLS = {"random-init": "random weights", "gaussian": "Gaussian"}
"""What stands beside a model: its architecture with random weights, and a Gaussian cloud."""

NAME = re.compile(
    r"^(?:(?P<stack>encoder|decoder)\.)?(?P<base>embedding|block|final_norm|head)"
    r"(?:\.(?P<index>\d+))?(?:\.(?P<part>.+))?$"
)


class Place(NamedTuple):
    """Where a site stands: `stack` ('' unless encoder-decoder), `part` ('' in the main stream), x,
    and a short label.
    """

    stack: str
    part: str
    x: float
    label: str


class Axis:
    """The layer axis of models that may differ in depth, and of encoders that differ in depth from
    their decoders.

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
            match = NAME.match(row.text("site"))
            self.deepest[model] = max(self.deepest.get(model, 1.0), depth_of(row))
            if match and match["index"] is not None:
                key = model, match["stack"] or ""
                self.blocks[key] = max(self.blocks.get(key, 0), int(match["index"]) + 1)
        for record in records:  # a scan of a few sites does not show how deep the model is
            if (record.name, "") in self.blocks:
                self.blocks[record.name, ""] = max(self.blocks[record.name, ""], record.depth or 0)
        self.counts = len(set(self.blocks.values())) <= 1
        self.title = "layer" if self.counts else "share of the blocks"

    def place(self, row: Row) -> Place:
        """The place of a row's site; one with a name of its own kind stands at its depth."""
        model = row.text("model")
        site = row.text("site")
        match = NAME.match(site)
        depth = depth_of(row)
        if not match:
            return Place(
                "", "", depth if self.counts else depth / self.deepest.get(model, 1.0), site
            )
        stack = match["stack"] or ""
        base = match["base"]
        part = match["part"] or ""
        blocks = self.blocks.get((model, stack)) or max(self.blocks.values(), default=0)
        if base == "block" and match["index"] is not None:
            x = int(match["index"]) + 1.0 - (0.25 if part == "mlp" else 0.5 if part else 0)
            return Place(
                stack,
                part,
                x if self.counts else x / blocks,
                match["index"] + (f".{part}" if part else ""),
            )
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
    return list(
        dict.fromkeys(
            [*(model.name for model in result.models), *(row.text("model") for row in result.sites)]
        )
    )


def of_model(rows: Iterable[Row], model: str, null: str | None = None) -> list[Row]:
    """The rows of one model (and one null), in order of depth."""
    return sorted(
        (row for row in rows if row.get("model") == model and (row.get("null") or None) == null),
        key=depth_of,
    )


def last_block(rows: Iterable[Row]) -> Row | None:
    """The row that speaks for a model, of its last block; without rows None."""
    known = {row.text("site"): row for row in sorted(rows, key=depth_of)}
    return known[sites.last_block(list(known))] if known else None


def term(words: Term, name: str, column: str = "") -> Term:
    """The words of a measure or a probe's field above a column of its own."""
    return replace(words, name=name, group="", column=column)


# ---- Measures by layer: a line with its interval band for each model, and its nulls beside it.
#
# `first` says whether sink tokens count: "with", "without", or "both" (then the traces with them
# are hidden, and each trace carries `meta = {"first": ...}` by which a page switches between them).
# Results that know of no sinks have "with" alone.

First = Literal["with", "without", "both"]
DASH = {"random-init": "dot", "gaussian": "dash"}
Treatment = dict[str, object]
"""Of a trace: whether it is seen at first, and which treatment of sinks it is of."""


def treatments(result: ScanResult, measure: str, first: First) -> list[tuple[str, Treatment]]:
    """The fields of a measure to draw, with what the page's switch goes by."""
    fields = {"without": measure + WITHOUT_SINKS, "with": measure}
    if not knows(result, measure):
        first = "with"
    if first != "both":
        return [(fields[first], {"visible": True, "meta": {}})]
    return [
        (field, {"visible": name == "without", "meta": {"first": name}})
        for name, field in fields.items()
    ]


def knows(result: ScanResult, measure: str) -> bool:
    """Whether a result has the measure without sinks."""
    return any(measure + WITHOUT_SINKS in row for row in result.sites)


def by_layer(
    result: ScanResult, measure: str, first: First = "without", *, nulls: bool = True
) -> go.Figure:
    """One measure at each site of a scan.

    Sites inside a block (attention, mlp) get a thinner line of their own; values that are not
    defined leave a gap.
    """
    figure = empty()
    axis = Axis(result.sites, result.models)
    names = models(result)
    for index, name in enumerate(names):
        strands = [("", literal(name), of_model(result.sites, name))]
        for null, words in NULLS.items() if nulls else ():
            if null == "random-init" or index == 0:
                whose = (
                    f"{words} of {literal(name)}"
                    if null == "random-init" and len(names) > 1
                    else words
                )
                strands.append((null, whose, of_model(result.nulls, name, null)))
        for null, whose, rows in strands:
            streams: dict[tuple[str, str], list[tuple[float, Row]]] = {}
            for row in rows:
                stack, part, x, _ = axis.place(row)
                streams.setdefault((stack, part), []).append((x, row))
            for (stack, part), members in streams.items():
                label = " ".join(word for word in (whose, literal(stack), literal(part)) if word)
                for field, shown in treatments(result, measure, first):
                    _add_line(
                        figure, members, field, measure, index, null, label, bool(part), shown
                    )
    ticks = axis.ticks(result.sites)
    places = sorted(ticks)
    figure.update_xaxes(
        tickvals=places, ticktext=[literal(ticks[x]) for x in places], title_text=axis.title
    )
    figure.update_layout(hovermode="x unified", xaxis_unifiedhovertitle_text=" ")
    title = (
        result.measures[measure].title if measure in result.measures else measure.replace("_", " ")
    )
    return figure.update_yaxes(title_text=literal(title).lower() if len(title) < 30 else "")


def _add_line(
    figure: go.Figure,
    members: list[tuple[float, Row]],
    field: str,
    measure: str,
    index: int,
    null: str,
    label: str,
    thin: bool,
    shown: Treatment,
) -> None:
    """Adds the line of one stack and part of the model of an index, or of one of its nulls, and its
    interval band.
    """
    x = [spot for spot, _ in members]
    values = [row.number(field) for _, row in members]
    colour = palette.ROLES["muted"][0] if null == "gaussian" else palette.model_colour(index)
    if null == "gaussian" and not any(v is not None for v in values):
        values = [row.number(measure) for _, row in members]  # its rows have no position
    bands = [row.interval(field) if row.number(field) is not None else None for _, row in members]
    if not null and any(bands):
        add_band(figure, x, bands, colour, label, shown)
    hover = [
        f"{literal(row.text('site'))}: <b>{written(v)}</b>"
        + (f" ({written(b[0])} to {written(b[1])})" if b else "")
        for (_, row), v, b in zip(members, values, bands, strict=True)
    ]
    dash = "longdashdot" if thin else DASH.get(null) or palette.DASHES[index % len(palette.DASHES)]
    symbol = palette.SYMBOLS[index % len(palette.SYMBOLS)]
    figure.add_scatter(
        x=x,
        y=[None if v is None else float(f"{v:.6g}") for v in values],
        name=label,
        legendgroup=label,
        mode="lines" if null else "lines+markers",
        text=hover,
        hovertemplate="%{text}<extra>" + label + "</extra>",
        line={"color": colour, "dash": dash, "width": 1.2 if thin or null else 2.2},
        marker={"size": 3 if thin or len(x) > 30 else 6, "color": colour, "symbol": symbol},
        **shown,
    )


def add_band(
    figure: go.Figure,
    x: list[float],
    bands: list[Interval | None],
    colour: str,
    group: str,
    shown: Treatment,
) -> None:
    """The interval band; it is parted where a value is not defined."""
    for known, run in groupby(zip(x, bands, strict=True), key=lambda pair: pair[1] is not None):
        if known:
            rim = [(spot, *(float(f"{end:.6g}") for end in band or ())) for spot, band in run]
            there, low, high = map(list, zip(*rim, strict=True))
            figure.add_scatter(
                x=there + there[::-1],
                y=high + low[::-1],
                mode="lines",
                fill="toself",
                hoverinfo="skip",
                showlegend=False,
                fillcolor=palette.translucent(colour, 0.14),
                line={"width": 0},
                legendgroup=group,
                **shown,
            )
