"""Plotly figures of a prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from headscan.report import palette
from headscan.report.plots import layout
from headscan.report.words import literal

__all__ = ["alignment", "collapse", "course", "gap", "heat", "norms", "scatter", "spectra", "thresholds", "words"]

INK, MUTED, ACCENT = (palette.ROLES[name][0] for name in ("ink", "muted", "accent"))


def spectra(document: dict, arrays: dict[str, np.ndarray]) -> go.Figure:
    """Singular values of the predicted growing part and of the centred support matrix, by rank."""
    figure = go.Figure(layout=layout())
    label = "predicted L^mm" if document["solution"] else "proxy"
    for index, (name, values) in enumerate([(label, arrays["sigma"]), ("centred supports S̃", arrays["sigma_centred"])]):
        kept = np.asarray(values)[np.asarray(values) > 0]
        line = palette.model_line(index)
        figure.add_scatter(x=np.arange(1, len(kept) + 1).tolist(), y=kept.tolist(), name=name, mode="lines", line=line)
    figure.update_xaxes(title_text="singular value, by rank", type="log", dtick=1)
    figure.update_yaxes(title_text="σ", type="log", dtick=1)
    return figure


def thresholds(document: dict) -> go.Figure:
    """How the entropy bound and the predicted words change when rare successors do not count."""
    figure = go.Figure(layout=layout())
    records = document["uncertainty"]["thresholds"]
    x = [str(record["threshold"]) for record in records]
    base = records[0]["entropy_bound"] or 1.0
    shown = (
        ("entropy bound, of the first", [r["entropy_bound"] / base for r in records]),
        ("text kept", [r["kept_mass"] for r in records]),
        ("Gram of words, cosine with the first", [r["word_gram_cosine"] for r in records]),
    )
    for index, (name, y) in enumerate(shown):
        line = palette.model_line(index)
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers", line=line)
    figure.update_xaxes(title_text="successors counted from so many occurrences", type="category")
    figure.update_yaxes(range=[0, 1.05])
    return figure


def words(document: dict, arrays: dict[str, np.ndarray]) -> go.Figure:
    """Words in the plane of two semantic axes; a menu chooses the pair, pointing at a dot names the word."""
    figure = go.Figure(layout=layout())
    tokens = [literal(token) for token in document["words"]["tokens"]]
    counts = np.maximum(np.array(document["words"]["counts"], dtype=np.float64), 1.0)
    at = np.asarray(arrays["word_axes"], dtype=np.float64)
    if at.shape[1] < 2:
        at = np.pad(at, ((0, 0), (0, 2 - at.shape[1])))
    labelled = np.argsort(-(at[:, :2] ** 2).sum(1))[:60]
    text = [token if index in set(labelled.tolist()) else "" for index, token in enumerate(tokens)]
    figure.add_scatter(
        x=at[:, 0].tolist(), y=at[:, 1].tolist(), mode="markers+text", text=text, textposition="top center",
        textfont={"size": 10, "color": MUTED}, customdata=[[t, int(c)] for t, c in zip(tokens, counts, strict=True)],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} times a next token<extra></extra>", showlegend=False,
        marker={"size": (4 + 2.2 * np.log10(counts)).tolist(), "color": palette.model_colour(0), "opacity": 0.75},
    )  # fmt: skip
    pairs = [(a, b) for a in range(min(4, at.shape[1])) for b in range(a + 1, min(4, at.shape[1]))]
    buttons = [
        {
            "label": f"axes {a + 1} and {b + 1}",
            "method": "update",
            "args": [
                {"x": [at[:, a].tolist()], "y": [at[:, b].tolist()]},
                {"xaxis.title.text": f"axis {a + 1}", "yaxis.title.text": f"axis {b + 1}"},
            ],
        }
        for a, b in pairs
    ]
    figure.update_layout(updatemenus=[{"buttons": buttons, "x": 1, "xanchor": "right", "y": 1.12, "yanchor": "top"}])
    figure.update_xaxes(title_text="axis 1", zeroline=True)
    figure.update_yaxes(title_text="axis 2", zeroline=True)
    return figure


def heat(document: dict, arrays: dict[str, np.ndarray], name: str) -> go.Figure:
    """Cosines between contexts, ordered so that those of equal support stand together."""
    figure = go.Figure(layout=layout())
    shown = document["heat"]
    labels = [
        literal(f"{context} → {' '.join(support)}")
        for context, support in zip(shown["contexts"], shown["supports"], strict=True)
    ]
    values = np.asarray(arrays[f"heat/{name}"], dtype=np.float64)
    count = len(values)
    hover = [[f"{labels[i]}<br>{labels[j]}" for j in range(count)] for i in range(count)]
    scale = [[0.0, palette.MODELS[1][0]], [0.5, palette.ROLES["paper"][0]], [1.0, palette.MODELS[0][0]]]
    figure.add_heatmap(
        z=np.round(values, 3).tolist(), zmin=-1, zmax=1, colorscale=scale, text=hover,
        hovertemplate="%{text}<br>cosine %{z:.2f}<extra></extra>", colorbar={"thickness": 10, "outlinewidth": 0},
    )  # fmt: skip
    edges = (np.flatnonzero(np.diff(shown["group"])) + 0.5).tolist()
    if len(edges) + 1 < count:  # where every context stands for itself there is nothing to part
        line, end = {"width": 0.6, "color": MUTED}, count - 0.5
        across = [{"type": "line", "line": line, "x0": e, "x1": e, "y0": -0.5, "y1": end} for e in edges]
        down = [{"type": "line", "line": line, "y0": e, "y1": e, "x0": -0.5, "x1": end} for e in edges]
        figure.update_layout(shapes=across + down)  # one by one would copy the list each time
    figure.update_xaxes(showticklabels=False, ticks="", showgrid=False, zeroline=False)
    figure.update_yaxes(
        showticklabels=False, ticks="", showgrid=False, zeroline=False, autorange="reversed", scaleanchor="x"
    )
    return figure


def scatter(arrays: dict[str, np.ndarray], name: str) -> go.Figure:
    """The finite part of the logits: predicted log-odds inside supports against the model's, on a sample of entries."""
    figure = go.Figure(layout=layout())
    points = np.asarray(arrays[f"scatter/{name}"], dtype=np.float64)
    if len(points):
        low, high = float(points.min()), float(points.max())
        figure.add_scatter(
            x=[low, high], y=[low, high], mode="lines", line={"color": MUTED, "dash": "dot"}, name="equal"
        )
        marker = {"size": 4, "opacity": 0.4, "color": palette.model_colour(0)}
        figure.add_scatter(
            x=points[:, 0].round(3).tolist(),
            y=points[:, 1].round(3).tolist(),
            mode="markers",
            marker=marker,
            name="logits",
        )
    figure.update_xaxes(title_text="predicted, L^in")
    figure.update_yaxes(title_text="observed, P_F(L)")
    figure.update_layout(showlegend=False)
    return figure


