"""The page of a privacy report: bits that remain, attacks, defences side by side, and what a gradient shows."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Term, figures, page, palette, section, table
from headscan.report.kit.parts import Part, facts
from headscan.report.kit.words import literal, named
from headscan.report.pages.invert import LEAST, RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.leaks.result import LeakedGradient, LeakRow, PrivacyResult

RELEASE = ("site", "defence", "noise")
WORDS = [
    Term(
        "bits a token", "Information that the release gives of a token, in the mean: proved from below and from above, whatever "
        "the attack; the truth lies between."
    ),
    Term("rms", "The unit of the noise: the root mean square of the release's coordinates around their mean."),
    Term("prior", "What the attacker knows of texts before anything leaks; its entropy is what there is to give away."),
    Term("posterior attack", "Names the likeliest token given release, prior and the true prefix: no attack is better."),
    Term("ceiling", "An accuracy that no attack exceeds, because of the bits (Fano); in the mean over the prior."),
]  # fmt: skip


@page("privacy")
def head(result: PrivacyResult) -> Head:
    return Head([named(result.models[0].name)], _summary(result), words=[] if result.gradient else WORDS)


def _summary(result: PrivacyResult) -> str:
    """What remains in the release, in one sentence."""
    if result.gradient is not None:
        return f"The gradient of one training step gives away {100 * result.gradient.recall:.1f} % of the tokens of its batch."
    if len({row.defence for row in result.rows}) > 1:
        return _cheapest(result)
    sentences = []
    bounded = [row for row in result.rows if row.bits_lower is not None and row.noise > 0]
    if bounded:
        row = min(bounded, key=lambda row: row.bits_lower or 0.0)
        sentences.append(_remains(row))
    clean = [row for row in result.rows if row.noise == 0]
    if clean:
        rounded = any(row.bits_lower is not None for row in clean)
        worst = max(clean, key=lambda row: row.site)
        how = f"as {worst.defence}" if rounded else "without noise"
        ends = [f"{bound(row.text_accuracy for row in clean):.0%}" for bound in (min, max)]
        verdicts = ", ".join(dict.fromkeys(row.verdict for row in clean if row.verdict))
        shares = " to ".join(dict.fromkeys(ends))
        sentences.append(f"Released {how}, {shares} of the tokens are read off by {worst.attack} search ({verdicts}).")
    return " ".join(sentences)


def _remains(row: LeakRow) -> str:
    """At this setting at least a of b bits remain, and the model loses c nats."""
    low, high, of = row.bits_lower or 0.0, row.bits_upper or 0.0, row.prior_bits or 0.0
    lost = "" if row.loss_added is None else f", and the model loses {row.loss_added:.2f} nats a token"
    lost = lost if row.retrieval is None else f", and {row.retrieval:.0%} of passages are still found"
    noise = f"noise {row.noise:g}" if row.noise else "no noise"
    setting = f"At {noise}" if row.defence == "none" else f"Behind {row.defence} at {noise}"
    return f"{setting} at {row.site} at least {low:.2f} of {of:.2f} bits a token remain (at most {high:.2f}){lost}."


def _cheapest(result: PrivacyResult) -> str:
    """The cheapest setting that is proved to halve the bits, or that none is."""
    rows = [row for row in result.rows if row.bits_upper is not None]
    if not rows:
        return "No setting has bits between bounds."
    safe = [row for row in rows if (row.bits_upper or 0.0) <= (row.prior_bits or 0.0) / 2]
    if safe:
        row = min(safe, key=lambda one: float("inf") if (cost := _cost(one)) is None else cost)
        return f"{_remains(row)} No cheaper setting tried is proved to leave half of the bits or fewer."
    row = min(rows, key=lambda one: one.bits_upper or 0.0)
    return f"No setting tried is proved to leave half of the bits or fewer. {_remains(row)}"


def _cost(row: LeakRow) -> float | None:
    return row.loss_added if row.retrieval is None else 1 - row.retrieval


def _worth(rows: Sequence[LeakRow]) -> str:
    return "loss_added" if rows[0].retrieval is None else "retrieval"


@section("privacy", 8)
def frontier(result: PrivacyResult) -> Section | None:
    """Bits against what a setting costs, one line a defence."""
    rows = [row for row in result.rows if row.bits_upper is not None and _cost(row) is not None]
    if len({row.defence for row in rows}) < 2:
        return None
    lost = "nats a token that the model loses" if rows[0].retrieval is None else "share of passages no longer found"
    figure = Figure(
        "frontier", lambda: _frontier(rows, lost),
        f"Bits a token that remain against {lost}, one line a defence, one point a noise",
        f"Bits a token that remain, by Monte Carlo or at most, against {lost}; one line a defence at a site, one point a noise. "
        "The nearer to the lower left, the better the defence.", 420,
    )  # fmt: skip
    ranked = sorted(rows, key=lambda row: (row.bits_upper or 0.0, _cost(row) or 0.0))
    columns = ("defence", "site", "noise", "bits_lower", "bits_upper", "prior_bits", "attack_accuracy", _worth(rows))
    lead = f"What protects most at least cost, the fewest bits first. {result.what}"
    return Section("Defences on one frontier", lead, [figure, table(ranked, *columns)])


def _frontier(rows: list[LeakRow], lost: str) -> go.Figure:
    series = {}
    for defence, site in dict.fromkeys((row.defence, row.site) for row in rows):
        some = [row for row in rows if (row.defence, row.site) == (defence, site)]
        some.sort(key=lambda row: _cost(row) or 0.0)
        series[f"{defence}, {site}"] = [_cost(row) for row in some], [_middle(row) for row in some]
    return figures.lines(series, lost, "bits a token that remain", zero=True)


def _middle(row: LeakRow) -> float | None:
    """The truth by Monte Carlo, or the proved floor where there is none."""
    return row.bits_lower if row.bits_truth is None else row.bits_truth


@section("privacy", 10)
def bits(result: PrivacyResult) -> Section | None:
    """Bits between bounds, by site and noise."""
    rows = [row for row in result.rows if row.bits_lower is not None]
    if not rows:
        return None
    figure = Figure(
        "bits", lambda: _bands(rows), "Bits a token that remain, between the proved bounds, by noise, one band a site",
        f"Bits a token by noise. Lines: the truth by Monte Carlo, or the proved floor where not all candidates were run; bands: "
        f"from the proved floor to the proved ceiling. {result.what}", 400,
    )  # fmt: skip
    shown = table(rows, *RELEASE, "prior_bits", "bits_lower", "bits_truth", "bits_upper", _worth(rows))
    return Section("Bits that remain", result.meaning, [figure, shown])


def _bands(rows: list[LeakRow]) -> go.Figure:
    """A band a site: floor and ceiling; the truth, or the floor, as a line."""
    figure = figures.empty("noise (rms)", "bits a token")
    several = len({row.defence for row in rows}) > 1
    for index, (site, defence) in enumerate(dict.fromkeys((row.site, row.defence) for row in rows)):
        some = sorted((row for row in rows if (row.site, row.defence) == (site, defence)), key=attrgetter("noise"))
        x, colour = [row.noise for row in some], palette.model_colour(index)
        middle = [_middle(row) for row in some]
        band = {"mode": "lines", "line": {"color": colour, "width": 0.5}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=[row.bits_lower for row in some], **band)
        figure.add_scatter(x=x, y=[row.bits_upper for row in some], fill="tonexty", opacity=0.5, **band)
        name = literal(f"{site}, {defence}" if several else site)
        figure.add_scatter(x=x, y=middle, name=name, mode="lines+markers", line={"color": colour}, marker={"size": 7})
    figure.update_yaxes(rangemode="tozero")
    return figure


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
    """Attacks beside what no attack exceeds."""
    if result.gradient is not None:
        return None
    columns = ("attack", "attack_accuracy", "attack_accuracy_upper", "text_accuracy", "verdict", "certificate")
    figure = Figure(
        "accuracy", lambda: _accuracy(result.rows), "Share of tokens named by the attack, by site, one line a noise",
        "Share of tokens that the attack names, by site.", 340,
    )  # fmt: skip
    lead = "Whoever attacks has the model and knows how the release was made and damaged."
    return Section("Attacks", lead, [figure, table(result.rows, *RELEASE, *columns)])


def _accuracy(rows: list[LeakRow]) -> go.Figure:
    series: dict[str, tuple[list[str], list[float]]] = {}
    for row in rows:
        name = f"noise {row.noise:g}" if row.defence == "none" else f"{row.defence}, {row.noise:g}"
        sites, shares = series.setdefault(name, ([], []))
        sites.append(row.site)
        shares.append(row.attack_accuracy)
    figure = figures.lines(series, "", "share of tokens named")
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure


# ---- What a leaked gradient shows.


@section("privacy", 30)
def found(result: PrivacyResult) -> Section | None:
    """The tokens in a gradient's span, the texts put in order, and the batch."""
    if (shown := result.gradient) is None:
        return None
    tokens = [
        RecoveredToken(
            one.string, one.in_batch,
            title=f"{one.distance:.1e}" if one.in_batch else f"{'at another position' if one.elsewhere else 'not'} in the batch",
        )
        for one in shown.tokens[:500]
    ]  # fmt: skip
    figure = Figure(
        "distances", lambda: _distances(shown),
        "Distance of every listed token from the span of the gradient, on a logarithmic scale",
        "Relative distance of each listed token's input vector from the span of the gradient. The dotted line is the nearest "
        "token that is not listed: the wider the gap, the surer the list.",
    )  # fmt: skip
    lead = "The gradient of a linear map lies in the span of its inputs. A token is listed if its input vector lies in that span."
    numbers = facts(shown, "recall", "precision", "precision_anywhere", "with_positions", "nearest_other")
    about = [
        ("batch", f"{len(shown.batch)} texts of {len(shown.batch[0])} tokens"),
        ("rank of the gradient", f"{shown.rank} of {shown.width}"),
    ]
    short = Facts("In short", [*about, *numbers.rows])
    parts: list[Part] = [recovered([RecoveredLine(tokens)]), Prose(shown.certified), short, figure, *_beginnings(shown)]
    batch = [RecoveredLine([RecoveredToken(token, True) for token in row]) for row in shown.batch_strings[:50]]
    parts += [Prose("The batch, for comparison: nothing of it was used", heading=True), recovered(batch)]
    return Section("What the step shows", lead, parts)


