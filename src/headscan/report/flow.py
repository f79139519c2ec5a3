"""The page, table and plot of a flow (`headscan flow`), from saved data alone."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.errors import BadInput
from headscan.report import page, palette
from headscan.report.plots import layout
from headscan.report.scan import flat, when
from headscan.report.terminal import clean
from headscan.report.words import literal, number, value_of

__all__ = ["flow_page", "flow_plot", "flow_table"]

COLUMNS = (
    ("leak_own", "leak, own token"), ("leak_of_earlier", "leak of earlier tokens"), ("leak_of_later", "leak of later tokens"),
    ("recoverable_own", "own token told"), ("recoverable_of_earlier", "earlier tokens told"),
    ("recoverable_of_later", "later tokens told"), ("margin_of_earlier", "margin, earlier"),
)  # fmt: skip

SERIES = (
    ("leak_of_earlier", "leak of earlier tokens"), ("recoverable_of_earlier", "earlier tokens told"),
    ("recoverable_own", "own token told"),
)  # fmt: skip
SEARCHES = {
    "exact": "exact search", "adam": "Adam from small embeddings", "zeros": "Adam from zeros", "noise": "Adam from noise",
}  # fmt: skip
"""Names of searches for people."""


def flow_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """One self-contained HTML page: a matrix per layer with a slider, summaries by layer, the channel."""
    if document.get("kind") != "flow" or "parts" not in document:
        raise BadInput("The result is no flow: it has no parts.")
    parts = document["parts"]
    kinds = [kind for kind in ("leak", "recoverable", "margin") if f"{kind}/0" in arrays]
    data = {
        "kinds": kinds,
        "parts": [
            {"name": title(part), "tokens": part["tokens"], "sites": [entry["site"] for entry in part["sites"]],
             **{kind: _rounded(arrays[f"{kind}/{k}"]) for kind in kinds}}
            for k, part in enumerate(parts)
        ],
    }  # fmt: skip
    figures = {"leak": by_site(document, "leak_of_earlier", "leak of earlier tokens")}
    if "recoverable" in kinds:
        figures["told"] = by_site(document, "recoverable_of_earlier", "share of earlier tokens told")
    channels = [(title(part), part["channel"]) for part in parts if part.get("channel")]
    for index, (_, found) in enumerate(channels):
        figures[f"noise-{index}"] = noise(found)
        figures[f"rounding-{index}"] = rounding(found)
        if found.get("widths"):
            figures[f"widths-{index}"] = widths(found)
    if len(parts) > 1:
        figures["compared"] = compared(document)
    protocol = document.get("protocol") or {}
    return page.render(
        "flow.html.j2", title="headscan flow", data=data, figures=figures, scripts=("flow.js",), styles=("flow.css",),
        document=document, when=when(document), names=[title(part) for part in parts], kinds=kinds, columns=COLUMNS,
        channels=channels, searches=SEARCHES,
        facts={
            "run": flat({k: v for k, v in protocol.items() if k not in ("versions", "command")}),
            "versions": flat(protocol.get("versions") or {}),
            "models": [(m.get("name", "model"), flat({k: v for k, v in m.items() if k != "name"})) for m in document["models"]],
        },
    )  # fmt: skip


def title(part: dict) -> str:
    """A part's model and cut."""
    return part["model"] if part["cut"] == "whole" else f"{part['model']}, {part['cut']}"


def _rounded(values: np.ndarray) -> list:
    return [[[float(f"{v:.4g}") for v in row] for row in matrix] for matrix in np.asarray(values, dtype=float).tolist()]


def by_site(document: dict, key: str, label: str) -> go.Figure:
    """One summary at each site, a line a part."""
    figure = go.Figure(layout=layout())
    for index, part in enumerate(document["parts"]):
        line = palette.model_line(index)
        figure.add_scatter(
            x=[entry["site"] for entry in part["sites"]], y=[value_of(entry.get(key)) for entry in part["sites"]],
            name=literal(title(part)), mode="lines+markers", line=line,
        )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text=label, rangemode="tozero")
    return figure


def compared(document: dict) -> go.Figure:
    """The deepest site of each part, in the order in which models were given: checkpoints read from left to right."""
    figure = go.Figure(layout=layout())
    names = [f"{k} {literal(title(part))}" for k, part in enumerate(document["parts"])]
    for index, (key, label) in enumerate(SERIES):
        values = [value_of(part["sites"][-1].get(key)) for part in document["parts"]]
        if any(value is not None for value in values):
            line = palette.model_line(index)
            figure.add_scatter(x=names, y=values, mode="lines+markers", name=label, line=line)
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text="at the deepest site", rangemode="tozero")
    return figure


def rounding(channel: dict) -> go.Figure:
    """Token accuracy by the bits that are sent (features times bits of each), one line a precision."""
    figure = go.Figure(layout=layout())
    for index, bits in enumerate(sorted({row["bits"] for row in channel["quantised"]})):
        rows = [row for row in channel["quantised"] if row["bits"] == bits]
        line = palette.model_line(index)
        figure.add_scatter(
            x=[row["sent"] for row in rows], y=[row["accuracy"] for row in rows], mode="lines+markers", line=line,
            name=f"{bits} bit{'s' if bits > 1 else ''} a feature",
        )  # fmt: skip
    needed = channel["quantised"][0]["needed"]
    figure.add_scatter(
        x=[needed, needed], y=[0, 1], mode="lines", name="log₂ V", hoverinfo="skip",
        line={"color": palette.model_colour(0), "width": 1, "dash": "dot"},
    )  # fmt: skip
    figure.update_xaxes(title_text="bits sent", type="log", dtick=1)
    figure.update_yaxes(title_text="tokens decoded rightly", range=[0, 1.03])
    return figure


