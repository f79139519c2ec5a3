"""The page of a prediction: the geometry that follows from a text alone, and models beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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

MOST_LABELLED_WORDS = 60
SETTLED = 0.1
"""Share of unseen successors up to which the predicted supports are taken as settled."""

Rows = list[tuple[str, str, str]]


@page("ntp")
def head(result: NtpResult) -> Head:
    """Return what was counted, and the models that are compared with it."""
    if not result.contexts:
        raise BadInput("The result is no prediction: it has no data.")
    text = result.protocol.text
    source = f" of {named(text.source)}" if text is not None else ""
    comparison = ""
    if result.comparisons:
        names = ", ".join(model.name for model in result.comparisons)
        verb = "comes" if len(result.comparisons) == 1 else "come"
        comparison = f", and how close {names} {verb}"
    noun = "token" if result.order == 1 else "tokens"
    sentence = (
        f"{number(result.tokens)} positions{source}, contexts of {result.order} {noun}: what "
        f"theory predicts{comparison}."
    )
    return Head(["The geometry that the text predicts"], sentence, conclusion=_conclusion(result))


def _conclusion(result: NtpResult) -> str:
    """Say if the text is long enough for the prediction, and how close each model comes."""
    unseen = result.data.unseen_mass
    if unseen > SETTLED:
        first = (
            f"The prediction is provisional: about {unseen:.0%} of the next tokens would be new "
            "after their context. Read more of the text (--max-tokens), or use shorter contexts "
            "(--order)."
        )
    else:
        first = "The text is long enough for contexts of this length."
    sentences = [first]
    for model in result.comparisons:
        direction = model.metrics.direction
        if direction is not None:
            sentences.append(
                f"{model.name} has a cosine of {number(direction)} with the predicted "
                "direction (1: equal; 0: unrelated)."
            )
    if not result.comparisons:
        sentences.append("Add --model MODEL to see how close a model comes to it.")
    return " ".join(sentences)


@section("ntp", 10)
def numbers(result: NtpResult) -> Section:
    """Return the data's own numbers, and how settled they are."""
    rows = [*_data_rows(result), *_solution_rows(result), *_certificate_rows(result)]
    table = Table(["what", Term("value"), Term("meaning")], rows)
    lead = "These numbers are counted in the text alone, without any model."
    return Section("The text's own numbers", lead, [table, *map(Prose, result.notes)])


def _data_rows(result: NtpResult) -> Rows:
    """Return the numbers that are counted in the text."""
    data = result.data
    bootstrap = result.uncertainty.bootstrap
    bound = number(data.entropy_bound)
    bound_meaning = "nats a token: no model of this order gets below it"
    if bootstrap is not None:
        bound += f" ± {number(bootstrap.entropy_bound_error)}"
        bound_meaning += " (± by bootstrap)"
    return [
        ("entropy bound H", bound, bound_meaning),
        ("contexts", number(data.contexts), "distinct contexts of the text"),
        (
            "distinct supports",
            number(data.supports),
            f"{data.contexts_per_support:.1f} contexts share one on average",
        ),
        (
            "single successor",
            f"{data.single_successor_share:.1%}",
            "of the contexts have one next token only",
        ),
        ("mean support", number(data.support_size_mean), "next tokens a context"),
        (
            "unseen mass",
            f"{data.unseen_mass:.1%}",
            "Good–Turing: next occurrences that would enlarge a support",
        ),
    ]


def _solution_rows(result: NtpResult) -> Rows:
    """Return the numbers of the growing part of the logits; none where it was not solved for."""
    solution = result.solution
    if solution is None:
        return []
    gap = f"certified to {number(solution.gap)} of it"
    if not solution.converged:
        gap += ", stopped early"
    return [
        ("‖L^mm‖", number(solution.primal), f"nuclear norm of the growing part, {gap}"),
        ("rank", number(solution.rank), "width that embeddings need for it"),
        (
            "cheap proxy",
            number(solution.proxy_word_gram_cosine),
            "cosine of its Gram matrix of words with the certified one",
        ),
    ]


def _certificate_rows(result: NtpResult) -> Rows:
    """Say if the centred supports are optimal; no row where that was not checked."""
    certificate = result.certificate
    if certificate is None:
        return []
    if certificate.optimal:
        return [("centred supports", "yes", "the centred support matrix is the optimum")]
    share = f"{certificate.violating_share:.1%}"
    meaning = f"not the optimum: {share} of the entries have the wrong sign"
    return [("centred supports", "no", meaning)]


@section("ntp", 20)
def logits(result: NtpResult) -> Section:
    """Return the spectrum of the part of the logits that grows."""
    figure = Figure(
        "spectrum",
        lambda: spectra(result),
        "Singular values of the predicted growing part and of the centred support matrix",
        _spectrum_caption(result),
        320,
    )
    lead = (
        "One part stays finite: log-odds inside each support. The other grows without end, in one "
        "direction."
    )
    return Section("The two parts of the logits", lead, [figure])


