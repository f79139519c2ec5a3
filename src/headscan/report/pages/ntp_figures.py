"""The figures of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from headscan.report.kit import palette
from headscan.report.kit.figures import empty, lines
from headscan.report.kit.words import literal

if TYPE_CHECKING:
    from headscan.ntp.result import NtpResult
    from headscan.ntp.support_metrics import SubspaceCollapse, SupportMetrics


MUTED = palette.ROLES["muted"][0]


@dataclass(frozen=True)
class Checkpoint:
    """One of several models in their order."""

    step: int
    name: str
    metrics: SupportMetrics


def course(result: NtpResult) -> list[Checkpoint]:
    """Checkpoints over which gap and alignment can be drawn: two models or more."""
    models = result.comparisons if len(result.comparisons) > 1 else []
    return [Checkpoint(index + 1, model.name, model.metrics) for index, model in enumerate(models)]


def over_steps(records: Sequence[Checkpoint], shown: dict[str, list[Any]], title: str) -> go.Figure:
    """Lines over training, logarithmic where it is long; pointing at a dot names the checkpoint."""
    steps = [max(record.step, 0.5) for record in records]
    figure = lines({name: (steps, y) for name, y in shown.items()}, "step", title)
    figure.update_traces(
        customdata=[literal(record.name) for record in records], hovertemplate="%{customdata}: %{y:.4g}<extra></extra>"
    )
    if max(steps) > 50:
        figure.update_xaxes(type="log")
    return figure


def spectra(result: NtpResult) -> go.Figure:
    """Singular values of the predicted growing part and of the centred support matrix, by rank."""
    label = "predicted L^mm" if result.solution else "proxy"
    shown = {label: result.arrays["sigma"], "centred supports S̃": result.arrays["sigma_centred"]}
    kept: dict[str, list[float]] = {name: values[values > 0].tolist() for name, values in shown.items()}
    series = {name: (list(range(1, len(found) + 1)), found) for name, found in kept.items()}
    figure = lines(series, "singular value, by rank", "σ", markers=False)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    return figure


def thresholds(result: NtpResult) -> go.Figure:
    """How the entropy bound and the predicted words change when rare successors do not count."""
    records = result.uncertainty.thresholds
    x = [f"{record.threshold:g}" for record in records]
    base = records[0].entropy_bound or 1.0
    series: dict[str, tuple[list[str], list[Any]]] = {
        "entropy bound, of the first": (x, [r.entropy_bound / base for r in records]),
        "text kept": (x, [r.kept_mass for r in records]),
        "Gram of words, cosine with the first": (x, [r.word_gram_cosine for r in records]),
    }
    figure = lines(series, "successors counted from so many occurrences")
    figure.update_yaxes(range=[0, 1.05])
    return figure


def words(result: NtpResult) -> go.Figure:
    """Words in the plane of two semantic axes; a menu chooses the pair, pointing at a dot names the word."""
    figure = empty("axis 1", "axis 2")
    tokens = [literal(token) for token in result.words.tokens]
    counts = np.maximum(np.array(result.words.counts, dtype=np.float64), 1.0)
    at = np.asarray(result.arrays["word_axes"], dtype=np.float64)
    if at.shape[1] < 2:
        at = np.pad(at, ((0, 0), (0, 2 - at.shape[1])))
    labelled = set(np.argsort(-(at[:, :2] ** 2).sum(1))[:60].tolist())
    figure.add_scatter(
        x=at[:, 0].tolist(), y=at[:, 1].tolist(), mode="markers+text", textposition="top center",
        text=[token if index in labelled else "" for index, token in enumerate(tokens)],
        textfont={"size": 10, "color": MUTED}, customdata=[[t, int(c)] for t, c in zip(tokens, counts, strict=True)],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} times a next token<extra></extra>", showlegend=False,
        marker={"size": (4 + 2.2 * np.log10(counts)).tolist(), "color": palette.model_colour(0), "opacity": 0.75},
    )  # fmt: skip
    axes = range(min(4, at.shape[1]))
    buttons = [
        {
            "label": f"axes {a + 1} and {b + 1}",
            "method": "update",
            "args": [
                {"x": [at[:, a].tolist()], "y": [at[:, b].tolist()]},
                {"xaxis.title.text": f"axis {a + 1}", "yaxis.title.text": f"axis {b + 1}"},
            ],
        }
        for a in axes
        for b in axes
        if a < b
    ]
    figure.update_layout(updatemenus=[{"buttons": buttons, "x": 1, "xanchor": "right", "y": 1.12, "yanchor": "top"}])
    figure.update_xaxes(zeroline=True)
    figure.update_yaxes(zeroline=True)
    return figure


def heat(result: NtpResult, values: npt.NDArray[Any]) -> go.Figure:
    """Cosines between contexts, ordered so that those of equal support stand together."""
    figure, shown = empty(), result.heat
    labels = [
        literal(f"{context} → {' '.join(support)}")
        for context, support in zip(shown.contexts, shown.supports, strict=True)
    ]
    z = np.asarray(values, dtype=np.float64).round(3)
    count = len(z)
    scale = [[0.0, palette.MODELS[1][0]], [0.5, palette.ROLES["paper"][0]], [1.0, palette.MODELS[0][0]]]
    figure.add_heatmap(
        z=[[None if np.isnan(v) else v for v in row] for row in z.tolist()], zmin=-1, zmax=1, colorscale=scale,
        text=[[f"{labels[i]}<br>{labels[j]}" for j in range(count)] for i in range(count)],
        hovertemplate="%{text}<br>cosine %{z:.2f}<extra></extra>", colorbar={"thickness": 10, "outlinewidth": 0},
    )  # fmt: skip
    edges = (np.flatnonzero(np.diff(shown.group)) + 0.5).tolist()
    if len(edges) + 1 < count:  # where every context stands for itself there is nothing to part
        line, end = {"width": 0.6, "color": MUTED}, count - 0.5
        across = [{"type": "line", "line": line, "x0": e, "x1": e, "y0": -0.5, "y1": end} for e in edges]
        down = [{"type": "line", "line": line, "y0": e, "y1": e, "x0": -0.5, "x1": end} for e in edges]
        figure.update_layout(shapes=across + down)  # one by one would copy the list each time
    bare: dict[str, Any] = {"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False}
    figure.update_xaxes(**bare)
    figure.update_yaxes(**bare, autorange="reversed", scaleanchor="x")
    return figure


def scatter(values: npt.NDArray[Any]) -> go.Figure:
    """The finite part of the logits: predicted log-odds inside supports against the model's, on a sample of entries."""
    figure = empty("predicted, L^in", "observed, P_F(L)")
    points = np.asarray(values, dtype=np.float64)
    if len(points):
        ends = [float(points.min()), float(points.max())]
        figure.add_scatter(x=ends, y=ends, mode="lines", line={"color": MUTED, "dash": "dot"}, name="equal")
        figure.add_scatter(
            x=points[:, 0].round(3).tolist(), y=points[:, 1].round(3).tolist(), mode="markers", name="logits",
            marker={"size": 4, "opacity": 0.4, "color": palette.model_colour(0)},
        )  # fmt: skip
    figure.update_layout(showlegend=False)
    return figure


