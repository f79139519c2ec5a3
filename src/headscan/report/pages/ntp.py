"""The page of a prediction: what a text alone says of the geometry, and models held against it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Panels,
    Prose,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import empty, lines
from headscan.report.kit.parts import Part
from headscan.report.kit.words import literal, named, number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.ntp.result import NtpResult
    from headscan.ntp.support_metrics import SupportMetrics


@page("ntp")
def head(result: NtpResult) -> Head:
    """What was counted, and against what it is held."""
    if not result.contexts:
        raise BadInput("The result is no prediction: it has no data.")
    text = result.protocol.text
    names = ", ".join(model.name for model in result.comparisons)
    of = f" of {named(text.source)}" if text is not None else ""
    end = (
        f", and how close {names} come{'s' if len(result.comparisons) == 1 else ''}"
        if names
        else ""
    )
    said = (
        f"{number(result.tokens)} positions{of}, contexts of {result.order} tokens: what theory "
        f"predicts{end}."
    )
    return Head(["The geometry that the text predicts"], said)


@section("ntp", 10)
def numbers(result: NtpResult) -> Section:
    """The data's own numbers, and how settled they are."""
    d = result.data
    s = result.solution
    c = result.certificate
    spread = result.uncertainty.bootstrap
    error = f" ± {number(spread.entropy_bound_error)}" if spread is not None else ""
    rows: list[tuple[str, str, str]] = [
        (
            "entropy bound H",
            number(d.entropy_bound) + error,
            "nats a token: no model of this order gets below it"
            + (" (± by bootstrap)" if error else ""),
        ),
        ("contexts", number(d.contexts), "distinct contexts of the text"),
        (
            "distinct supports",
            number(d.supports),
            f"{d.contexts_per_support:.1f} contexts share one on average",
        ),
        (
            "single successor",
            f"{d.single_successor_share:.1%}",
            "of the contexts have one next token only",
        ),
        ("mean support", number(d.support_size_mean), "next tokens a context"),
        (
            "unseen mass",
            f"{d.unseen_mass:.1%}",
            "Good–Turing: next occurrences that would enlarge a support",
        ),
    ]
    if s is not None:
        gap = f"certified to {number(s.gap)} of it" + ("" if s.converged else ", stopped early")
        rows += [
            ("‖L^mm‖", number(s.primal), f"nuclear norm of the growing part, {gap}"),
            ("rank", number(s.rank), "width that embeddings need for it"),
            (
                "cheap proxy",
                number(s.proxy_word_gram_cosine),
                "cosine of its Gram matrix of words with the certified one",
            ),
        ]
    if c is not None:
        wrong = f"is not: {c.violating_share:.1%} of the entries have the wrong sign"
        rows.append(
            (
                "centred supports",
                "yes" if c.optimal else "no",
                f"S̃ {'is optimal' if c.optimal else wrong}",
            )
        )
    table = Table(["what", Term("value"), Term("meaning")], rows)
    said = "Counted from the text alone, without any model."
    return Section("The text's own numbers", said, [table, *map(Prose, result.notes)])


@section("ntp", 20)
def logits(result: NtpResult) -> Section:
    """The part of the logits that grows."""
    caption = (
        "The growing part L^mm is of low rank: its singular values, beside those of the centred "
        "support matrix, which "
    )
    caption += "would be the answer if its certificate held."
    alt = "Singular values of the predicted growing part and of the centred support matrix"
    said = (
        "One part stays finite: log-odds inside each support. The other grows without end, in one "
        "direction."
    )
    return Section(
        "The two parts of the logits",
        said,
        [Figure("spectrum", lambda: spectra(result), alt, caption, 320)],
    )


