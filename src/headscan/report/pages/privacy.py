"""The page of a privacy report: bits that remain, attacks, defences, and a policy's receipt.

Where the release is a gradient, `privacy_gradient` has its section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Facts,
    Figure,
    Head,
    Prose,
    Section,
    Term,
    page,
    palette,
    section,
    table,
)
from headscan.report.kit.figures import bars, empty, lines
from headscan.report.kit.parts import Part
from headscan.report.kit.words import literal, named

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, PrivacyResult
    from headscan.run import Interval

RELEASE_COLUMNS = ("site", "defence", "noise")
GLOSSARY = [
    Term(
        "bits a token",
        "Information that the release gives of a token, in the mean: with proved lower and upper "
        "bounds that hold for every attack.",
    ),
    Term(
        "rms",
        "The unit of the noise: the root mean square of the release's coordinates around their "
        "mean.",
    ),
    Term(
        "prior",
        "The attacker's knowledge of texts before anything leaks; its entropy is the most that can "
        "leak.",
    ),
    Term(
        "posterior attack",
        "Names the likeliest token given release, prior and the true prefix: no attack is better.",
    ),
    Term(
        "upper bound of accuracy",
        "An accuracy that no attack exceeds, because of the bits (Fano); in the mean over the "
        "prior.",
    ),
]
HALF = 0.5
"""From this share of tokens or bits on, a release is called readable."""
FEW_BITS = 0.1
"""Up to this share of the bits, a release is called protected."""
VERDICT_WORDS = {
    "fail": "above",
    "cannot be shown": "not shown to be within or above",
    "pass": "within",
}
"""Where a value lies beside its limit, by verdict; the worst first."""


@page("privacy")
def head(result: PrivacyResult) -> Head:
    """Return what remains in the release, or the verdict of a policy."""
    return Head(
        [named(result.models[0].name)],
        _summary(result),
        conclusion=_conclusion(result),
        glossary=[] if result.gradient else GLOSSARY,
        alarm=result.verdict == "fail",
    )


def _summary(result: PrivacyResult) -> str:
    if result.verdict is not None:
        return _policy_summary(result)
    if result.gradient is not None:
        share = 100 * result.gradient.recall
        return (
            f"The gradient of one training step gives away {share:.1f} % of the tokens of its "
            "batch."
        )
    if len({row.defence for row in result.rows}) > 1:
        return _cheapest_defence(result)
    sentences = []
    noisy = [row for row in result.rows if row.bits_lower is not None and row.noise > 0]
    if noisy:
        row_with_least = min(noisy, key=lambda row: row.bits_lower or 0.0)
        sentences.append(_remaining_bits(row_with_least))
    noiseless = [row for row in result.rows if row.noise == 0]
    if noiseless:
        sentences.append(_recovered_share(noiseless))
    return " ".join(sentences)


def _conclusion(result: PrivacyResult) -> str:
    """Say how the release is to be treated, and what to try next; '' of a policy's receipt."""
    if result.verdict is not None:
        return ""
    if result.gradient is not None:
        if result.gradient.recall < HALF:
            return "Other attacks may find more: a gradient is not shown to be safe by this one."
        return "Treat such a gradient as the text itself: average it over more texts, or add noise."
    read = [row for row in result.rows if row.noise == 0 and row.text_accuracy >= HALF]
    noisy = [row for row in result.rows if row.noise > 0 and row.bits_upper is not None]
    sentences = []
    if read:
        sentences.append(
            "Treat this release like the text itself: whoever has it and the model can read it."
        )
    if noisy:
        sentences.append(_what_noise_does(noisy))
    elif read:
        sentences.append("Try --noise 0.5,1,2 or --defence to see what protects it.")
    return " ".join(sentences)


def _what_noise_does(rows: list[LeakRow]) -> str:
    """Say if the most noise that was tried is shown to protect the text."""
    row = max(rows, key=lambda row: row.noise)
    prior = row.prior_bits or 0.0
    if (row.bits_lower or 0.0) >= HALF * prior:
        return f"Noise {row.noise:g} does not protect it: try more noise, or another --defence."
    if (row.bits_upper or 0.0) <= FEW_BITS * prior:
        return f"Noise {row.noise:g} is shown to leave at most {FEW_BITS:.0%} of the bits."
    return (
        f"Noise {row.noise:g} removes part of it, and the bounds do not show that little is left: "
        "try more noise."
    )


