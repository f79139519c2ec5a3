"""The pages of an inversion and of a privacy report: bits that remain, attacks, defences, and what
a gradient shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go
from rich.text import Text

from headscan.report.kit import (
    Facts,
    Figure,
    Head,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
    table,
)
from headscan.report.kit.figures import empty, lines, mark_level
from headscan.report.kit.parts import Part, facts
from headscan.report.kit.words import clean, literal, named

if TYPE_CHECKING:
    from headscan.inversion.result import InvertResult, PromptInversion
    from headscan.leaks.result import LeakedGradient, LeakRow, PrivacyResult

# ---- Tokens that were found again, right ones plain and wrong ones struck: what the pages of inversions share.

# An output that is equal to the last bit has no logarithm; it is drawn at the least that float32
# resolves.
LEAST = 1e-9


class RecoveredToken(NamedTuple):
    """A token as it was found; `true` is shown behind a wrong one, `title` on pointing at it."""

    found: str
    right: bool
    true: str = ""
    title: str = ""


class RecoveredLine(NamedTuple):
    """A line of tokens, with what is said of it."""

    tokens: Sequence[RecoveredToken]
    verdict: str = ""
    said: str = ""


def recovered(lines: Sequence[RecoveredLine]) -> Raw:
    """The lines on the page, and the first of them in the terminal."""
    shown = Text()
    for line in lines[:20]:
        for token in line.tokens[:300]:
            shown.append(clean(token.found), style="green" if token.right else "bold red").append(
                " "
            )
        shown.append("\n")
    return Raw(
        "recovered.html.j2", context={"lines": lines}, styles=("invert.css",), terminal=shown
    )


VERDICTS = [
    Term(
        "recovered and unique",
        "The tokens give the output, and no other prompt of their length does: every other token "
        "was run at its position, or a bound proves it farther.",
    ),
    Term(
        "recovered, unique among those tried",
        "The tokens give the output; no other that was tried does.",
    ),
    Term("ambiguous", "The tokens give the output, and others do, too, within the tolerance."),
    Term("information absent", "Some token moves no output that was given: no method can find it."),
    Term(
        "not recovered",
        "No tokens were found that give the output; this says nothing of the information.",
    ),
    Term(
        "no token fits",
        "Of states that were given: every token was run, and none gives the first of them, nor "
        "stands out as nearest.",
    ),
    Term(
        "exhaustive",
        "A certificate: at each position every token that may be returned was run under the "
        "prefix found.",
    ),
    Term(
        "bounded",
        "A certificate: the tokens that were not run are proved farther than the tolerance.",
    ),
    Term("sampled", "A certificate: some tokens were run; of the others nothing is known."),
]


@page("invert")
def inversion(result: InvertResult) -> Head:
    if result.token_accuracy is None:
        said = f"{_many(result):,} tokens from states at {result.slice_text}: {result.verdict}."
    else:
        said = (
            f"{100 * result.token_accuracy:.1f} % of the tokens were recovered from "
            f"{result.slice_text}: {result.verdict}."
        )
    return Head([named(result.models[0].name)], said, words=VERDICTS)


@section("invert", 10)
def prompts(result: InvertResult) -> Section:
    said = [" ".join([one.certified, *one.notes]) for one in result.prompts]
    shared = said[0] if len(set(said)) == 1 else ""
    lines = []
    for one, words in zip(result.prompts, said, strict=True):
        true = one.strings or ["?"] * len(one.recovered_strings)
        tokens = [
            RecoveredToken(token, _right(one, place), true[place], one.verdicts[place])
            for place, token in enumerate(one.recovered_strings)
        ]
        lines.append(RecoveredLine(tokens, one.verdict.capitalize(), "" if shared else words))
    lead = (
        "Each prompt as its states give it back; a wrong token is struck and followed by the true "
        "one."
    )
    verdict = [Prose(shared, strong=f"{result.verdict.capitalize()}.")] if shared else []
    return Section("What came back", lead, [recovered(lines), *verdict, _facts(result)])


def _right(prompt: PromptInversion, place: int) -> bool:
    """Whether a token is the true one, or, where that is not known, gives the state."""
    known = prompt.right(place)
    return (
        prompt.verdicts[place] not in ("not recovered", "no token fits") if known is None else known
    )


def _many(result: InvertResult) -> int:
    return sum(len(prompt.recovered) for prompt in result.prompts)


def _facts(result: InvertResult) -> Facts:
    tokens = _many(result)
    proofs = [prompt.certificate for prompt in result.prompts]
    residuals = [one.residual for one in proofs]
    margins = [one.margin for one in proofs if one.margin is not None]
    types = dict.fromkeys(
        f"{one.type}: {one.checked}" if one.checked else one.type for one in proofs
    )
    right = result.token_accuracy
    noise = result.estimated_noise
    rows = [
        ("slice", result.slice_text),
        ("method", f"{result.method}, given {result.given}"),
        ("tokens", f"{tokens}")
        if right is None
        else ("token accuracy", f"{right:.1%} of {tokens} tokens"),
        *([] if noise is None else [("estimated noise", f"{noise:.1e} of the norm")]),
        ("verdict", result.verdict),
        ("certificate", "; ".join(types)),
        (
            "tolerance",
            "; ".join(
                dict.fromkeys(f"{one.tolerance:.1e} (noise {one.noise:.1e})" for one in proofs)
            ),
        ),
        (
            "largest residual",
            "no number" if None in residuals else f"{max(one or 0.0 for one in residuals):.1e}",
        ),
        ("smallest margin", f"{min(margins):.1e}" if margins else "-"),
        (
            "candidates a token",
            f"{sum(prompt.evaluations for prompt in result.prompts) / tokens:.1f}",
        ),
    ]
    return Facts("In short", rows)


@section("invert", 20)
def certificate(result: InvertResult) -> Section:
    figure = Figure(
        "residuals",
        lambda: _residuals(result.prompts[0]),
        "Residual and margin of every token of the first prompt, on a logarithmic scale",
        "First prompt. Relative distance between the output given and that of the token found "
        "(residual), and of the nearest other token compared. A wide gap: the token is certain "
        "among those. An output equal to the last bit is drawn at 10⁻⁹.",
        360,
    )
    lead = "The tokens found are run again; what comes out is compared with what was given."
    return Section("The certificate", lead, [figure, _tokens(result)])


def _residuals(prompt: PromptInversion) -> go.Figure:
    """Residual of the tokens found and margin to the second best, by position; logarithmic."""
    figure = empty("position", "relative distance")
    proof = prompt.certificate
    places = list(range(len(prompt.recovered)))
    for index, (name, values) in enumerate(
        (("token found", proof.residuals), ("second best", proof.margins))
    ):
        if any(value is not None for value in values):
            figure.add_scatter(
                x=places,
                y=[None if value is None else max(value, LEAST) for value in values],
                name=name,
                mode="markers",
                text=[literal(text) for text in prompt.recovered_strings],
                hovertemplate="%{x}: %{text}<br>%{y:.1e}",
                marker={
                    "color": palette.model_colour(index),
                    "symbol": ("circle", "diamond")[index],
                    "size": 8,
                },
            )
    mark_level(figure, proof.tolerance, "tolerance")
    figure.update_xaxes(tickvals=places, ticktext=list(map(str, places)))
    return figure.update_yaxes(type="log", exponentformat="power", dtick=1)


def _tokens(result: InvertResult) -> Table:
    columns: list[Term | str] = [
        "prompt, position",
        "token",
        "found",
        Term(
            "residual",
            "Relative distance of the output of the token found; 0 is equal to the last bit.",
            scientific=True,
        ),
        Term("second best", "The nearest other token that was compared.", scientific=True),
        Term("compared", "Tokens run at this position under the prefix found, itself included."),
        Term("certificate", "What excludes the others: all were run, a bound, or a sample."),
        Term("equivalent", "Other tokens within the tolerance."),
        "verdict",
    ]
    rows = []
    for number, prompt in enumerate(result.prompts[:20]):
        proof = prompt.certificate
        for place, token in enumerate(prompt.recovered_strings):
            true = prompt.strings[place] if prompt.strings else "?"
            proved = (
                proof.residuals[place],
                proof.margins[place],
                proof.compared[place],
                proof.types[place],
            )
            rows.append(
                (
                    f"{number + 1}, {place}",
                    true,
                    token,
                    *proved,
                    len(proof.equivalent[place]),
                    prompt.verdicts[place],
                )
            )
    return Table(columns, rows, where="page")


# ---- The page of a privacy report.

RELEASE = ("site", "defence", "noise")
WORDS = [
    Term(
        "bits a token",
        "Information that the release gives of a token, in the mean: proved from below and from "
        "above, whatever the attack; the truth lies between.",
    ),
    Term(
        "rms",
        "The unit of the noise: the root mean square of the release's coordinates around their "
        "mean.",
    ),
    Term(
        "prior",
        "What the attacker knows of texts before anything leaks; its entropy is what there is to "
        "give away.",
    ),
    Term(
        "posterior attack",
        "Names the likeliest token given release, prior and the true prefix: no attack is better.",
    ),
    Term(
        "ceiling",
        "An accuracy that no attack exceeds, because of the bits (Fano); in the mean over the "
        "prior.",
    ),
]


@page("privacy")
def head(result: PrivacyResult) -> Head:
    words = [] if result.gradient else WORDS
    return Head(
        [named(result.models[0].name)],
        _summary(result),
        words=words,
        alarm=result.verdict == "fail",
    )


def _summary(result: PrivacyResult) -> str:
    """What remains in the release, or what a policy's verdict is, in one sentence."""
    if result.verdict is not None:
        rows = sorted(result.limits, key=lambda row: list(VERDICT_WORDS).index(row.verdict))
        told = [
            f"{row.limit.replace('_', ' ')} {VERDICT_WORDS[row.verdict]} the limit of "
            f"{row.at_most:g}"
            for row in rows
        ]
        return f"{result.verdict.capitalize()}: {'; '.join(told)}."
    if result.gradient is not None:
        return (
            f"The gradient of one training step gives away {100 * result.gradient.recall:.1f} % "
            "of the tokens of its batch."
        )
    if len({row.defence for row in result.rows}) > 1:
        return _cheapest(result)
    sentences = []
    if bounded := [row for row in result.rows if row.bits_lower is not None and row.noise > 0]:
        sentences.append(_remains(min(bounded, key=lambda row: row.bits_lower or 0.0)))
    if silent := [row for row in result.rows if row.noise == 0]:
        worst = max(silent, key=lambda row: row.site)
        how = (
            f"as {worst.defence}"
            if any(row.bits_lower is not None for row in silent)
            else "without noise"
        )
        ends = [f"{bound(row.text_accuracy for row in silent):.0%}" for bound in (min, max)]
        verdicts = ", ".join(dict.fromkeys(row.verdict for row in silent if row.verdict))
        shares = " to ".join(dict.fromkeys(ends))
        by = (
            f"by the attack '{worst.attack}'"
            if "," in worst.attack
            else f"by {worst.attack} search"
        )
        said = f" ({verdicts})" if verdicts else ""
        sentences.append(f"Released {how}, {shares} of the tokens are recovered {by}{said}.")
    return " ".join(sentences)