@section("ntp", 30)
def contexts(result: NtpResult) -> Section:
    """Which contexts fall together: predicted, and in each model."""
    shown = {"predicted": result.arrays["heat/predicted"]}
    shown |= {
        f"observed in {model.name}": result.arrays[f"heat/{model.name}"]
        for model in result.comparisons
    }
    maps = [
        Figure(
            f"heat-{number}" if number else "heat",
            partial(heat, result, values),
            f"Cosines between contexts, {title}",
            title=title,
            height=380,
        )
        for number, (title, values) in enumerate(shown.items())
    ]
    caption = (
        f"Cosine between every two of {len(result.heat.contexts)} contexts. Point at a square to "
        "read them."
    )
    parts: list[Part] = [Panels(maps, caption)]
    rows = [
        (f"{model.name}, {stage}", found.same_cosine, found.other_cosine)
        for model in result.comparisons
        for stage, found in (
            ("before", model.metrics.SC1.before),
            ("after", model.metrics.SC1.after),
        )
        if found is not None
    ]
    if rows:
        about = (
            "Mean cosines of contexts, before and after the part that the soft labels keep apart "
            "is projected out (subspace "
        )
        about += "collapse)."
        columns: list[Term | str] = [
            "",
            Term("with equal supports"),
            Term("with different supports"),
        ]
        parts.append(Table(columns, rows, "Subspace collapse", about))
    elif result.comparisons:
        said = (
            "Subspace collapse is left out: no two of the contexts compared are followed by the "
            "same set of tokens, so "
        )
        parts.append(
            Prose(
                said + "nothing can collapse. Longer contexts (--order) repeat supports more often."
            )
        )
    said = (
        "Contexts ordered by the set of tokens that follow them. Squares on the diagonal are "
        "contexts with the same set."
    )
    return Section("Which contexts fall together", said, parts)


@section("ntp", 40)
def words(result: NtpResult) -> Section:
    """Words on the two strongest semantic axes, and the ends of all."""
    caption = "The most frequent next tokens. Point at a dot to read the word."
    plane = Figure(
        "words",
        lambda: plane_of(result),
        "Words in the plane of two axes of the predicted embeddings",
        caption,
        560,
    )
    rows = [
        (
            str(a.index + 1),
            a.strength,
            " ".join(e.token for e in a.positive),
            " ".join(e.token for e in a.negative),
        )
        for a in result.axes
    ]
    ends = Table(["axis", "strength", Term("one end"), Term("the other")], rows, where="page")
    said = (
        "The strongest axes of the predicted word embeddings. They follow from the supports alone."
    )
    return Section("Words on the axes of meaning", said, [plane, ends])


@section("ntp", 60)
def against(result: NtpResult) -> Section | None:
    """Every number of every model, with its meaning."""
    if not result.comparisons:
        return None
    values = [_support_values(model.metrics) for model in result.comparisons]
    rows = [
        (name, *(column[index][2] for column in values), meaning)
        for index, (name, meaning, _) in enumerate(values[0])
    ]
    table = Table(
        [
            "against the prediction",
            *[Term(model.name) for model in result.comparisons],
            Term("", where="page"),
        ],
        rows,
    )
    notes = [Prose(note) for model in result.comparisons for note in model.notes]
    return Section("Against the prediction", "Every number with its meaning.", [table, *notes])


def _support_values(m: SupportMetrics) -> list[tuple[str, str, float | None]]:
    """Support-aware metrics as (name, meaning, value)."""
    return [
        (
            "CE − H, nats a token",
            "cross-entropy above the entropy bound; 0 where the data are fitted",
            m.SC6,
        ),
        ("in-support distance", "‖P_F(L) − L^in‖ / ‖L^in‖; 0 at the limit of training", m.SC3),
        (
            "direction",
            "cosine of the part of the logits that grows with the predicted L^mm",
            m.direction,
        ),
        (
            "growth R",
            "length of that part along L^mm; it grows with the logarithm of training",
            m.growth,
        ),
        ("words", "cosine of the Gram matrix of words with the predicted one", m.SC2_words),
        (
            "contexts",
            "cosine of the Gram matrix of contexts with the predicted one",
            m.SC2_contexts,
        ),
        (
            "top-k = support",
            "share of contexts whose k largest logits are exactly their support",
            m.SC4,
        ),
        (
            "margin",
            "least logit of the support minus the largest other one, mean over contexts",
            m.SC5,
        ),
        ("outside the support", "probability put where the text never went", m.outside_mass),
    ]


