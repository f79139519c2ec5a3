"""Plotly figures of a scan: what `Result.plot()` returns and the page shows.

Each function takes a scan's document and returns a `plotly.graph_objects.Figure` in the light palette. `first` says
whether position 0 counts: "with", "without", or "both" (then the traces without it are hidden, and each trace carries
`meta = {"first": ...}` by which a page switches between them).
"""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from headscan.report import palette, sites
from headscan.report.words import literal, number, value_of

__all__ = ["First", "average_cosine", "by_layer", "norms", "spectrum"]

First = Literal["with", "without", "both"]
SANS = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
NULL_NAMES = {"random-init": "random-init twin", "gaussian": "Gaussian"}
POINTS = 160  # of a spectrum's line: more than a screen can show


def average_cosine(document: dict, first: First = "with") -> go.Figure:
    """How cone a model is: the mean cosine between two tokens at each site, with its interval and its nulls."""
    figure = by_layer(document, "average_cosine", first)
    lows = [value_of(v) for trace in figure.data if not trace.fill for v in trace.y]
    low = min([0.0, *(v for v in lows if v is not None)])
    figure.update_yaxes(
        range=[low * 1.1 - 0.02, 1.03], title_text="average cosine", tickvals=[-1, -0.5, 0, 0.25, 0.5, 0.75, 1]
    )
    return figure


def scan_plot(document: dict, arrays: dict, measure: str = "average_cosine", first: First = "with") -> go.Figure:
    """What `ScanResult.plot()` shows: one measure at each site, with its interval and its nulls."""
    return by_layer(document, measure, first)


def by_layer(
    document: dict, measure: str, first: First = "with", *, nulls: bool = True, dash: str | None = None
) -> go.Figure:
    """One measure at each site: a line with its interval band for each model, and its nulls beside it.

    Sites inside a block (attention, mlp) get a thinner line of their own; values that are not defined leave a gap.
    """
    figure = go.Figure(layout=layout())
    names = sites.models(document)
    blocks = block_counts(document)
    ticks: dict[float, str] = {}
    for index, name in enumerate(names):
        found = sites.of_model(document["sites"], name)
        for place in (sites.place(entry, blocks[name]) for entry in found):
            if not place.part:
                ticks.setdefault(place.x, place.label)
        add_lines(figure, found, measure, first, index, literal(name), blocks[name], dash=dash)
        for null in ("random-init", "gaussian") if nulls else ():
            twins = sites.of_model(document.get("nulls", []), name, null)
            if twins and (null == "random-init" or index == 0):
                suffix = f" of {literal(name)}" if null == "random-init" and len(names) > 1 else ""
                add_lines(figure, twins, measure, first, index, NULL_NAMES[null] + suffix, blocks[name], null=null)
    figure.update_xaxes(tickvals=list(ticks), ticktext=[literal(ticks[x]) for x in ticks], title_text="layer")
    title = document.get("measures", {}).get(measure, {}).get("title", measure.replace("_", " "))
    figure.update_yaxes(title_text=literal(title).lower() if len(title) < 30 else "")
    return figure


def norms(document: dict, first: First = "with") -> go.Figure:
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


def spectrum(document: dict, model: str, first: First = "with") -> go.Figure:
    """Singular values of each site of one model, divided by the first, on log axes; the Gaussian null is the expectation."""
    figure = go.Figure(layout=layout())
    found = sites.of_model(document["sites"], model)
    colours = palette.depth_colours(len(found))
    for choice in choices(first):
        for entry, (colour, _) in zip(found, colours, strict=True):
            add_spectrum(figure, entry, choice, first, literal(entry["site"]), {"color": colour, "width": 1.6})
        gaussian = sites.last_block(sites.of_model(document.get("nulls", []), model, "gaussian"))
        if gaussian:
            line = {"color": palette.ROLES["muted"][0], "width": 1.6, "dash": "dash"}
            add_spectrum(figure, gaussian, choice, first, "expectation: Gaussian", line)
    if figure.data and figure.data[-1].line.dash == "dash":
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=0.02, yanchor="bottom", text="expectation: Gaussian", showarrow=False,
            font={"size": 12, "color": palette.ROLES["muted"][0]},
        )  # fmt: skip
    figure.update_xaxes(type="log", title_text="singular value, by rank", dtick=1)
    figure.update_yaxes(type="log", title_text="σ<sub>i</sub> / σ<sub>1</sub>")
    figure.update_yaxes(
        tickvals=[10.0**-k for k in range(7)], ticktext=[f"{10.0**-k:g}" for k in range(5)] + ["10⁻⁵", "10⁻⁶"]
    )
    figure.update_layout(showlegend=False)
    return figure


def layout() -> go.Layout:
    """The look all figures share: hairlines, no box, a legend above."""
    muted, hairline = palette.ROLES["muted"][0], palette.ROLES["hairline"][0]
    axis = {
        "color": muted, "gridcolor": hairline, "linecolor": muted, "zeroline": False, "ticks": "outside", "ticklen": 4,
        "tickcolor": muted, "title": {"standoff": 8, "font": {"size": 12}}, "automargin": True, "fixedrange": True,
    }  # fmt: skip
    return go.Layout(
        template=go.layout.Template(),
        font={"family": SANS, "size": 12, "color": palette.ROLES["ink"][0]},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 52, "r": 12, "t": 8, "b": 44},
        xaxis=axis | {"showgrid": False}, yaxis=axis | {"showline": False, "ticks": ""},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        hovermode="closest", dragmode=False,
        hoverlabel={"bgcolor": palette.ROLES["paper"][0], "bordercolor": muted,
                    "font": {"family": SANS, "size": 12, "color": palette.ROLES["ink"][0]}, "namelength": -1},
    )  # fmt: skip