def _policy_summary(result: PrivacyResult) -> str:
    """Return the verdict, and where each value lies beside its limit, the worst first."""
    verdicts = list(VERDICT_WORDS)
    rows = sorted(result.limits, key=lambda row: verdicts.index(row.verdict))
    phrases = []
    for row in rows:
        name = row.limit.replace("_", " ")
        phrases.append(f"{name} {VERDICT_WORDS[row.verdict]} the limit of {row.at_most:g}")
    return f"{str(result.verdict).capitalize()}: {'; '.join(phrases)}."


def _recovered_share(rows: Sequence[LeakRow]) -> str:
    """Say which share of the tokens is recovered from a release without noise, and by what."""
    row = max(rows, key=lambda row: row.site)
    has_bits = any(row.bits_lower is not None for row in rows)
    release = f"as {row.defence}" if has_bits else "without noise"
    accuracies = [row.text_accuracy for row in rows]
    ends = [f"{min(accuracies):.0%}", f"{max(accuracies):.0%}"]
    shares = " to ".join(dict.fromkeys(ends))
    attack = f"the attack '{row.attack}'" if "," in row.attack else f"{row.attack} search"
    verdicts = ", ".join(dict.fromkeys(row.verdict for row in rows if row.verdict))
    remark = f" ({verdicts})" if verdicts else ""
    return f"Released {release}, {shares} of the tokens are recovered by {attack}{remark}."


def _remaining_bits(row: LeakRow) -> str:
    """Say that at this setting at least a of b bits remain, and what it costs."""
    cost = ""
    if row.retrieval is not None:
        cost = f", and {row.retrieval:.0%} of passages are still found"
    elif row.loss_added is not None:
        cost = f", and the model loses {row.loss_added:.2f} nats a token"
    noise = f"noise {row.noise:g}" if row.noise else "no noise"
    setting = f"At {noise}" if row.defence == "none" else f"With {row.defence} and {noise}"
    return (
        f"{setting} at {row.site}, at least {row.bits_lower or 0.0:.2f} of "
        f"{row.prior_bits or 0.0:.2f} bits a token leak (at most {row.bits_upper or 0.0:.2f})"
        f"{cost}."
    )


def _cheapest_defence(result: PrivacyResult) -> str:
    """Name the cheapest setting that is proved to halve the bits, or say that none is."""
    rows = [row for row in result.rows if row.bits_upper is not None]
    if not rows:
        return "No setting has bits between bounds."
    halving = [row for row in rows if (row.bits_upper or 0.0) <= (row.prior_bits or 0.0) / 2]
    if not halving:
        row = min(rows, key=lambda row: row.bits_upper or 0.0)
        return (
            f"No setting tried is proved to leave half of the bits or fewer. {_remaining_bits(row)}"
        )
    row = min(halving, key=_cost_or_infinite)
    return (
        f"{_remaining_bits(row)} No cheaper setting tried is proved to leave half of the bits or "
        "fewer."
    )


def _cost(row: LeakRow) -> float | None:
    """Return what a setting costs: the share of passages that are lost, or the loss added."""
    return row.loss_added if row.retrieval is None else 1 - row.retrieval


def _cost_or_infinite(row: LeakRow) -> float:
    cost = _cost(row)
    return float("inf") if cost is None else cost


def _usefulness_column(rows: Sequence[LeakRow]) -> str:
    """Return the column that says what a setting leaves of the release's use."""
    return "loss_added" if rows[0].retrieval is None else "retrieval"