def _remains(row: LeakRow) -> str:
    """At this setting at least a of b bits remain, and the model loses c nats."""
    low = row.bits_lower or 0.0
    high = row.bits_upper or 0.0
    of = row.prior_bits or 0.0
    lost = (
        "" if row.loss_added is None else f", and the model loses {row.loss_added:.2f} nats a token"
    )
    lost = (
        lost if row.retrieval is None else f", and {row.retrieval:.0%} of passages are still found"
    )
    noise = f"noise {row.noise:g}" if row.noise else "no noise"
    setting = f"At {noise}" if row.defence == "none" else f"With {row.defence} and {noise}"
    return (
        f"{setting} at {row.site}, at least {low:.2f} of {of:.2f} bits a token leak (at most "
        f"{high:.2f}){lost}."
    )


def _cheapest(result: PrivacyResult) -> str:
    """The cheapest setting that is proved to halve the bits, or that none is."""
    rows = [row for row in result.rows if row.bits_upper is not None]
    if not rows:
        return "No setting has bits between bounds."
    if safe := [row for row in rows if (row.bits_upper or 0.0) <= (row.prior_bits or 0.0) / 2]:
        row = min(safe, key=lambda one: float("inf") if (cost := _cost(one)) is None else cost)
        return (
            f"{_remains(row)} No cheaper setting tried is proved to leave half of the bits or "
            "fewer."
        )
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
    lost = (
        "nats a token that the model loses"
        if rows[0].retrieval is None
        else "share of passages no longer found"
    )
    figure = Figure(
        "frontier",
        lambda: _frontier(rows, lost),
        f"Bits a token that remain against {lost}, one line a defence, one point a noise",
        f"Bits a token that remain, by Monte Carlo or at most, against {lost}; one line a defence "
        "at a site, one point a noise. The nearer to the lower left, the better the defence.",
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
        _worth(rows),
    )
    lead = f"What protects most at least cost, the fewest bits first. {result.what}"
    return Section("Defences on one frontier", lead, [figure, table(ranked, *columns)])


