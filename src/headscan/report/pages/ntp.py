"""The page of a prediction: what a text alone says of the geometry, and models held against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Figure, Head, Panels, Prose, Section, Table, Term, page, section
from headscan.report.kit.parts import Part
from headscan.report.kit.words import named, number
from headscan.report.pages import ntp_figures as draw
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
    end = f", and how close {names} come{'s' if len(result.comparisons) == 1 else ''}" if names else ""
    said = (
        f"{number(result.tokens)} positions{of}, contexts of {result.order} tokens: what next-token prediction must lead "
        f"to{end}."
    )
    return Head(["What caused the geometry?"], said)


@section("ntp", 10)
def numbers(result: NtpResult) -> Section:
    """The data's own numbers, and how settled they are."""
    d, s, c = result.data, result.solution, result.certificate
    spread = result.uncertainty.bootstrap
    error = f" ± {number(spread.entropy_bound_error)}" if spread is not None else ""
    rows: list[tuple[str, str, str]] = [
        ("entropy bound H", number(d.entropy_bound) + error,
         "nats a token: no model of this order gets below it" + (" (± by bootstrap)" if error else "")),
        ("contexts", number(d.contexts), "distinct contexts of the text"),
        ("distinct supports", number(d.supports), f"{d.contexts_per_support:.1f} contexts share one on average"),
        ("single successor", f"{d.single_successor_share:.1%}", "of the contexts have one next token only"),
        ("mean support", number(d.support_size_mean), "next tokens a context"),
        ("unseen mass", f"{d.unseen_mass:.1%}", "Good–Turing: next occurrences that would enlarge a support"),
    ]  # fmt: skip
    if s is not None:
        gap = f"certified to {number(s.gap)} of it" + ("" if s.converged else ", stopped early")
        proxy = "cosine of its Gram matrix of words with the certified one"
        rows += [
            ("‖L^mm‖", number(s.primal), f"nuclear norm of the growing part, {gap}"),
            ("rank", number(s.rank), "width that embeddings need for it"),
            ("cheap proxy", number(s.proxy_word_gram_cosine), proxy),
        ]
    if c is not None:
        wrong = f"is not: {c.violating_share:.1%} of the entries have the wrong sign"
        rows.append(("centred supports", "yes" if c.optimal else "no", f"S̃ {'is optimal' if c.optimal else wrong}"))
    table = Table(["what", Term("value"), Term("meaning")], rows)
    settled = Figure(
        "sizes", lambda: draw.thresholds(result),
        "How the entropy bound, the text kept and the predicted words change with the threshold",
        "How settled it is: the same numbers when successors seen fewer times do not count.", 280,
    )  # fmt: skip
    said = "Counted from the text alone, before any model is looked at."
    return Section("The text's own numbers", said, [table, *map(Prose, result.notes), settled])


@section("ntp", 20)
def logits(result: NtpResult) -> Section:
    """The growing part and the finite part of the logits."""
    spectrum = Figure(
        "spectrum", lambda: draw.spectra(result),
        "Singular values of the predicted growing part and of the centred support matrix",
        "The growing part L^mm is of low rank: its singular values, beside those of the centred support matrix, which would "
        "be the answer if its certificate held.", 320,
    )  # fmt: skip
    finite = [
        Figure(
            f"scatter-{index}", draw.scatter(result.arrays[f"scatter/{model.name}"]),
            "Predicted against observed log-odds inside supports", title=f"The finite part in {model.name}", height=320,
        )
        for index, model in enumerate(result.comparisons)
    ]  # fmt: skip
    caption = (
        "Logits inside supports, less their mean: predicted from counts against the model's. On the dotted line they are "
        "equal."
    )
    said = "One part stays finite: log-odds inside each support. The other grows without end, in one direction."
    parts: list[Part] = [spectrum]
    if finite:
        parts.append(Panels(finite, caption))
    return Section("The two parts of the logits", said, parts)


