"""The page of a privacy report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Cell,
    Column,
    Facts,
    Figure,
    Head,
    Prose,
    Section,
    Table,
    Word,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import literal, named
from headscan.report.pages._recovered import LEAST, RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.leaks.result import LeakedGradient, LeakRow, PrivacyResult
    from headscan.report.kit.parts import Part

__all__: list[str] = []


BITS = Word(
    "bits a token", "Information that the release gives of a token, in the mean: proved from below and from above, whatever the "
    "attack; the truth lies between."
)  # fmt: skip
WORDS = [
    BITS,
    Word("rms", "The unit of the noise: the root mean square of the release's coordinates around their mean."),
    Word("prior", "What the attacker knows of texts before anything leaks; its entropy is what there is to give away."),
    Word(
        "posterior attack",
        "Names the likeliest token given release, prior and the true tokens before it: no attack is better.",
    ),
    Word("ceiling", "An accuracy that no attack exceeds, because of the bits (Fano); in the mean over the prior."),
]


@page("privacy")
def head(result: PrivacyResult) -> Head:
    """What remains in the release, in one sentence."""
    return Head([named(result.models[0].name)], _said(result), words=[] if result.gradient else WORDS)


def _said(result: PrivacyResult) -> str:
    if result.gradient is not None:
        share = f"{100 * result.gradient.recall:.1f} %"
        return f"The gradient of one training step gives away {share} of the tokens of its batch."
    said = []
    bounded = [row for row in result.rows if row.bits_lower is not None and row.noise > 0]
    if bounded:
        said.append(_remains(result, min(bounded, key=lambda row: row.bits_lower or 0.0)))
    rounded = [row for row in result.rows if row.noise == 0 and row.bits_lower is not None]
    clean = [row for row in result.rows if row.noise == 0]
    if clean:
        shares, worst = [row.text_accuracy for row in clean], max(clean, key=lambda row: row.site)
        how = f"as {worst.defence}" if rounded else "without noise"
        verdicts = ", ".join(dict.fromkeys(row.verdict for row in clean if row.verdict))
        said.append(
            f"Released {how}, {_range(shares)} of the tokens are read off by {worst.attack} search ({verdicts})."
        )
    return " ".join(said)


def _remains(result: PrivacyResult, row: LeakRow) -> str:
    """At this setting at least a bits of b remain, and the model loses c nats."""
    whole = next((one for one in result.whole if (one.site, one.noise) == (row.site, row.noise)), None)
    at = f"At noise {row.noise:g} at {row.site}"
    low, high, of = row.bits_lower or 0.0, row.bits_upper or 0.0, row.prior_bits or 0.0
    words = f"{at} at least {low:.2f} of {of:.2f} bits a token remain (at most {high:.2f})"
    if whole is not None:
        words += (
            f", of whole texts {whole.bits_lower:.2f} to {whole.bits_upper:.2f} of {whole.prior_bits:.2f} "
            f"(± {1.96 * whole.gap_error:.2f})"
        )
    return words + (f", and the model loses {row.loss_added:.2f} nats a token." if row.loss_added is not None else ".")


def _range(shares: list[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low} to {high}"


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
    columns: list[Column | str] = [
        "release", Column("noise", "Standard deviation, in rms of the release's centred coordinates."),
        Column("bits, prior", "Entropy of a token given those before it, under the prior."),
        Column("at least", "Proved from below.", "U(2σ), Fano"), Column("truth", "Monte Carlo over all candidates."),
        Column("at most", "Proved from above.", "U(σ), Gaussian, entropy"),
        Column("nats lost", "What the model loses if it goes on with what is released."),
    ]  # fmt: skip
    cells = [
        (
            row.site, row.noise, row.prior_bits, row.bits_lower,
            Cell(row.bits_truth, interval=_about(row), why="not all candidates were run"), row.bits_upper, row.loss_added,
        )
        for row in rows
    ]  # fmt: skip
    return Section("Bits that remain", result.meaning, [figure, Table(columns, cells)])


def _about(row: LeakRow) -> tuple[float, float] | None:
    if row.bits_truth is None or row.bits_truth_error is None:
        return None
    return row.bits_truth - 1.96 * row.bits_truth_error, row.bits_truth + 1.96 * row.bits_truth_error


def _bands(rows: list[LeakRow]) -> go.Figure:
    """A band a site: floor and ceiling; the truth, or the floor, as a line."""
    figure = figures.empty("noise (rms)", "bits a token")
    for index, site in enumerate(dict.fromkeys(row.site for row in rows)):
        some = sorted((row for row in rows if row.site == site), key=lambda row: row.noise)
        x, colour = [row.noise for row in some], palette.model_colour(index)
        low, high = [row.bits_lower for row in some], [row.bits_upper for row in some]
        middle = [row.bits_lower if row.bits_truth is None else row.bits_truth for row in some]
        band = {"mode": "lines", "line": {"color": colour, "width": 0.5}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=low, **band)
        figure.add_scatter(x=x, y=high, fill="tonexty", opacity=0.5, **band)
        figure.add_scatter(
            x=x, y=middle, name=literal(site), mode="lines+markers", line={"color": colour}, marker={"size": 7}
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


@section("privacy", 15)
def whole_texts(result: PrivacyResult) -> Section | None:
    """Bits of whole texts, between two runs of a particle filter."""
    if not result.whole:
        return None
    columns: list[Column | str] = [
        "release", "noise", Column("bits, prior", "−log2 p of the texts, a token."),
        Column("own releases", "The part that each token's own release tells."), Column("at least", "Conditional run."),
        Column("at most", "Free run."), Column("tokens right", "Of a text drawn from what the attacker believes.", percent=True),
    ]  # fmt: skip
    rows = [
        (
            one.site, one.noise, one.prior_bits, Cell(one.own_bits, interval=_around(one.own_bits, one.own_bits_error)),
            Cell(one.bits_lower, interval=_around(one.bits_lower, one.bits_lower_error)),
            Cell(one.bits_upper, interval=_around(one.bits_upper, one.bits_upper_error)), one.accuracy,
        )
        for one in result.whole
    ]  # fmt: skip
    first = result.whole[0]
    lead = (
        f"{first.texts} texts of {first.tokens} tokens drawn from the model: what all their releases together tell of the whole "
        f"text, a token. A filter of {first.particles} prefixes bounds it from both sides in expectation, and is the attack."
    )
    return Section("Whole texts", lead, [Table(columns, rows)])


def _around(value: float, error: float) -> tuple[float, float]:
    return value - 1.96 * error, value + 1.96 * error


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
    """Attacks beside what no attack exceeds."""
    if result.gradient is not None:
        return None
    columns: list[Column | str] = [
        "release", "noise", Column("attack", text=True), Column("tokens named", "In the mean over the prior.", percent=True),
        Column("ceiling", "No attack is right more often.", percent=True),
        Column("of this text", "Of the text's own tokens.", percent=True), Column("verdict", text=True),
        Column("certificate", "What excludes other tokens, of releases without noise.", text=True),
    ]  # fmt: skip
    rows = [
        (
            row.site, row.noise, row.attack, Cell(row.attack_accuracy, interval=row.attack_accuracy_interval),
            Cell(row.attack_accuracy_upper, why="nothing is proved"),
            Cell(row.text_accuracy, interval=row.text_accuracy_interval),
            row.verdict or "-", row.certificate or "-",
        )
        for row in result.rows
    ]  # fmt: skip
    figure = Figure(
        "accuracy", lambda: _accuracy(result.rows), "Share of tokens named by the attack, by site, one line a noise",
        "Share of tokens that the attack names, by site.", 340,
    )  # fmt: skip
    lead = "Whoever attacks has the model and knows how the release was made and damaged."
    return Section("Attacks", lead, [figure, Table(columns, rows)])


def _accuracy(rows: list[LeakRow]) -> go.Figure:
    series = {
        f"noise {noise:g}": (
            [row.site for row in rows if row.noise == noise],
            [row.attack_accuracy for row in rows if row.noise == noise],
        )
        for noise in dict.fromkeys(row.noise for row in rows)
    }
    figure = figures.lines(series, "", "share of tokens named")
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure


@section("privacy", 30)
def found(result: PrivacyResult) -> Section | None:
    """The tokens in a gradient's span."""
    shown = result.gradient
    if shown is None:
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
    parts: list[Part] = [recovered([RecoveredLine(tokens)]), Prose(shown.certified), _facts(shown), figure]
    return Section("What the step shows", lead, parts)


def _facts(shown: LeakedGradient) -> Facts:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    rows = [
        ("batch", f"{len(shown.batch)} texts of {len(shown.batch[0])} tokens"),
        ("tokens of the batch found", share(shown.recall)),
        ("found tokens that were there", share(shown.precision)),
        ("at this or another position", share(shown.precision_anywhere)),
        ("rank of the gradient", f"{shown.rank} of {shown.width}"),
        ("positions", "recovered" if shown.with_positions else "not recovered"),
        ("nearest token outside", "-" if shown.nearest_other is None else f"{shown.nearest_other:.1e}"),
    ]
    return Facts("In short", rows)


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


@section("privacy", 40)
def batch(result: PrivacyResult) -> Section | None:
    """The texts of the step."""
    if result.gradient is None:
        return None
    rows = [[RecoveredToken(token, True) for token in row] for row in result.gradient.batch_strings[:50]]
    lead = "What the step was made on, for comparison; nothing of it was used."
    return Section("The batch", lead, [recovered([RecoveredLine(row) for row in rows])])