def _spectrum_caption(result: NtpResult) -> str:
    """Say what the spectrum shows of the rank, and if the centred supports are the answer."""
    caption = "Singular values by rank of the growing part L^mm of the logits."
    if result.solution is not None:
        size = min(result.data.vocabulary - 1, result.solution.supports)
        caption += f" Its rank is {result.solution.rank:,} of at most {size:,}."
    caption += " Beside them are those of the centred support matrix S̃"
    if result.certificate is None:
        return f"{caption}; whether it is the optimum was not checked."
    verdict = "which is" if result.certificate.optimal else "which is not"
    return f"{caption}, {verdict} the optimum (certificate)."


def spectra(result: NtpResult) -> go.Figure:
    """Return the positive singular values by rank: of the growing part, and of centred supports."""
    label = "predicted L^mm" if result.solution else "proxy"
    values_by_label = {
        label: result.arrays["sigma"],
        "centred supports S̃": result.arrays["sigma_centred"],
    }
    series = {}
    for name, values in values_by_label.items():
        positive: list[float] = values[values > 0].tolist()
        series[name] = (list(range(1, len(positive) + 1)), positive)
    return lines(series, "singular value, by rank", "σ", markers=False, log="xy")


@section("ntp", 30)
def contexts(result: NtpResult) -> Section:
    """Return which contexts fall together: as predicted, and in each model."""
    matrices = {"predicted": result.arrays["heat/predicted"]}
    for model in result.comparisons:
        matrices[f"observed in {model.name}"] = result.arrays[f"heat/{model.name}"]
    maps = [
        Figure(
            f"heat-{index}" if index else "heat",
            partial(heat, result, values),
            f"Cosines between contexts, {title}",
            title=title,
            height=380,
        )
        for index, (title, values) in enumerate(matrices.items())
    ]
    caption = (
        f"Cosine between every two of {len(result.heat.contexts)} contexts. Point at a square to "
        "read them."
    )
    lead = (
        "Contexts ordered by the set of tokens that follow them. Squares on the diagonal are "
        "contexts with the same set."
    )
    parts: list[Part] = [Panels(maps, caption), *_subspace_collapse(result)]
    return Section("Which contexts fall together", lead, parts)


def _subspace_collapse(result: NtpResult) -> list[Part]:
    """Return the cosines before and after the projection, or why there are none."""
    if not result.comparisons:
        return []
    rows = []
    for model in result.comparisons:
        collapse = model.metrics.SC1
        for stage, cosines in (("before", collapse.before), ("after", collapse.after)):
            if cosines is not None:
                label = f"{model.name}, {stage}"
                rows.append((label, cosines.same_cosine, cosines.other_cosine))
    if not rows:
        return [
            Prose(
                "Subspace collapse is left out: no two of the contexts compared are followed by "
                "the same set of tokens, so nothing can collapse. Longer contexts (--order) "
                "repeat supports more often."
            )
        ]
    columns: list[Term | str] = ["", Term("with equal supports"), Term("with different supports")]
    caption = (
        "Mean cosines of contexts, before and after the part that the soft labels keep apart is "
        "projected out (subspace collapse)."
    )
    return [Table(columns, rows, "Subspace collapse", caption)]


def heat(result: NtpResult, values: npt.NDArray[Any]) -> go.Figure:
    """Return cosines between contexts, ordered so that contexts of equal support are neighbours."""
    groups = result.heat
    labels = [
        literal(f"{context} → {' '.join(support)}")
        for context, support in zip(groups.contexts, groups.supports, strict=True)
    ]
    cosines = np.asarray(values, dtype=np.float64).round(3)
    paper = palette.ROLES["paper"][0]
    figure = empty()
    figure.add_heatmap(
        z=[[None if np.isnan(cosine) else cosine for cosine in row] for row in cosines.tolist()],
        zmin=-1,
        zmax=1,
        colorscale=[[0.0, palette.MODELS[1][0]], [0.5, paper], [1.0, palette.MODELS[0][0]]],
        text=[[f"{row}<br>{column}" for column in labels] for row in labels],
        hovertemplate="%{text}<br>cosine %{z:.2f}<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0},
    )
    _part_groups(figure, groups.group, len(cosines))
    bare: dict[str, Any] = {
        "showticklabels": False,
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
    }
    figure.update_xaxes(**bare)
    return figure.update_yaxes(**bare, autorange="reversed", scaleanchor="x")


def _part_groups(figure: go.Figure, group_of_context: Sequence[int], count: int) -> None:
    """Draw lines between groups of contexts; none where each context is a group of its own."""
    edges = (np.flatnonzero(np.diff(group_of_context)) + 0.5).tolist()
    if len(edges) + 1 >= count:
        return
    shape = {"type": "line", "line": {"width": 0.6, "color": palette.ROLES["muted"][0]}}
    start = -0.5
    end = count - 0.5
    vertical = [shape | {"x0": edge, "x1": edge, "y0": start, "y1": end} for edge in edges]
    horizontal = [shape | {"y0": edge, "y1": edge, "x0": start, "x1": end} for edge in edges]
    # Adding the lines one by one would copy the list each time.
    figure.update_layout(shapes=vertical + horizontal)