def gap(records: Sequence[Checkpoint]) -> go.Figure:
    """CE − H over training."""
    figure = over_steps(records, {"CE − H": [record.metrics.SC6 for record in records]}, "CE − H, nats")
    figure.update_yaxes(type="log", dtick=1)
    return figure


def alignment(records: Sequence[Checkpoint]) -> go.Figure:
    """How training turns towards the prediction: directions, Gram matrices and the finite part."""
    found = [record.metrics for record in records]
    shown: dict[str, list[Any]] = {
        "direction": [m.direction for m in found],
        "words": [m.SC2_words for m in found],
        "contexts": [m.SC2_contexts for m in found],
        "same support": [None if m.SC1.after is None else m.SC1.after.same_cosine for m in found],
    }
    figure = over_steps(records, shown, "cosine")
    figure.update_yaxes(range=[-0.05, 1.03])
    return figure


def spreads(result: NtpResult) -> list[tuple[str, SubspaceCollapse]]:
    """Subspace collapse of every model, where any support repeats."""
    rows = [(model.name, model.metrics.SC1) for model in result.comparisons]
    return rows if any(spread.before or spread.after for _, spread in rows) else []


def collapse(result: NtpResult) -> go.Figure:
    """Cosines between contexts of equal and of different supports, before and after projection on F⊥."""
    figure = empty("", "mean cosine")
    rows = spreads(result)
    names = [literal(name) for name, _ in rows]
    kinds = [("equal", stage) for stage in ("before", "after")] + [
        ("different", stage) for stage in ("before", "after")
    ]
    for index, (kind, stage) in enumerate(kinds):
        y = []
        for _, spread in rows:
            found = spread.before if stage == "before" else spread.after
            y.append(None if found is None else found.same_cosine if kind == "equal" else found.other_cosine)
        colour = {"color": palette.model_colour(index)}
        figure.add_bar(x=names, y=y, name=f"{kind} supports, {stage}", marker=colour)
    figure.update_yaxes(range=[-0.3, 1.03])
    return figure