@section("ntp", 30)
def contexts(result: NtpResult) -> Section:
    """Which contexts fall together: predicted, and in each model."""
    maps = [
        Figure(
            "heat", lambda: draw.heat(result, result.arrays["heat/predicted"]), "Cosines between contexts as predicted",
            title="predicted", height=380,
        )
    ]  # fmt: skip
    for index, model in enumerate(result.comparisons):
        drawn = draw.heat(result, result.arrays[f"heat/{model.name}"])
        title = f"observed in {model.name}"
        maps.append(
            Figure(
                f"heat-{index}", drawn, f"Cosines between contexts as observed in {model.name}", title=title, height=380
            )
        )
    shown = f"Cosine between every two of {len(result.heat.contexts)} contexts. Point at a square to read them."
    parts: list[Part] = [Panels(maps, shown)]
    if draw.spreads(result):
        caption = (
            "Subspace collapse: mean cosine between contexts with equal and with different supports, before and after the "
            "part that the soft labels keep apart is projected out."
        )
        alt = "Mean cosines of contexts with equal and different supports, before and after projection"
        parts.append(Figure("collapse", lambda: draw.collapse(result), alt, caption, 320))
    elif result.comparisons:
        parts.append(
            Prose(
                "Subspace collapse is left out: no two of the contexts compared are followed by the same set of tokens, so "
                "nothing can collapse. Longer contexts (--order) repeat supports more often."
            )
        )
    said = "Contexts ordered by the set of tokens that follow them. Squares on the diagonal are contexts with the same set."
    return Section("Which contexts fall together", said, parts)


@section("ntp", 40)
def words(result: NtpResult) -> Section:
    """Words on the strongest semantic axes, and the ends of these."""
    caption = "The most frequent next tokens. Point at a dot to read the word; the menu changes the axes."
    plane = Figure(
        "words", lambda: draw.words(result), "Words in the plane of two axes of the predicted embeddings", caption, 560
    )
    rows = [
        (str(a.index + 1), a.strength, " ".join(e.token for e in a.positive), " ".join(e.token for e in a.negative))
        for a in result.axes
    ]
    ends = Table(["axis", "strength", Term("one end"), Term("the other")], rows, where="page")
    said = "The strongest axes of the predicted word embeddings. Nobody named them: the supports did."
    return Section("Words on the axes of meaning", said, [plane, ends])


@section("ntp", 50)
def training(result: NtpResult) -> Section | None:
    """How close several checkpoints of a model come, in their order."""
    course = draw.course(result)
    if not course:
        return None
    cosines = (
        "Cosines with the prediction: the growing direction, the Gram matrices of words and contexts, and the collapse of "
        "contexts with equal supports."
    )
    parts = [
        Figure(
            "gap", lambda: draw.gap(course), "CE minus H over training", "Cross-entropy above the entropy bound.", 280
        ),
        Figure(
            "alignment", lambda: draw.alignment(course), "Alignment with the prediction over training", cosines, 320
        ),
    ]
    said = "The gap closes fast, the direction turns slowly: it is reached only with the logarithm of training."
    return Section("On the way there", said, parts)


@section("ntp", 60)
def against(result: NtpResult) -> Section | None:
    """Every number of every model, with its meaning."""
    if not result.comparisons:
        return None
    values = [_support_values(model.metrics) for model in result.comparisons]
    rows = [
        (name, *(column[index][2] for column in values), meaning) for index, (name, meaning, _) in enumerate(values[0])
    ]
    names = [Term(model.name) for model in result.comparisons]
    table = Table(["against the prediction", *names, Term("", where="page")], rows)
    notes = [Prose(note) for model in result.comparisons for note in model.notes]
    return Section("Against the prediction", "Every number with its meaning.", [table, *notes])


def _support_values(m: SupportMetrics) -> list[tuple[str, str, float | None]]:
    """Support-aware metrics as (name, meaning, value)."""
    return [
        ("CE − H, nats a token", "cross-entropy above the entropy bound; 0 where the data are fitted", m.SC6),
        ("in-support distance", "‖P_F(L) − L^in‖ / ‖L^in‖; 0 at the limit of training", m.SC3),
        ("direction", "cosine of the part of the logits that grows with the predicted L^mm", m.direction),
        ("growth R", "length of that part along L^mm; it grows with the logarithm of training", m.growth),
        ("words", "cosine of the Gram matrix of words with the predicted one", m.SC2_words),
        ("contexts", "cosine of the Gram matrix of contexts with the predicted one", m.SC2_contexts),
        ("top-k = support", "share of contexts whose k largest logits are exactly their support", m.SC4),
        ("margin", "least logit of the support minus the largest other one, mean over contexts", m.SC5),
        ("outside the support", "probability put where the text never went", m.outside_mass),
    ]
