"""The measures beyond the core, and the probes' tables, as sections of a scan's page and tables of the terminal.

Everything is read from the document: `measures` describes what stands at each site, `probes` the tables of their own.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from headscan.report import course, palette, plots
from headscan.report.words import interval, literal, number, value_of

__all__ = ["figures", "sections"]

GROUPS = {
    "cones": ("More about the cone", "Its axis, its angle, and whether a few coordinates make it."),
    "spectra": (
        "More about the spectrum",
        "Other counts of dimensions, and the dimension of the points' neighbourhoods.",
    ),
    "words": ("Words in context", "What of a vector is the word's, what its context's, and what everyone's."),
    "alignment": (
        "Alignment and uniformity",
        "How the directions spread over the sphere, and what lies close together.",
    ),
    "zipf": ("Zipf's law and its limitations", "What the text's unevenness does to the embedding tables."),
    "head": ("The head", "The output layer: what it reads, how many directions it uses, where its classes gather."),
    "attention": ("Attention", "Queries and keys, head by head."),
}
PLOTTED = {
    "axis": ("to_previous", "to_first"),
    "rogue": ("rogue_share_1", "rogue_share_3", "agreement_3"),
    "words": ("within_adjusted", "intra_adjusted", "self_adjusted", "mev_adjusted"),
    "dimension": ("twonn", "mle_dimension", "gride"),
    "sphere": ("uniformity", "next_alignment", "next_relative"),
    "alignment": ("relative",),
    "attention": ("drift_cosine", "sharpness", "first_share"),
}
WITHOUT = "_without_first"
PERCENT = ("predict", "not_predict", "share")
SOURCE = "https://github.com/headscan/headscan/blob/main"
LAYERS = {"cones": "cones.md", "spectra": "spectra.md", "norms": "cones.md"}


def sections(document: dict) -> list[dict[str, Any]]:
    """One section a group: title, lead, the tables in it. Empty for a scan of the core measures only."""
    tables = [_extra_measures(document, group) for group in ("cones", "spectra")]
    tables += [_probe(document, probe) for probe in document.get("probes", [])]
    found = []
    if course.checkpoints(document):
        found.append(course.section(document))
    for group, (title, lead) in GROUPS.items():
        mine = [table for table in tables if table and table["group"] == group]
        if mine:
            found.append({"id": f"more-{group}", "title": title, "lead": lead, "tables": mine})
    return found


def _extra_measures(document: dict, group: str) -> dict[str, Any] | None:
    """The cloud's measures that are not core, of one group, as a table by site."""
    fields = {
        name: measure
        for name, measure in document.get("measures", {}).items()
        if measure.get("core") is False and measure.get("group") == group
    }
    if not fields:
        return None
    entries = [{**entry, "notes": []} for entry in document["sites"]] + [{**e, "notes": []} for e in document["nulls"]]
    return {
        "name": f"measures-{group}",
        "group": group,
        "title": "By site",
        "sentence": "All positions; result.json has the same without the first of each window.",
        "literature": "",
        "docs": f"{SOURCE}/docs/measures/{LAYERS[group]}",
        "source": "",
        "plots": [_plot(f"measures-{group}", name, field) for name, field in fields.items()],
        "notes": [],
        **_rows(fields, entries),
    }


def _probe(document: dict, probe: dict) -> dict[str, Any]:
    """One probe's table; its notes are numbered."""
    rows = document.get(probe["name"], [])
    return {
        "name": probe["name"],
        "group": probe["group"],
        "title": probe["title"],
        "sentence": probe["sentence"],
        "literature": probe["literature"],
        "docs": f"{SOURCE}/docs/measures/{probe['docs']}",
        "source": source_link(probe["function"]),
        "plots": [_plot(probe["name"], name, probe["fields"][name]) for name in PLOTTED.get(probe["name"], ()) if rows],
        "notes": probe.get("notes") or [],
        **_rows(probe["fields"], rows),
    }


def _plot(table: str, name: str, field: dict) -> dict[str, str]:
    return {"figure": f"more-{table}-{name}", "title": field["title"], "sentence": field["sentence"]}


def source_link(function: str) -> str:
    """The page of a function's file in the repository, from its dotted name.

    >>> source_link("headscan.geometry.rogue.rogue").rpartition("/blob/main")[2]
    '/src/headscan/geometry/rogue.py'
    """
    return f"{SOURCE}/src/{function.rpartition('.')[0].replace('.', '/')}.py"