def spectra(result: NtpResult) -> go.Figure:
    """Singular values of the predicted growing part and of the centred support matrix, by rank."""
    label = "predicted L^mm" if result.solution else "proxy"
    shown = {label: result.arrays["sigma"], "centred supports S̃": result.arrays["sigma_centred"]}
    kept: dict[str, list[float]] = {
        name: values[values > 0].tolist() for name, values in shown.items()
    }
    series = {name: (list(range(1, len(found) + 1)), found) for name, found in kept.items()}
    figure = lines(series, "singular value, by rank", "σ", markers=False)
    return figure.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)


def plane_of(result: NtpResult) -> go.Figure:
    """Words in the plane of the two strongest semantic axes; pointing at a dot names the word."""
    figure = empty("axis 1", "axis 2")
    tokens = [literal(token) for token in result.words.tokens]
    counts = np.maximum(np.array(result.words.counts, dtype=np.float64), 1.0)
    at = np.asarray(result.arrays["word_axes"], dtype=np.float64)
    if at.shape[1] < 2:
        at = np.pad(at, ((0, 0), (0, 2 - at.shape[1])))
    labelled = set(np.argsort(-(at[:, :2] ** 2).sum(1))[:60].tolist())
    figure.add_scatter(
        x=at[:, 0].tolist(),
        y=at[:, 1].tolist(),
        mode="markers+text",
        textposition="top center",
        text=[token if index in labelled else "" for index, token in enumerate(tokens)],
        textfont={"size": 10, "color": palette.ROLES["muted"][0]},
        customdata=[[t, int(c)] for t, c in zip(tokens, counts, strict=True)],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} times a next token<extra></extra>",
        showlegend=False,
        marker={
            "size": (4 + 2.2 * np.log10(counts)).tolist(),
            "color": palette.model_colour(0),
            "opacity": 0.75,
        },
    )
    return figure.update_xaxes(zeroline=True).update_yaxes(zeroline=True)


def heat(result: NtpResult, values: npt.NDArray[Any]) -> go.Figure:
    """Cosines between contexts, ordered so that those of equal support stand together."""
    figure = empty()
    shown = result.heat
    labels = [
        literal(f"{words} → {' '.join(support)}")
        for words, support in zip(shown.contexts, shown.supports, strict=True)
    ]
    z = np.asarray(values, dtype=np.float64).round(3)
    count = len(z)
    scale = [
        [0.0, palette.MODELS[1][0]],
        [0.5, palette.ROLES["paper"][0]],
        [1.0, palette.MODELS[0][0]],
    ]
    figure.add_heatmap(
        z=[[None if np.isnan(v) else v for v in row] for row in z.tolist()],
        zmin=-1,
        zmax=1,
        colorscale=scale,
        text=[[f"{labels[i]}<br>{labels[j]}" for j in range(count)] for i in range(count)],
        hovertemplate="%{text}<br>cosine %{z:.2f}<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0},
    )
    edges = (np.flatnonzero(np.diff(shown.group)) + 0.5).tolist()
    if len(edges) + 1 < count:  # where every context stands for itself there is nothing to part
        line = {"width": 0.6, "color": palette.ROLES["muted"][0]}
        end = count - 0.5
        across = [
            {"type": "line", "line": line, "x0": e, "x1": e, "y0": -0.5, "y1": end} for e in edges
        ]
        down = [
            {"type": "line", "line": line, "y0": e, "y1": e, "x0": -0.5, "x1": end} for e in edges
        ]
        figure.update_layout(shapes=across + down)  # one by one would copy the list each time
    bare: dict[str, Any] = {
        "showticklabels": False,
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
    }
    return figure.update_xaxes(**bare).update_yaxes(**bare, autorange="reversed", scaleanchor="x")
