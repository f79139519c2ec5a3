"""The page of a privacy report: the head here, a module a section beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Facts, Figure, Head, Section, Table, Word, figures, page, palette, section
from headscan.report.kit.words import literal, named
from headscan.report.pages.invert import RecoveredLine, RecoveredToken, recovered
from headscan.report.pages.privacy_frontier import FOUND, LOST, frontier_said, remains, worth
from headscan.statistics.uncertainty import Z, normal

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, OutsideStates, PrivacyResult


# ---- Attacks beside what no attack exceeds.


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
    """Attacks beside what no attack exceeds."""
    if result.gradient is not None:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("attack", text=True),
        Column("tokens named", "In the mean over the prior.", percent=True),
        Column("ceiling", "No attack is right more often.", percent=True),
        Column("of this text", "Of the text's own tokens.", percent=True), Column("verdict", text=True),
        Column("certificate", "What excludes other tokens, of releases without noise.", text=True),
    ]  # fmt: skip
    rows = [
        (
            row.site, row.defence, row.noise, row.attack, Cell(row.attack_accuracy, interval=row.attack_accuracy_interval),
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
        f"noise {noise:g}" if defence == "none" else f"{defence}, {noise:g}": (
            [row.site for row in rows if (row.noise, row.defence) == (noise, defence)],
            [row.attack_accuracy for row in rows if (row.noise, row.defence) == (noise, defence)],
        )
        for noise, defence in dict.fromkeys((row.noise, row.defence) for row in rows)
    }
    figure = figures.lines(series, "", "share of tokens named")
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure


# ---- Bits that remain: token by token, with all others known, and of whole texts.


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
        "release", Column("defence", text=True),
        Column("noise", "Standard deviation, in rms of the release's centred coordinates."),
        Column("bits, prior", "Entropy of a token given those before it, under the prior."),
        Column("at least", "Proved from below.", "U(2σ), Fano"), Column("truth", "Monte Carlo over all candidates."),
        Column("at most", "Proved from above.", "U(σ), Gaussian, entropy"),
        LOST if rows[0].retrieval is None else FOUND,
    ]  # fmt: skip
    cells = [
        (
            row.site, row.defence, row.noise, row.prior_bits, row.bits_lower,
            Cell(row.bits_truth, interval=_about(row.bits_truth, row.bits_truth_error), why="not all candidates were run"),
            row.bits_upper, worth(row),
        )
        for row in rows
    ]  # fmt: skip
    return Section("Bits that remain", result.meaning, [figure, Table(columns, cells)])


def _about(value: float | None, error: float | None) -> tuple[float, float] | None:
    return None if value is None or error is None else normal(value, error)


def _bands(rows: list[LeakRow]) -> go.Figure:
    """A band a site: floor and ceiling; the truth, or the floor, as a line."""
    figure = figures.empty("noise (rms)", "bits a token")
    several = len({row.defence for row in rows}) > 1
    for index, (site, defence) in enumerate(dict.fromkeys((row.site, row.defence) for row in rows)):
        some = sorted((row for row in rows if (row.site, row.defence) == (site, defence)), key=lambda row: row.noise)
        x, colour = [row.noise for row in some], palette.model_colour(index)
        low, high = [row.bits_lower for row in some], [row.bits_upper for row in some]
        middle = [row.bits_lower if row.bits_truth is None else row.bits_truth for row in some]
        band = {"mode": "lines", "line": {"color": colour, "width": 0.5}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=low, **band)
        figure.add_scatter(x=x, y=high, fill="tonexty", opacity=0.5, **band)
        figure.add_scatter(
            x=x,
            y=middle,
            name=literal(f"{site}, {defence}" if several else site),
            mode="lines+markers",
            line={"color": colour},
            marker={"size": 7},
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


@section("privacy", 13)
def others_known(result: PrivacyResult) -> Section | None:
    """Bits to one who knows all other tokens."""
    rows = [(row, row.others) for row in result.rows if row.others is not None]
    if not rows:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("own bits", "Of a token's own release, those before it known."),
        Column("bits, others known", "Entropy of a token given all the others."), Column("at least", "Proved from below."),
        Column("truth", "Monte Carlo over all candidates."), Column("at most", "Proved from above."),
    ]  # fmt: skip
    cells = [
        (
            row.site, row.defence, row.noise, row.bits_truth, one.prior_bits, one.bits_lower,
            Cell(one.bits_truth, interval=_about(one.bits_truth, one.bits_truth_error)), one.bits_upper,
        )
        for row, one in rows
    ]  # fmt: skip
    lead = (
        f"At {rows[0][1].tokens} positions: what all releases, later ones included, tell of a token to one who knows all other "
        "tokens. The later tokens tell of it, too, so that less may be left to tell. On texts drawn from the prior the sum of "
        "own bits bounds the whole text from below, and these bits with what tokens tell of one another bound it from above."
    )
    return Section("All other tokens known", lead, [Table(columns, cells)])


@section("privacy", 15)
def whole_texts(result: PrivacyResult) -> Section | None:
    """Bits of whole texts, between two runs of a particle filter."""
    if not result.whole:
        return None
    columns: list[Column | str] = [
        "release", Column("defence", text=True), "noise", Column("bits, prior", "−log2 p of the texts, a token."),
        Column("own releases", "The part that each token's own release tells."), Column("at least", "Conditional run."),
        Column("at most", "Free run."), Column("tokens right", "Of a text drawn from what the attacker believes.", percent=True),
    ]  # fmt: skip
    rows = [
        (
            one.site, one.defence, one.noise, one.prior_bits,
            Cell(one.own_bits, interval=_about(one.own_bits, one.own_bits_error)),
            Cell(one.bits_lower, interval=_about(one.bits_lower, one.bits_lower_error)),
            Cell(one.bits_upper, interval=_about(one.bits_upper, one.bits_upper_error)),
            Cell(one.accuracy, interval=one.accuracy_interval),
        )
        for one in result.whole
    ]  # fmt: skip
    first = result.whole[0]
    lead = (
        f"{first.texts} texts of {first.tokens} tokens drawn from the model: what all their releases together tell of the whole "
        f"text, a token. A filter of {first.particles} prefixes bounds it from both sides in expectation, and is the attack."
    )
    return Section("Whole texts", lead, [Table(columns, rows)])


# ---- States from outside: their noise, and what was read through it.


def outside_said(found: OutsideStates) -> str:
    """Their noise and what was read, in a sentence."""
    return (
        f"The states of {found.tokens} tokens carry noise of {found.noise:.2g} rms; through it {found.accuracy:.0%} of the "
        "tokens are read by an attack that knows neither tokens nor noise."
    )


@section("privacy", 5)
def outside(result: PrivacyResult) -> Section | None:
    """What was found of states from outside."""
    found = result.outside
    if found is None:
        return None
    low, high = found.sigma_interval
    rows = [
        ("noise, tokens known", f"{found.sigma:.3g} ({low:.3g} to {high:.3g})"),
        ("noise, as the attack estimates it", f"{found.sigma_read:.3g}"),
        ("noise in rms", f"{found.noise:.3g}"),
        (
            "excess kurtosis",
            "-" if found.kurtosis is None else f"{found.kurtosis:.2f} (Gaussian 0, Laplace 3, uniform −1.2)",
        ),
    ]
    lead = (
        "The noise is estimated together with the tokens; the bits below are those at this noise, taken for Gaussian."
    )
    line = RecoveredLine([RecoveredToken(token, True) for token in found.strings[:500]])
    return Section("The states that were given", lead, [recovered([line]), Facts("In short", rows)])


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
    said = [outside_said(result.outside)] if result.outside is not None else []
    if len({row.defence for row in result.rows}) > 1:
        return " ".join([*said, frontier_said(result)])
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
    """What remains at a setting, of whole texts too where these were counted."""
    whole = next(
        (one for one in result.whole if (one.site, one.noise, one.defence) == (row.site, row.noise, row.defence)), None
    )
    if whole is None:
        return remains(row)
    bits = f"{whole.bits_lower:.2f} to {whole.bits_upper:.2f} of {whole.prior_bits:.2f}"
    return remains(row, f", of whole texts {bits} (± {Z * whole.gap_error:.2f})")


def _range(shares: list[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low} to {high}"