def _frontier(rows: list[LeakRow], lost: str) -> go.Figure:
    series = {}
    for defence, site in dict.fromkeys((row.defence, row.site) for row in rows):
        some = [row for row in rows if (row.defence, row.site) == (defence, site)]
        some.sort(key=lambda row: _cost(row) or 0.0)
        series[f"{defence}, {site}"] = [_cost(row) for row in some], [_middle(row) for row in some]
    return lines(series, lost, "bits a token that remain", zero=True)


def _middle(row: LeakRow) -> float | None:
    """The truth by Monte Carlo, or the proved floor where there is none."""
    return row.bits_lower if row.bits_truth is None else row.bits_truth


@section("privacy", 10)
def bits(result: PrivacyResult) -> Section | None:
    rows = [row for row in result.rows if row.bits_lower is not None]
    if not rows:
        return None
    figure = Figure(
        "bits",
        lambda: _bands(rows),
        "Bits a token that remain, between the proved bounds, by noise, one band a site",
        "Bits a token by noise. Lines: the truth by Monte Carlo, or the proved floor where not "
        "all candidates were run; bands: from the proved floor to the proved ceiling. "
        f"{result.what}",
        400,
    )
    shown = table(
        rows, *RELEASE, "prior_bits", "bits_lower", "bits_truth", "bits_upper", _worth(rows)
    )
    curve = len({row.noise for row in rows}) > 1  # of one noise there is none to draw
    return Section(
        "Bits that remain",
        result.meaning,
        [figure, shown] if curve else [shown, Prose(result.what)],
    )