@section("privacy", 4)
def limits(result: PrivacyResult) -> Section | None:
    """Return the receipt of a policy: limits, what was not examined, and hashes."""
    if result.verdict is None:
        return None
    lead = (
        "Pass: shown to be within the limit. Fail: shown to be above it. Cannot be shown: the "
        "evidence does not decide."
    )
    columns = ("limit", "at_most", "value", "verdict", "evidence")
    not_examined = [(f"{number}.", text) for number, text in enumerate(result.not_examined, 1)]
    parts: list[Part] = [
        table(result.limits, *columns, title="Limits"),
        Facts("Not examined", not_examined, where="page"),
        Facts("SHA-256", _hashes(result), where="page"),
    ]
    return Section("Receipt", lead, parts)


def _hashes(result: PrivacyResult) -> list[tuple[str, str]]:
    """Return the hash of each file of the models, and of the text."""
    hashes = []
    for model in result.models:
        for file, digest in model.sha256.items():
            hashes.append((f"{model.name}: {file}", digest))
    text = result.protocol.text
    if text is not None and text.sha256:
        hashes.append(("text", text.sha256))
    return hashes


@section("privacy", 8)
def frontier(result: PrivacyResult) -> Section | None:
    """Return bits against what a setting costs, one line a defence; None for one defence."""
    rows = [row for row in result.rows if row.bits_upper is not None and _cost(row) is not None]
    if len({row.defence for row in rows}) < 2:
        return None
    cost_title = "share of passages no longer found"
    if rows[0].retrieval is None:
        cost_title = "nats a token that the model loses"
    figure = Figure(
        "frontier",
        lambda: _frontier(rows, cost_title),
        f"Bits a token that remain against {cost_title}, one line a defence, one point a noise",
        f"Bits a token that remain, by Monte Carlo or at most, against {cost_title}; one line a "
        "defence at a site, one point a noise. The nearer to the lower left, the better the "
        "defence.",
        420,
    )
    ranked = sorted(rows, key=lambda row: (row.bits_upper or 0.0, _cost(row) or 0.0))
    columns = (
        "defence",
        "site",
        "noise",
        "bits_lower",
        "bits_upper",
        "prior_bits",
        "attack_accuracy",
        _usefulness_column(rows),
    )
    lead = f"The table ranks the settings, the fewest bits first. {result.what}"
    return Section("Defences on one frontier", lead, [figure, table(ranked, *columns)])


def _frontier(rows: list[LeakRow], cost_title: str) -> go.Figure:
    series = {}
    for defence, site in dict.fromkeys((row.defence, row.site) for row in rows):
        line = [row for row in rows if row.defence == defence and row.site == site]
        line.sort(key=lambda row: _cost(row) or 0.0)
        costs = [_cost(row) for row in line]
        series[f"{defence}, {site}"] = (costs, [_truth_or_floor(row) for row in line])
    return lines(series, cost_title, "bits a token that remain", zero=True)


def _truth_or_floor(row: LeakRow) -> float | None:
    """Return the truth by Monte Carlo, or the proved floor where it is not known."""
    return row.bits_lower if row.bits_truth is None else row.bits_truth


@section("privacy", 10)
def bits(result: PrivacyResult) -> Section | None:
    """Return the bits that remain at each noise; None where no bounds are known."""
    rows = [row for row in result.rows if row.bits_lower is not None]
    if not rows:
        return None
    columns = ("prior_bits", "bits_lower", "bits_truth", "bits_upper", _usefulness_column(rows))
    numbers = table(rows, *RELEASE_COLUMNS, *columns)
    if len({row.noise for row in rows}) == 1:
        return Section("Bits that remain", result.meaning, [numbers, Prose(result.what)])
    exact = ""
    if any(row.noise == 0 for row in result.rows):
        exact = " Without noise the release is searched exactly: see the attacks."
    figure = Figure(
        "bits",
        lambda: _bands(rows),
        "Bits a token that remain, between the proved bounds, by noise, one band a site",
        "Bits a token by noise. Lines: the Monte Carlo estimate, or the lower bound where "
        "not all candidates were run; bands: from the lower to the upper bound. "
        f"{result.what}{exact}",
        400,
    )
    return Section("Bits that remain", result.meaning, [figure, numbers])