def widths(channel: dict) -> go.Figure:
    """Share of tokens found from w features without noise, one line a search and kind of subset."""
    figure = go.Figure(layout=layout())
    keys = list(dict.fromkeys((row["search"], row["subset"]) for row in channel["widths"]))
    for index, (search, subset) in enumerate(keys):
        rows = [row for row in channel["widths"] if (row["search"], row["subset"]) == (search, subset)]
        line = palette.model_line(index)
        figure.add_scatter(
            x=[row["width"] for row in rows], y=[row["accuracy"] for row in rows], mode="lines+markers", line=line,
            name=f"{SEARCHES.get(search, literal(search))}, {subset} features",
        )  # fmt: skip
    figure.update_xaxes(title_text="features", type="log", dtick=1)
    figure.update_yaxes(title_text="tokens found", range=[0, 1.03])
    return figure


def noise(channel: dict) -> go.Figure:
    """Token accuracy by the number of features, one line a noise level, a tick where Shannon's bound lies."""
    figure = go.Figure(layout=layout())
    for index, level in enumerate(sorted({entry["noise"] for entry in channel["noise"]})):
        rows = [entry for entry in channel["noise"] if entry["noise"] == level]
        line = palette.model_line(index)
        figure.add_scatter(
            x=[row["width"] for row in rows], y=[row["accuracy"] for row in rows], mode="lines+markers", line=line,
            name=f"noise {level:g} × spread",
        )  # fmt: skip
        bound = rows[0]["shannon"]
        figure.add_scatter(
            x=[bound, bound], y=[0, 1], mode="lines", showlegend=False, hoverinfo="skip",
            line={"color": palette.model_colour(index), "width": 1, "dash": "dot"},
        )  # fmt: skip
    figure.update_xaxes(title_text="features", type="log", dtick=1)
    figure.update_yaxes(title_text="tokens decoded rightly", range=[0, 1.03])
    return figure


def flow_plot(
    document: dict, arrays: dict[str, np.ndarray], kind: str = "leak", part: int = 0, site: int = -1
) -> go.Figure:
    """One matrix: input token i (rows) against output position j (columns)."""
    found = np.asarray(arrays[f"{kind}/{part}"], dtype=float)[site]
    names = [f"{k} {literal(token)}" for k, token in enumerate(document["parts"][part]["tokens"])]
    figure = go.Figure(layout=layout())
    figure.add_heatmap(
        z=found.tolist(), x=names, y=names, colorscale=[[k / 4, c] for k, c in enumerate(palette.DEPTH[0])]
    )
    figure.update_xaxes(title_text="output position", type="category")
    figure.update_yaxes(title_text="input token", type="category", autorange="reversed")
    return figure


def flow_table(document: dict) -> RenderableType:
    """The summaries for the terminal, one table a part."""
    shown: list[RenderableType] = []
    for part in document["parts"]:
        shown.append(Text(f"\n{clean(title(part))}", style="bold"))
        found = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
        found.add_column("site", overflow="fold")
        keys = [key for key, _ in COLUMNS if any(key in entry for entry in part["sites"])]
        for key, head in COLUMNS:
            if key in keys:
                found.add_column(head, justify="right")
        for entry in part["sites"]:
            found.add_row(clean(entry["site"]), *(number(value_of(entry.get(key))) for key in keys))
        shown.append(found)
        if part.get("channel"):
            shown += _channel_words(part["channel"])
    return Group(*shown)


def _channel_words(channel: dict) -> list[RenderableType]:
    d = channel["distances"]
    found: list[RenderableType] = [
        Text(
            f"codebook at {clean(channel['site'])}: nearest tokens {number(d['minimum'])} (least), "
            f"{number(d['median'])} (median) spreads apart, {number(d['participation_ratio'])} directions in use"
        )
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for head in ("noise, spreads", "Shannon's w*", "fewest tried that decode 95 %"):
        table.add_column(head, justify="right")
    for row in channel.get("shannon", []):
        table.add_row(f"{row['noise']:g}", number(row["width"]), _enough(channel, row["noise"]))
    found.append(table)
    for row in channel.get("thresholds", []):
        search = SEARCHES.get(row["search"], clean(row["search"]))
        where = "at random" if row["subset"] == "random" else f"from feature {row['first']} on"
        does = "finds" if row["width"] else "does not find"
        width = f"from {row['width']} of {channel['width']} features" if row["width"] else "even from all features"
        found.append(Text(f"{search} {does} every token {width}, {where}"))
    return found


def _enough(channel: dict, level: float) -> str:
    rows = [row["width"] for row in channel["noise"] if row["noise"] == level and row["accuracy"] >= 0.95]
    return str(min(rows)) if rows else "none"
