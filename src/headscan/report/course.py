"""From checkpoint to checkpoint: every measure of a scan of several checkpoints of one model, as maps and as curves.

A measure of sites is a heat map, sites down and checkpoints across; what there is one of a model (the head, the loss, the
collapse) is a curve over the checkpoints. Everything is read from the document.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from headscan.report import palette, plots
from headscan.report.words import literal, value_of

__all__ = ["checkpoints", "figures", "section"]

MAPPED = ("axis", "rogue", "words", "dimension", "sphere")
CURVES = ("loss", "head", "collapse", "negative", "partition")
DOCS = "https://github.com/headscan/headscan/blob/main/docs/measures/head.md"
SPECTRUM, ERROR = "spectrum_of_head", "w_error_of_head"


def checkpoints(document: dict) -> list[str]:
    """The models' names where they look like checkpoints of one model: at least three with the same sites; else none."""
    names = [model["name"] for model in document.get("models", [])]
    sites = [[e["site"] for e in document["sites"] if e["model"] == name] for name in names]
    return names if len(names) > 2 and all(found == sites[0] for found in sites) else []


def section(document: dict) -> dict[str, Any]:
    """The page's section: tables of figures, one for the clouds' measures and one for each probe."""
    tables = [_table("Sites by checkpoints", "Sites from shallow (top) to deep; checkpoints from left to right.", [
        _plot(name, field) for name, field in document.get("measures", {}).items()
    ])]  # fmt: skip
    for name, fields in _probes(document, MAPPED).items():
        if fields:
            title = _probe(document, name)["title"]
            tables.append(_table(title, "Sites by checkpoints.", [_plot(f"{name}.{f}", v) for f, v in fields.items()]))
    for name, fields in _probes(document, CURVES).items():
        if not fields:
            continue
        drawn = [_plot(f"{name}.{f}", field) for f, field in fields.items()]
        if name == "head" and _spectra(document):
            drawn.append(
                {"figure": _figure(SPECTRUM), "title": "spectrum", "sentence": "σ_k/σ_1 of the head: ranks down."}
            )
            drawn.append(
                {"figure": _figure(ERROR), "title": "W-error", "sentence": "What rank k leaves out, a line each."}
            )
        tables.append(_table(_probe(document, name)["title"], "Over the checkpoints, with 95 % intervals.", drawn))
    lead = "The same sites, one model after another. A small model that saturates loses rank late, and its loss rises."
    return {"id": "course", "title": "From checkpoint to checkpoint", "lead": lead, "tables": tables}


def figures(document: dict) -> dict[str, go.Figure]:
    """All figures of the section, by name."""
    names = checkpoints(document)
    found = {_figure(name): _map(document["sites"], names, name) for name in document.get("measures", {})}
    for name, fields in _probes(document, MAPPED).items():
        found |= {_figure(f"{name}.{f}"): _map(_real(document, name), names, f) for f in fields}
    for name, fields in _probes(document, CURVES).items():
        found |= {_figure(f"{name}.{f}"): _curve(_real(document, name), names, f) for f in fields}
    spectra = _spectra(document)
    if spectra:
        found |= {_figure(SPECTRUM): _spectrum_map(spectra), _figure(ERROR): _errors(spectra)}
    return found


def _figure(name: str) -> str:
    return f"more-course-{name.replace('.', '-')}"


def _plot(name: str, field: dict) -> dict[str, str]:
    return {"figure": _figure(name), "title": field["title"], "sentence": field["sentence"]}


def _table(title: str, sentence: str, drawn: list[dict]) -> dict[str, Any]:
    return {
        "name": "course", "group": "", "title": title, "sentence": sentence, "literature": "", "docs": DOCS, "source": "",
        "plots": drawn, "notes": [], "rows": [], "columns": [], "long": False,
    }  # fmt: skip


def _probe(document: dict, name: str) -> dict:
    return next(probe for probe in document["probes"] if probe["name"] == name)


def _real(document: dict, name: str) -> list[dict]:
    return [row for row in document.get(name, []) if not row.get("null")]


def _probes(document: dict, wanted: tuple[str, ...]) -> dict[str, dict[str, dict]]:
    """The numeric fields of the probes that this scan has, by probe; counts of what was looked at are left out."""
    found = {}
    for probe in document.get("probes", []):
        if probe["name"] in wanted:
            rows = _real(document, probe["name"])
            found[probe["name"]] = {
                name: field
                for name, field in probe["fields"].items()
                if field.get("interval") not in ("a count", "known in closed form")
                and any(value_of(row.get(name)) is not None for row in rows)
            }
    return found