def _bands(rows: list[LeakRow]) -> go.Figure:
    """Return a band a site from floor to ceiling, and a line for the truth, or the floor."""
    figure = empty("noise (rms)", "bits a token")
    several = len({row.defence for row in rows}) > 1
    for index, (site, defence) in enumerate(dict.fromkeys((row.site, row.defence) for row in rows)):
        line = [row for row in rows if row.site == site and row.defence == defence]
        line.sort(key=lambda row: row.noise)
        noises = [row.noise for row in line]
        colour = palette.model_colour(index)
        edge = {
            "mode": "lines",
            "line": {"color": colour, "width": 0.5},
            "showlegend": False,
            "hoverinfo": "skip",
        }
        ceiling = [row.bits_upper for row in line]
        figure.add_scatter(x=noises, y=[row.bits_lower for row in line], **edge)
        figure.add_scatter(x=noises, y=ceiling, fill="tonexty", opacity=0.5, **edge)
        figure.add_scatter(
            x=noises,
            y=[_truth_or_floor(row) for row in line],
            name=literal(f"{site}, {defence}" if several else site),
            mode="lines+markers",
            line={"color": colour},
            marker={"size": 7},
        )
    return figure.update_yaxes(rangemode="tozero")


@section("privacy", 12)
def worst(result: PrivacyResult) -> Section | None:
    """Return the position that tells most, beside the mean; None where it was not looked for."""
    rows = [row for row in result.rows if row.worst_upper is not None]
    if not rows:
        return None
    lead = (
        "A mean hides single tokens: a name may leak whole where the mean is low. The worst "
        "position is the worst of those that were examined."
    )
    columns = ("tokens", "bits_upper", "worst_lower", "worst_upper")
    numbers = table(rows, *RELEASE_COLUMNS, *columns, title="Worst position", where="page")
    return Section("Worst position", lead, [numbers])


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
    """Return the share of tokens that the attack names at each site; None for a gradient."""
    if result.gradient is not None:
        return None
    columns = (
        "attack",
        "attack_accuracy",
        "attack_accuracy_upper",
        "text_accuracy",
        "verdict",
        "certificate",
    )
    figure = Figure(
        "accuracy",
        lambda: _accuracy(result.rows),
        "Accuracy of the attack, by site and noise",
        "Accuracy of the attack: share of tokens that it recovers, by site and noise.",
        340 if len({row.site for row in result.rows}) > 1 else 100 + 40 * len(result.rows),
    )
    lead = (
        "The attacker has the model and knows how the release was made, with its noise and defence."
    )
    return Section("Attacks", lead, [figure, table(result.rows, *RELEASE_COLUMNS, *columns)])


def _accuracy(rows: list[LeakRow]) -> go.Figure:
    if len({row.site for row in rows}) == 1:
        names = [f"{_setting(row)}: {row.attack}" for row in rows]
        figure = bars(names, [row.attack_accuracy for row in rows], "share of tokens named", 1.0)
        return figure.update_xaxes(tickformat=".0%").update_layout(margin_r=30)
    series: dict[str, tuple[list[str], list[float], list[Interval]]] = {}
    for row in rows:
        sites, shares, intervals = series.setdefault(_setting(row), ([], [], []))
        sites.append(row.site)
        shares.append(row.attack_accuracy)
        intervals.append(row.attack_accuracy_interval)
    figure = lines(series, "", "accuracy of the attack")
    return figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")


def _setting(row: LeakRow) -> str:
    """Return the noise and the defence of a row in a few words."""
    return f"noise {row.noise:g}" if row.defence == "none" else f"{row.defence}, {row.noise:g}"


@section("privacy", 24)
def trials(result: PrivacyResult) -> Section | None:
    """Return the tests beside the bits, a table each; None where there are none."""
    columns = ("setting", "site", "defence", "quantity", "value", "count", "knows")
    tables = []
    for test in dict.fromkeys(row.test for row in result.trials):
        rows = [row for row in result.trials if row.test == test]
        tables.append(table(rows, *columns, title=test.capitalize()))
    if not tables:
        return None
    lead = "The tables have attacks by name, margins and membership, each number with its interval."
    return Section("Tests", lead, tables)
