"""The page of an inversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.text import Text

from headscan.report.kit import Facts, Figure, Head, Prose, Raw, Section, Table, Term, figures, page, palette, section
from headscan.report.kit.words import clean, literal, named

if TYPE_CHECKING:
    from headscan.inversion.result import InvertResult, PromptInversion


# ---- Tokens that were found again, right ones plain and wrong ones struck: what the pages of inversions share.

# An output that is equal to the last bit has no logarithm; it is drawn at the least that float32 resolves.
LEAST = 1e-9


@dataclass(frozen=True)
class RecoveredToken:
    """A token as it was found; `true` is shown behind a wrong one, `title` on pointing at it."""

    found: str
    right: bool
    true: str = ""
    title: str = ""


@dataclass(frozen=True)
class RecoveredLine:
    """A line of tokens, with what is said of it."""

    tokens: Sequence[RecoveredToken]
    verdict: str = ""
    said: str = ""


def recovered(lines: Sequence[RecoveredLine]) -> Raw:
    """The lines on the page, and the first of them in the terminal."""
    shown = Text()
    for line in lines[:20]:
        for token in line.tokens[:300]:
            shown.append(clean(token.found), style="green" if token.right else "bold red")
            shown.append(" ")
        shown.append("\n")
    return Raw("recovered.html.j2", context={"lines": lines}, styles=("invert.css",), terminal=shown)


VERDICTS = [
    Term(
        "recovered and unique",
        "The tokens give the output, and no other prompt of their length does: every other token was run at its position, or "
        "a bound proves it farther.",
    ),
    Term("recovered, unique among those tried", "The tokens give the output; no other that was tried does."),
    Term("ambiguous", "The tokens give the output, and others do, too, within the tolerance."),
    Term("information absent", "Some token moves no output that was given: no method can find it."),
    Term("not recovered", "No tokens were found that give the output; this says nothing of the information."),
    Term(
        "no token fits",
        "Of states that were given: every token was run, and none gives the first of them, nor stands out as nearest.",
    ),
    Term(
        "exhaustive", "A certificate: at each position every token that may be returned was run under the prefix found."
    ),
    Term("bounded", "A certificate: the tokens that were not run are proved farther than the tolerance."),
    Term("sampled", "A certificate: some tokens were run; of the others nothing is known."),
]


@page("invert")
def head(result: InvertResult) -> Head:
    """How much came back, from where."""
    if result.token_accuracy is None:
        said = f"{_many(result):,} tokens from states at {result.slice_text}: {result.verdict}."
    else:
        said = f"{100 * result.token_accuracy:.1f} % of the tokens were found again from {result.slice_text}: {result.verdict}."
    return Head([named(result.models[0].name)], said, words=VERDICTS)


@section("invert", 10)
def prompts(result: InvertResult) -> Section:
    """Every prompt, token by token."""
    said = [" ".join([one.certified, *one.notes]) for one in result.prompts]
    shared = said[0] if len(set(said)) == 1 else ""
    lines = [
        RecoveredLine(
            [
                RecoveredToken(token, _right(one, place), one.strings[place] if one.strings else "?", one.verdicts[place])
                for place, token in enumerate(one.recovered_strings)
            ],
            one.verdict.capitalize(), "" if shared else words,
        )
        for one, words in zip(result.prompts, said, strict=True)
    ]  # fmt: skip
    lead = "Each prompt as its states give it back; a wrong token is struck and followed by the true one."
    verdict = [Prose(shared, strong=f"{result.verdict.capitalize()}.")] if shared else []
    return Section("What came back", lead, [recovered(lines), *verdict, _facts(result)])


def _right(prompt: PromptInversion, place: int) -> bool:
    """Whether a token is the true one, or, where that is not known, gives the state."""
    known = prompt.right(place)
    return prompt.verdicts[place] not in ("not recovered", "no token fits") if known is None else known


def _many(result: InvertResult) -> int:
    return sum(len(prompt.recovered) for prompt in result.prompts)


def _facts(result: InvertResult) -> Facts:
    tokens = _many(result)
    proofs = [prompt.certificate for prompt in result.prompts]
    residuals = [one.residual for one in proofs]
    margins = [one.margin for one in proofs if one.margin is not None]
    types = dict.fromkeys(f"{one.type}: {one.checked}" if one.checked else one.type for one in proofs)
    right = f"{result.token_accuracy:.1%} of {tokens} tokens" if result.token_accuracy is not None else ""
    noise = result.estimated_noise
    rows = [
        ("slice", result.slice_text),
        ("method", f"{result.method}, given {result.given}"),
        ("token accuracy", right) if right else ("tokens", f"{tokens}"),
        *([] if noise is None else [("estimated noise", f"{noise:.1e} of the norm")]),
        ("verdict", result.verdict),
        ("certificate", "; ".join(types)),
        ("tolerance", "; ".join(dict.fromkeys(f"{one.tolerance:.1e} (noise {one.noise:.1e})" for one in proofs))),
        ("largest residual", "no number" if None in residuals else f"{max(one or 0.0 for one in residuals):.1e}"),
        ("smallest margin", f"{min(margins):.1e}" if margins else "-"),
        ("candidates a token", f"{sum(prompt.evaluations for prompt in result.prompts) / tokens:.1f}"),
    ]
    return Facts("In short", rows)


@section("invert", 20)
def certificate(result: InvertResult) -> Section:
    """Residuals and margins."""
    figure = Figure(
        "residuals", lambda: _residuals(result.prompts[0]),
        "Residual and margin of every token of the first prompt, on a logarithmic scale",
        "First prompt. Relative distance between the output given and that of the token found (residual), and of the "
        "nearest other token compared. A wide gap: the token is certain among those. An output equal to the last bit is drawn at "
        "10⁻⁹.", 360,
    )  # fmt: skip
    lead = "The tokens found are run again; what comes out is compared with what was given."
    return Section("The certificate", lead, [figure, _tokens(result)])


def _residuals(prompt: PromptInversion) -> go.Figure:
    """Residual of the tokens found and margin to the second best, by position; logarithmic."""
    figure = figures.empty("position", "relative distance")
    proof, places = prompt.certificate, list(range(len(prompt.recovered)))
    for index, (name, values) in enumerate((("token found", proof.residuals), ("second best", proof.margins))):
        if any(value is not None for value in values):
            figure.add_scatter(
                x=places, y=[None if value is None else max(value, LEAST) for value in values], name=name, mode="markers",
                text=[literal(text) for text in prompt.recovered_strings],
                marker={"color": palette.model_colour(index), "symbol": ("circle", "diamond")[index], "size": 8},
                hovertemplate="%{x}: %{text}<br>%{y:.1e}",
            )  # fmt: skip
    figures.mark_level(figure, proof.tolerance, "tolerance")
    figure.update_xaxes(tickvals=places, ticktext=[str(place) for place in places])
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    return figure


def _tokens(result: InvertResult) -> Table:
    """Every token with its certificate."""
    columns: list[Term | str] = [
        "prompt, position", "token", "found",
        Term("residual", "Relative distance of the output of the token found; 0 is equal to the last bit.", scientific=True),
        Term("second best", "The nearest other token that was compared.", scientific=True),
        Term("compared", "Tokens run at this position under the prefix found, itself included."),
        Term("certificate", "What excludes the others: all were run, a bound, or a sample."),
        Term("equivalent", "Other tokens within the tolerance."), "verdict",
    ]  # fmt: skip
    rows = []
    for number, prompt in enumerate(result.prompts[:20]):
        proof = prompt.certificate
        for place, token in enumerate(prompt.recovered_strings):
            rows.append(
                (
                    f"{number + 1}, {place}", prompt.strings[place] if prompt.strings else "?", token,
                    proof.residuals[place], proof.margins[place], proof.compared[place], proof.types[place],
                    len(proof.equivalent[place]), prompt.verdicts[place],
                )
            )  # fmt: skip
    return Table(columns, rows, where="page")