def block_counts(document: dict) -> dict[str, int]:
    """The number of blocks of each model, from its sites: the document may come from a slice of it."""
    counts = {}
    for name in sites.models(document):
        places = [sites.place(e, 0) for e in document["sites"] if e["model"] == name and "block." in e["site"]]
        counts[name] = int(max((p.x for p in places), default=0) + 0.5)
    return counts


def choices(first: First) -> list[str]:
    """The treatments of position 0 to draw."""
    return ["with", "without"] if first == "both" else [first]


def key(measure: str, choice: str) -> str:
    """The document's field of a measure under one treatment of position 0."""
    return measure if choice == "with" else f"{measure}_without_first"


def add_lines(
    figure: go.Figure, entries: list[dict], measure: str, first: First, index: int, name: str, blocks: int,
    *, null: str = "", dash: str | None = None,
) -> None:  # fmt: skip
    """Adds one line (and its interval band) for each stack and part of a model."""
    strands: dict[tuple[str, str], list[tuple[sites.Place, dict]]] = {}
    for entry in entries:
        spot = sites.place(entry, blocks)
        strands.setdefault((spot.stack, spot.part), []).append((spot, entry))
    colour = palette.ROLES["muted"][0] if null == "gaussian" else palette.model_colour(index)
    for (stack, part), members in strands.items():
        label = " ".join(word for word in (name, literal(stack), literal(part)) if word)
        pattern = (
            {"random-init": "dot", "gaussian": "dash"}.get(null) or dash or palette.DASHES[index % len(palette.DASHES)]
        )
        line = {"color": colour, "dash": "longdashdot" if part else pattern, "width": 1.2 if part or null else 2.2}
        for choice in choices(first):
            field = key(measure, choice)
            shown = {"visible": choice == "with" or first != "both", "meta": {"first": choice}}
            x = [spot.x for spot, _ in members]
            values = [value_of(entry.get(field)) for _, entry in members]
            if null == "gaussian" and not any(v is not None for v in values):
                values = [value_of(entry.get(measure)) for _, entry in members]  # its rows have no position
            bounds = [band(entry.get(f"{field}_interval"), v) for (_, entry), v in zip(members, values, strict=True)]
            if not null and any(bounds):
                add_band(figure, x, bounds, colour, label, shown)
            hover = [
                f"{literal(entry['site'])}: <b>{number(v)}</b>" + (f" ({number(b[0])} to {number(b[1])})" if b else "")
                for (_, entry), v, b in zip(members, values, bounds, strict=True)
            ]
            symbol = palette.SYMBOLS[index % len(palette.SYMBOLS)]
            figure.add_scatter(
                x=x, y=[None if v is None else float(f"{v:.6g}") for v in values], name=label, legendgroup=label,
                mode="lines" if null else "lines+markers", line=line, text=hover,
                marker={"size": 3 if part or len(x) > 30 else 6, "color": colour, "symbol": symbol},
                hovertemplate="%{text}<extra>" + label + "</extra>", **shown,
            )  # fmt: skip


def band(bounds: object, value: float | None) -> tuple[float, float] | None:
    """The interval as two finite numbers, or None."""
    if value is None or not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        return None
    low, high = value_of(bounds[0]), value_of(bounds[1])
    return None if low is None or high is None else (low, high)


def add_band(figure: go.Figure, x: list[float], bounds: list, colour: str, group: str, shown: dict) -> None:
    """Adds the interval band; it is parted where a value is not defined."""
    run: list[tuple[float, tuple[float, float]]] = []
    for spot, pair in [*zip(x, bounds, strict=True), (0.0, None)]:
        if pair is not None:
            run.append((spot, pair))
            continue
        if run:
            there = [p for p, _ in run]
            figure.add_scatter(
                x=there + there[::-1], y=[float(f"{b[1]:.6g}") for _, b in run] + [float(f"{b[0]:.6g}") for _, b in run][::-1],
                mode="lines", fill="toself", fillcolor=palette.translucent(colour, 0.14), line={"width": 0}, hoverinfo="skip",
                showlegend=False, legendgroup=group, **shown,
            )  # fmt: skip
        run = []


def add_spectrum(figure: go.Figure, entry: dict, choice: str, first: First, name: str, line: dict) -> None:
    """Adds the line of one site's singular values over the first of them, thinned to what a screen can show."""
    given = entry.get(key("singular_values", choice)) or (entry.get("singular_values") if entry.get("null") else None)
    values = [v for v in map(value_of, given or []) if v is not None]
    if not values or values[0] <= 0:
        return
    ranks = thin(len(values))
    figure.add_scatter(
        x=[r + 1 for r in ranks], y=[float(f"{values[r] / values[0]:.4g}") or None for r in ranks], name=name, mode="lines",
        line=line, hovertemplate="rank %{x}: <b>%{y:.3g}</b><extra>" + name + "</extra>",
        visible=choice == "with" or first != "both", meta={"first": choice},
    )  # fmt: skip


def thin(count: int, points: int = POINTS) -> list[int]:
    """At most about `points` of the indices 0 ... count − 1, evenly spread on a log axis, both ends among them.

    >>> thin(3)
    [0, 1, 2]
    >>> len(thin(4096)) <= 160, thin(4096)[-1]
    (True, 4095)
    """
    if count <= points:
        return list(range(count))
    return sorted({min(count - 1, round(count ** (k / (points - 1))) - 1) for k in range(points)})