def _bands(rows: list[LeakRow]) -> go.Figure:
    """A band a site: floor and ceiling; the truth, or the floor, as a line."""
    figure = empty("noise (rms)", "bits a token")
    several = len({row.defence for row in rows}) > 1
    for index, (site, defence) in enumerate(dict.fromkeys((row.site, row.defence) for row in rows)):
        some = sorted(
            (row for row in rows if (row.site, row.defence) == (site, defence)),
            key=attrgetter("noise"),
        )
        x = [row.noise for row in some]
        colour = palette.model_colour(index)
        band = {
            "mode": "lines",
            "line": {"color": colour, "width": 0.5},
            "showlegend": False,
            "hoverinfo": "skip",
        }
        figure.add_scatter(x=x, y=[row.bits_lower for row in some], **band)
        figure.add_scatter(
            x=x, y=[row.bits_upper for row in some], fill="tonexty", opacity=0.5, **band
        )
        name = literal(f"{site}, {defence}" if several else site)
        middle = {
            "y": [_middle(row) for row in some],
            "line": {"color": colour},
            "marker": {"size": 7},
        }
        figure.add_scatter(x=x, name=name, mode="lines+markers", **middle)
    return figure.update_yaxes(rangemode="tozero")


@section("privacy", 20)
def accuracy(result: PrivacyResult) -> Section | None:
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
        "Share of tokens named by the attack, by site, one line a noise",
        "Share of tokens that the attack names, by site.",
        340,
    )
    lead = (
        "The attacker has the model and knows how the release was made, with its noise and defence."
    )
    return Section("Attacks", lead, [figure, table(result.rows, *RELEASE, *columns)])


def _accuracy(rows: list[LeakRow]) -> go.Figure:
    series: dict[str, tuple[list[str], list[float]]] = {}
    for row in rows:
        name = f"noise {row.noise:g}" if row.defence == "none" else f"{row.defence}, {row.noise:g}"
        sites, shares = series.setdefault(name, ([], []))
        sites.append(row.site)
        shares.append(row.attack_accuracy)
    return lines(series, "", "share of tokens named").update_yaxes(
        range=[-0.03, 1.05], tickformat=".0%"
    )


# ---- A policy's limits, worst positions, and tests beside the bits.

VERDICT_WORDS = {
    "fail": "above",
    "cannot be shown": "shown neither within nor above",
    "pass": "within",
}


@section("privacy", 4)
def limits(result: PrivacyResult) -> Section | None:
    """The receipt of a policy: limits, and what was not examined."""
    if result.verdict is None:
        return None
    lead = (
        "Pass: shown to be within the limit. Fail: shown to be above it. Cannot be shown: the "
        "evidence does not decide."
    )
    text = result.protocol.text
    shown = table(result.limits, "limit", "at_most", "value", "verdict", "evidence", title="Limits")
    hashes = [
        (f"{model.name}: {file}", sha)
        for model in result.models
        for file, sha in model.sha256.items()
    ]
    hashes += [("text", text.sha256)] if text is not None and text.sha256 else []
    left = Facts(
        "Not examined",
        [(f"{number}.", one) for number, one in enumerate(result.not_examined, 1)],
        where="page",
    )
    return Section("Receipt", lead, [shown, left, Facts("SHA-256", hashes, where="page")])