def course(document: dict) -> list[dict[str, Any]]:
    """Steps over which gap, norms and alignment can be drawn: of the trained features, or of two checkpoints or more."""
    if document["training"]:
        return [
            {
                "step": r["step"], "name": str(r["step"]), "excess": r["excess"], "words": r["words"], "contexts": r["contexts"],
                "metrics": r["metrics"],
            }
            for r in document["training"]
        ]  # fmt: skip
    if len(document["models"]) < 2:
        return []
    return [
        {
            "step": index + 1, "name": model["name"], "excess": model["metrics"]["SC6"]["excess"],
            "words": model["metrics"]["word_norm"], "contexts": model["metrics"]["context_norm"], "metrics": model["metrics"],
        }
        for index, model in enumerate(document["models"])
    ]  # fmt: skip


def _lines(records: list[dict[str, Any]], shown: list[tuple[str, list[Any]]]) -> go.Figure:
    figure = go.Figure(layout=layout())
    steps = [max(record["step"], 0.5) for record in records]
    for index, (name, y) in enumerate(shown):
        line = palette.model_line(index)
        figure.add_scatter(
            x=steps, y=y, name=name, mode="lines+markers", line=line, marker={"size": 4},
            customdata=[literal(r["name"]) for r in records], hovertemplate="%{customdata}: %{y:.4g}<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log" if max(steps) > 50 else "linear")
    return figure


def gap(records: list[dict[str, Any]]) -> go.Figure:
    """CE − H over training."""
    figure = _lines(records, [("CE − H", [record["excess"] for record in records])])
    figure.update_yaxes(title_text="CE − H, nats", type="log", dtick=1)
    figure.update_layout(showlegend=False)
    return figure


def norms(records: list[dict[str, Any]]) -> go.Figure:
    """Norms of words and contexts over training."""
    figure = _lines(records, [(f"‖{n}‖", [r[k] for r in records]) for n, k in (("W", "words"), ("H", "contexts"))])
    figure.update_yaxes(title_text="Frobenius norm", rangemode="tozero")
    return figure


def alignment(records: list[dict[str, Any]]) -> go.Figure:
    """How training turns towards the prediction: directions, Gram matrices and the finite part."""
    shown = [
        ("direction", [r["metrics"]["direction"] for r in records]),
        ("words", [r["metrics"]["SC2_words"] for r in records]),
        ("contexts", [r["metrics"]["SC2_contexts"] for r in records]),
        ("same support", [(r["metrics"]["SC1"]["after"] or {}).get("same_cosine") for r in records]),
    ]
    figure = _lines(records, shown)
    figure.update_yaxes(title_text="cosine", range=[-0.05, 1.03])
    return figure


def spreads(document: dict) -> list[tuple[str, dict[str, Any]]]:
    """Subspace collapse of every model, else of the trained features; its stages are None where no support repeats."""
    rows = [(model["name"], model["metrics"]["SC1"]) for model in document["models"]]
    if not rows and document["training"]:
        rows = [("features", document["training"][-1]["metrics"]["SC1"])]
    return rows


def collapse(document: dict) -> go.Figure:
    """Cosines between contexts of equal and of different supports, before and after projection on F⊥."""
    figure = go.Figure(layout=layout())
    rows = spreads(document)
    names = [literal(name) for name, _ in rows]
    parts = (("before", "same_cosine"), ("after", "same_cosine"), ("before", "other_cosine"), ("after", "other_cosine"))
    for index, (stage, kind) in enumerate(parts):
        word = "equal supports" if kind == "same_cosine" else "different supports"
        y = [(spread[stage] or {}).get(kind) for _, spread in rows]
        figure.add_bar(x=names, y=y, name=f"{word}, {stage}", marker={"color": palette.model_colour(index)})
    figure.update_yaxes(title_text="mean cosine", range=[-0.3, 1.03])
    return figure