def _distances(shown: LeakedGradient) -> go.Figure:
    """Distance of every listed token from the gradient's span, logarithmic; the nearest token left out is a line."""
    figure = figures.empty("tokens found", "distance from the span")
    for index, (there, name) in enumerate(((True, "in the batch there"), (False, "not in the batch, or elsewhere"))):
        rows = [(number, one) for number, one in enumerate(shown.tokens) if one.in_batch is there]
        if rows:
            figure.add_scatter(
                x=[number for number, _ in rows], y=[max(one.distance, LEAST) for _, one in rows],
                text=[literal(one.string) for _, one in rows], name=name, mode="markers",
                marker={"color": palette.model_colour(index), "symbol": ("circle", "x")[index], "size": 7},
                hovertemplate="%{text}<br>%{y:.1e}",
            )  # fmt: skip
    if shown.nearest_other:
        figures.mark_level(figure, shown.nearest_other, "nearest token left out")
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    return figure


def _beginnings(shown: LeakedGradient) -> list[Part]:
    """The texts that the second stage puts in order."""
    if shown.texts_found is None:
        return []
    lines = [
        RecoveredLine([RecoveredToken(one.string, one.in_batch, title=f"{one.distance:.1e}")])
        for one in shown.texts[:50]
    ]
    right = sum(one.in_batch for one in shown.texts)
    told = (
        f"Block 1's inputs depend on all tokens before: a beginning that was in the batch lies in the span of its gradient (rank "
        f"{shown.second_rank} of {shown.width}). {shown.texts_found:.0%} of the batch's texts are read in their order, all but "
        f"their last tokens; of the {len(shown.texts)} read, {right} were there."
    )
    return [Prose("Texts in order", heading=True), Prose(told), *([recovered(lines)] if lines else [])]