@section("privacy", 12)
def worst(result: PrivacyResult) -> Section | None:
    """The position that tells most, beside the mean."""
    rows = [row for row in result.rows if row.worst_upper is not None]
    lead = (
        "A mean hides single tokens: a name may be told whole where the mean is low. Of the "
        "positions looked at."
    )
    shown = table(
        rows,
        *RELEASE,
        "tokens",
        "bits_upper",
        "worst_lower",
        "worst_upper",
        title="Worst position",
        where="page",
    )
    return Section("Worst position", lead, [shown]) if rows else None


@section("privacy", 24)
def trials(result: PrivacyResult) -> Section | None:
    """Tests beside the bits, a table each."""
    tests = dict.fromkeys(row.test for row in result.trials)
    columns = ("setting", "site", "defence", "quantity", "value", "count", "knows")
    parts = [
        table([row for row in result.trials if row.test == test], *columns, title=test.capitalize())
        for test in tests
    ]
    return (
        Section(
            "Tests",
            "Attacks by name, margins and membership; each number with its interval.",
            parts,
        )
        if parts
        else None
    )


# ---- What a leaked gradient shows.


@section("privacy", 30)
def found(result: PrivacyResult) -> Section | None:
    """The tokens in a gradient's span, the texts put in order, and the batch."""
    if (shown := result.gradient) is None:
        return None
    tokens = [
        RecoveredToken(
            one.string,
            one.in_batch,
            title=f"{one.distance:.1e}"
            if one.in_batch
            else f"{'at another position' if one.elsewhere else 'not'} in the batch",
        )
        for one in shown.tokens[:500]
    ]
    figure = Figure(
        "distances",
        lambda: _distances(shown),
        "Distance of every listed token from the span of the gradient, on a logarithmic scale",
        "Relative distance of each listed token's input vector from the span of the gradient. The "
        "dotted line is the nearest token that is not listed: the wider the gap, the surer the "
        "list.",
    )
    lead = (
        "The gradient of a linear map lies in the span of its inputs. A token is listed if its "
        "input vector lies in that span."
    )
    short = [
        ("batch", f"{len(shown.batch)} texts of {len(shown.batch[0])} tokens"),
        ("rank of the gradient", f"{shown.rank} of {shown.width}"),
        *facts(
            shown, "recall", "precision", "precision_anywhere", "with_positions", "nearest_other"
        ),
    ]
    parts: list[Part] = [
        recovered([RecoveredLine(tokens)]),
        Prose(shown.certified),
        Facts("In short", short),
    ]
    parts += [figure, *_beginnings(shown)]
    batch = [
        RecoveredLine([RecoveredToken(token, True) for token in row])
        for row in shown.batch_strings[:50]
    ]
    parts += [
        Prose("The batch, for comparison: nothing of it was used", heading=True),
        recovered(batch),
    ]
    return Section("What the step shows", lead, parts)


def _distances(shown: LeakedGradient) -> go.Figure:
    """Distance of every listed token from the gradient's span, logarithmic; the nearest token left
    out is a line.
    """
    figure = empty("tokens found", "distance from the span")
    for index, (there, name) in enumerate(
        ((True, "in the batch there"), (False, "not in the batch, or elsewhere"))
    ):
        rows = [(number, one) for number, one in enumerate(shown.tokens) if one.in_batch is there]
        if rows:
            figure.add_scatter(
                x=[number for number, _ in rows],
                y=[max(one.distance, LEAST) for _, one in rows],
                text=[literal(one.string) for _, one in rows],
                name=name,
                mode="markers",
                marker={
                    "color": palette.model_colour(index),
                    "symbol": ("circle", "x")[index],
                    "size": 7,
                },
                hovertemplate="%{text}<br>%{y:.1e}",
            )
    if shown.nearest_other:
        mark_level(figure, shown.nearest_other, "nearest token left out")
    return figure.update_yaxes(type="log", exponentformat="power", dtick=1)


def _beginnings(shown: LeakedGradient) -> list[Part]:
    """The texts that the second stage puts in order."""
    if shown.texts_found is None:
        return []
    found = [
        RecoveredToken(one.string, one.in_batch, title=f"{one.distance:.1e}")
        for one in shown.texts[:50]
    ]
    read = [recovered([RecoveredLine([token]) for token in found])] if found else []
    right = sum(one.in_batch for one in shown.texts)
    told = (
        "Block 1's inputs depend on all tokens before: a beginning that was in the batch lies in "
        "the span of its gradient "
    )
    told += (
        f"(rank {shown.second_rank} of {shown.width}). {shown.texts_found:.0%} of the batch's "
        "texts are read in their order, "
    )
    told += f"all but their last tokens; of the {len(shown.texts)} read, {right} were there."
    return [Prose("Texts in order", heading=True), Prose(told), *read]