def _rows(fields: dict[str, dict], entries: list[dict]) -> dict[str, Any]:
    """Columns with their explanations, and rows of cells; the rows of nulls say so."""
    several = len({entry.get("model") for entry in entries}) > 1
    names = [name for name in fields if any(name in entry for entry in entries)]
    firsts = [name for name in names if fields[name].get("first") and any(name + WITHOUT in e for e in entries)]
    names = [found for name in names for found in ([name, name + WITHOUT] if name in firsts else [name])]
    rows = []
    for entry in entries:
        cells = []
        for name in names:
            value = entry.get(name)
            shown = value if isinstance(value, str) else None if value is None else number(value)
            if name.removesuffix(WITHOUT) in PERCENT and value is not None:
                shown = f"{number(100 * value)} %"
            cells.append({"value": shown, "interval": interval(entry.get(f"{name}_interval"))})
        label = f"{entry['model']}: {entry['site']}" if several else entry["site"]
        null = {"random-init": "random-init twin", "gaussian": "Gaussian"}.get(entry.get("null") or "", "")
        notes = "; ".join(entry.get("notes") or []) or "not defined here"
        rows.append({"label": label, "null": null, "cells": cells, "why": notes})
    columns = []
    for name in names:
        field, without = fields[name.removesuffix(WITHOUT)], name.endswith(WITHOUT)
        columns.append(
            {
                "title": field["title"] + (", without position 0" if without else ""),
                "sentence": field.get("sentence", ""),
                "formula": field.get("formula", ""),
                "unit": field.get("unit", ""),
                "name": name,
                "without": without,
            }
        )
    return {"columns": columns, "rows": rows, "long": len(rows) > 16}


def figures(document: dict) -> dict[str, go.Figure]:
    """Small multiples by layer for the measures and probes that are told by site, and heads as a map."""
    found: dict[str, go.Figure] = {}
    if course.checkpoints(document):
        found |= course.figures(document)
    for group in ("cones", "spectra"):
        table = _extra_measures(document, group)
        for plot in table["plots"] if table else ():
            found[plot["figure"]] = _by_layer(document, plot["figure"].rpartition("-")[2])
    for probe in document.get("probes", []):
        for name in PLOTTED.get(probe["name"], ()):
            rows = document.get(probe["name"], [])
            if rows and probe["name"] not in ("alignment", "attention"):
                found[f"more-{probe['name']}-{name}"] = _by_layer(_as_scan(document, rows), name)
        if probe["name"] == "alignment" and document.get("alignment"):
            found["more-alignment-relative"] = pairs_by_layer(document)
        if probe["name"] == "attention" and document.get("attention"):
            model = document["attention"][0]["model"]
            found |= {f"more-attention-{name}": heads_map(document, model, name) for name in PLOTTED["attention"]}
    return found


def pairs_by_layer(document: dict) -> go.Figure:
    """Alignment over its null of each set of pairs and model, by site."""
    figure = go.Figure(layout=plots.layout())
    rows = [row for row in document["alignment"] if not row.get("null") and value_of(row.get("relative")) is not None]
    several = len({row["model"] for row in rows}) > 1
    for index, (model, pairs) in enumerate(dict.fromkeys((row["model"], row["set"]) for row in rows)):
        mine = [row for row in rows if (row["model"], row["set"]) == (model, pairs)]
        figure.add_scatter(
            x=[literal(row["site"]) for row in mine], y=[row["relative"] for row in mine], mode="lines+markers",
            name=literal(f"{model}: {pairs}" if several else pairs),
            line=palette.model_line(index),
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=len(figure.data) > 1)
    return figure


def _as_scan(document: dict, rows: list[dict]) -> dict:
    """A document whose sites are a probe's rows, so that the same plots can show them."""
    depth = {(e["model"], e["site"]): e["depth"] for e in document["sites"]}
    placed = [row | {"depth": depth[row["model"], row["site"]]} for row in rows if (row["model"], row["site"]) in depth]
    return document | {
        "sites": [row for row in placed if not row.get("null")],
        "nulls": [row for row in placed if row.get("null")],
        "measures": {},
    }


def _by_layer(document: dict, name: str) -> go.Figure:
    both = any(name + WITHOUT in entry for entry in document["sites"])
    figure = plots.by_layer(document, name, "both" if both else "with")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36})
    values = [v for trace in figure.data for v in trace.y if value_of(v) is not None]
    figure.update_yaxes(title_text="", nticks=5)
    if values and min(values) >= 0:
        figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="")
    return figure


def heads_map(document: dict, model: str, field: str) -> go.Figure:
    """One field of the attention probe, heads across and layers down, of one model."""
    rows = [
        r
        for r in document.get("attention", [])
        if r["model"] == model and not r.get("null") and value_of(r.get(field)) is not None
    ]
    layers = list(dict.fromkeys(row["site"] for row in rows))
    width = max((int(row["head"]) for row in rows), default=-1) + 1
    grid: list[list[float | None]] = [[None] * width for _ in layers]
    for row in rows:
        grid[layers.index(row["site"])][int(row["head"])] = row[field]
    figure = go.Figure(layout=plots.layout())
    low = min((v for line in grid for v in line if v is not None), default=0.0)
    colours = list(palette.FREQUENCY[0])
    scale = [[k / max(1, len(colours) - 1), colour] for k, colour in enumerate(colours)]
    figure.add_heatmap(
        z=grid, x=list(range(width)), y=[literal(layer) for layer in layers], zmin=-1 if low < 0 else 0, zmax=1, colorscale=scale,
        colorbar={"thickness": 10, "outlinewidth": 0}, hovertemplate="%{y} head %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title_text="head")
    return figure