def _spectra(document: dict) -> dict[str, list[float]]:
    """The head's singular values of each checkpoint."""
    rows = {row["model"]: row.get("singular_values") or [] for row in _real(document, "head")}
    return {name: values for name, values in rows.items() if values and values[0] > 0}


def _scale() -> list[list]:
    colours = list(palette.FREQUENCY[0])
    return [[k / max(1, len(colours) - 1), colour] for k, colour in enumerate(colours)]


def _heat(z: list, x: list[str], y: list[Any], hover: str) -> go.Figure:
    figure = go.Figure(layout=plots.layout())
    figure.add_heatmap(
        z=z, x=x, y=y, colorscale=_scale(), colorbar={"thickness": 10, "outlinewidth": 0}, hovertemplate=hover
    )
    figure.update_yaxes(autorange="reversed")
    return figure


def _map(entries: list[dict], names: list[str], field: str) -> go.Figure:
    """One field of all sites (down) over the checkpoints in their order (across)."""
    sites = list(dict.fromkeys(entry["site"] for entry in entries))
    values = {(entry["model"], entry["site"]): value_of(entry.get(field)) for entry in entries}
    grid = [[values.get((name, site)) for name in names] for site in sites]
    hover = "%{x}, %{y}: %{z:.3f}<extra></extra>"
    return _heat(grid, [literal(name) for name in names], [literal(site) for site in sites], hover)


def _curve(rows: list[dict], names: list[str], field: str) -> go.Figure:
    """One field over the checkpoints: a line for each table or site that the rows speak of, with intervals as bars."""
    figure = go.Figure(layout=plots.layout())
    for index, site in enumerate(dict.fromkeys(row["site"] for row in rows)):
        by_name = {row["model"]: row for row in rows if row["site"] == site}
        values = [value_of(by_name.get(name, {}).get(field)) for name in names]
        bands = [
            plots.band(by_name.get(name, {}).get(f"{field}_interval"), value)
            for name, value in zip(names, values, strict=True)
        ]
        bars = None
        if any(bands):
            ends = [(b[1] - v, v - b[0]) if b and v is not None else (0, 0) for b, v in zip(bands, values, strict=True)]
            bars = {
                "type": "data",
                "symmetric": False,
                "array": [e[0] for e in ends],
                "arrayminus": [e[1] for e in ends],
            }
        figure.add_scatter(
            x=[literal(name) for name in names], y=values, error_y=bars, mode="lines+markers", name=literal(site),
            line={"color": palette.model_colour(index)},
        )  # fmt: skip
    figure.update_layout(showlegend=len(figure.data) > 1)
    return figure


def _spectrum_map(spectra: dict[str, list[float]]) -> go.Figure:
    """σ_k/σ_1 of the head, ranks down, checkpoints across (Godey et al. 2024, their picture of saturation)."""
    ranks = plots.thin(max(len(values) for values in spectra.values()), 60)
    grid = [[v[k] / v[0] if k < len(v) else None for v in spectra.values()] for k in ranks]
    hover = "%{x}, rank %{y}: %{z:.3f}<extra></extra>"
    return _heat(grid, [literal(name) for name in spectra], [str(k + 1) for k in ranks], hover)


def _errors(spectra: dict[str, list[float]]) -> go.Figure:
    """W-error(k) = ‖σ_{k+1:}‖/‖σ‖ of each checkpoint's head."""
    figure = go.Figure(layout=plots.layout())
    colours = palette.depth_colours(len(spectra))
    for (name, values), (colour, _) in zip(spectra.items(), colours, strict=True):
        rest, errors = 0.0, [0.0]
        for value in reversed(values):
            rest += value * value
            errors.append(rest)
        errors = [(error / rest) ** 0.5 for error in reversed(errors)]
        ranks = plots.thin(len(errors))
        figure.add_scatter(
            x=ranks, y=[float(f"{errors[k]:.5g}") for k in ranks], mode="lines", name=literal(name), line={"color": colour},
            hovertemplate="rank %{x}: <b>%{y:.3f}</b><extra>" + literal(name) + "</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="rank")
    return figure