@section("ntp", 40)
def words(result: NtpResult) -> Section:
    """Return words on the two strongest semantic axes, and the ends of all axes."""
    plane = Figure(
        "words",
        lambda: plane_of(result),
        "Words in the plane of two axes of the predicted embeddings",
        "The most frequent next tokens. Point at a dot to read the word.",
        560,
    )
    rows = []
    for axis in result.axes:
        positive = " ".join(word.token for word in axis.positive)
        negative = " ".join(word.token for word in axis.negative)
        rows.append((str(axis.index + 1), axis.strength, positive, negative))
    ends = Table(["axis", "strength", Term("one end"), Term("the other")], rows, where="page")
    lead = (
        "The strongest axes of the predicted word embeddings. They follow from the supports alone."
    )
    return Section("Words on the axes of meaning", lead, [plane, ends])


def plane_of(result: NtpResult) -> go.Figure:
    """Return words in the plane of the two strongest semantic axes.

    Pointing at a dot names the word; the words farthest from the origin have labels.
    """
    tokens = [literal(token) for token in result.words.tokens]
    counts = np.maximum(np.array(result.words.counts, dtype=np.float64), 1.0)
    coordinates = np.asarray(result.arrays["word_axes"], dtype=np.float64)
    missing = max(0, 2 - coordinates.shape[1])
    x, y, *_ = np.pad(coordinates, ((0, 0), (0, missing))).T
    farthest = set(np.argsort(-(x**2 + y**2))[:MOST_LABELLED_WORDS].tolist())
    figure = empty("axis 1", "axis 2")
    figure.add_scatter(
        x=x.tolist(),
        y=y.tolist(),
        mode="markers+text",
        textposition="top center",
        text=[token if index in farthest else "" for index, token in enumerate(tokens)],
        textfont={"size": 10, "color": palette.ROLES["muted"][0]},
        customdata=[[token, int(count)] for token, count in zip(tokens, counts, strict=True)],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} times a next token<extra></extra>",
        showlegend=False,
        marker={
            "size": (4 + 2.2 * np.log10(counts)).tolist(),
            "color": palette.model_colour(0),
            "opacity": 0.75,
        },
    )
    return figure.update_xaxes(zeroline=True).update_yaxes(zeroline=True)


@section("ntp", 60)
def against(result: NtpResult) -> Section | None:
    """Return every number of every model, with its meaning; None without models."""
    if not result.comparisons:
        return None
    metrics_by_model = [_support_metrics(model.metrics) for model in result.comparisons]
    rows = []
    for index, metric in enumerate(metrics_by_model[0]):
        values = [metrics[index].value for metrics in metrics_by_model]
        rows.append((metric.name, *values, metric.meaning))
    names = [Term(model.name) for model in result.comparisons]
    table = Table(["against the prediction", *names, Term("", where="page")], rows)
    notes = [Prose(note) for model in result.comparisons for note in model.notes]
    return Section(
        "Against the prediction",
        "The table has every number of each model with its meaning.",
        [table, *notes],
    )


class SupportMetric(NamedTuple):
    """A number of a model that depends on the supports."""

    name: str
    meaning: str
    value: float | None


def _support_metrics(metrics: SupportMetrics) -> list[SupportMetric]:
    return [
        SupportMetric(
            "CE − H, nats a token",
            "cross-entropy above the entropy bound; 0 where the data are fitted",
            metrics.SC6,
        ),
        SupportMetric(
            "in-support distance",
            "‖P_F(L) − L^in‖ / ‖L^in‖; 0 at the limit of training",
            metrics.SC3,
        ),
        SupportMetric(
            "direction",
            "cosine of the part of the logits that grows with the predicted L^mm",
            metrics.direction,
        ),
        SupportMetric(
            "growth R",
            "length of that part along L^mm; it grows with the logarithm of training",
            metrics.growth,
        ),
        SupportMetric(
            "words", "cosine of the Gram matrix of words with the predicted one", metrics.SC2_words
        ),
        SupportMetric(
            "contexts",
            "cosine of the Gram matrix of contexts with the predicted one",
            metrics.SC2_contexts,
        ),
        SupportMetric(
            "top-k = support",
            "share of contexts whose k largest logits are exactly their support",
            metrics.SC4,
        ),
        SupportMetric(
            "margin",
            "least logit of the support minus the largest other one, mean over contexts",
            metrics.SC5,
        ),
        SupportMetric(
            "outside the support",
            "probability of tokens that never followed in the text",
            metrics.outside_mass,
        ),
    ]
