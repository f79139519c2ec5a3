"""The page of an inversion: the tokens that were found, and what certifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Facts, Figure, Head, Prose, Section, Table, Term, page, section
from headscan.report.kit.figures import mark_level
from headscan.report.kit.parts import Part
from headscan.report.kit.words import named
from headscan.report.pages.recovered_tokens import (
    Dots,
    RecoveredLine,
    RecoveredToken,
    add_dots,
    log_distances,
    recovered,
)

if TYPE_CHECKING:
    from headscan.inversion.result import InvertResult, PromptInversion

NOT_FOUND = ("not recovered", "no token fits")
MOST_PROMPTS = 20  # in the table of tokens

VERDICTS = [
    Term(
        "recovered and unique",
        "The tokens give the output, and no other prompt of their length does: every other token "
        "was run at its position, or a bound proves it farther.",
    ),
    Term(
        "recovered, unique among those tried",
        "The tokens give the output; no other token that was tried gives it.",
    ),
    Term(
        "ambiguous", ("The tokens give the output; within the tolerance other tokens give it, too.")
    ),
    Term(
        "information absent",
        ("Some token has no effect on the given output: no method can find it."),
    ),
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
    Term("sampled", "A certificate: some tokens were run; the others were not examined."),
]

TOKEN_COLUMNS: list[Term | str] = [
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


@page("invert")
def inversion(result: InvertResult) -> Head:
    """Return how many tokens were recovered from which states, and the verdict."""
    if result.token_accuracy is None:
        count = f"{_token_count(result):,} tokens from states at"
    else:
        count = f"{100 * result.token_accuracy:.1f} % of the tokens were recovered from"
    sentence = f"{count} {result.slice_text}: {result.verdict}."
    return Head([named(result.models[0].name)], sentence, glossary=VERDICTS)


def _token_count(result: InvertResult) -> int:
    return sum(len(prompt.recovered) for prompt in result.prompts)


@section("invert", 10)
def prompts(result: InvertResult) -> Section:
    """Return each prompt as its states give it back, and the numbers in short."""
    sentences = [" ".join([prompt.certified, *prompt.notes]) for prompt in result.prompts]
    all_the_same = len(set(sentences)) == 1
    lines = []
    for prompt, sentence in zip(result.prompts, sentences, strict=True):
        verdict = prompt.verdict.capitalize()
        lines.append(RecoveredLine(_tokens(prompt), verdict, "" if all_the_same else sentence))
    parts: list[Part] = [recovered(lines)]
    if all_the_same and sentences[0]:
        parts.append(Prose(sentences[0], strong=f"{result.verdict.capitalize()}."))
    parts.append(_facts(result))
    lead = (
        "Each prompt is shown as its states give it back; a wrong token is struck and followed by "
        "the true one."
    )
    return Section("What came back", lead, parts)


def _tokens(prompt: PromptInversion) -> list[RecoveredToken]:
    """Return the tokens found, each beside the true one, or "?" where that is not known."""
    true_tokens = prompt.strings or ["?"] * len(prompt.recovered_strings)
    tokens = []
    for position, token in enumerate(prompt.recovered_strings):
        right = _is_right(prompt, position)
        tokens.append(
            RecoveredToken(token, right, true_tokens[position], prompt.verdicts[position])
        )
    return tokens


def _is_right(prompt: PromptInversion, position: int) -> bool:
    """Tell whether a token is the true one, or, where that is not known, gives the state."""
    known = prompt.right(position)
    if known is None:
        return prompt.verdicts[position] not in NOT_FOUND
    return known


def _facts(result: InvertResult) -> Facts:
    """Return the numbers of an inversion in short."""
    token_count = _token_count(result)
    evaluations = sum(prompt.evaluations for prompt in result.prompts)
    rows = [
        ("slice", result.slice_text),
        ("method", f"{result.method}, given {result.given}"),
    ]
    if result.token_accuracy is None:
        rows.append(("tokens", f"{token_count}"))
    else:
        rows.append(("token accuracy", f"{result.token_accuracy:.1%} of {token_count} tokens"))
    if result.estimated_noise is not None:
        rows.append(("estimated noise", f"{result.estimated_noise:.1e} of the norm"))
    rows.append(("verdict", result.verdict))
    rows += _certificate_rows(result)
    rows.append(("candidates a token", f"{evaluations / token_count:.1f}"))
    return Facts("In short", rows)


def _certificate_rows(result: InvertResult) -> list[tuple[str, str]]:
    """Return type, tolerance, largest residual and smallest margin over all prompts."""
    proofs = [prompt.certificate for prompt in result.prompts]
    types = []
    tolerances = []
    for proof in proofs:
        types.append(f"{proof.type}: {proof.checked}" if proof.checked else proof.type)
        tolerances.append(f"{proof.tolerance:.1e} (noise {proof.noise:.1e})")
    residuals = [proof.residual for proof in proofs if proof.residual is not None]
    largest_residual = "no number"
    if len(residuals) == len(proofs):
        largest_residual = f"{max(residuals):.1e}"
    margins = [proof.margin for proof in proofs if proof.margin is not None]
    return [
        ("certificate", "; ".join(dict.fromkeys(types))),
        ("tolerance", "; ".join(dict.fromkeys(tolerances))),
        ("largest residual", largest_residual),
        ("smallest margin", f"{min(margins):.1e}" if margins else "-"),
    ]


@section("invert", 20)
def certificate(result: InvertResult) -> Section:
    """Return residuals and margins of the first prompt, and a table of all tokens."""
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
    return Section("The certificate", lead, [figure, _token_table(result)])


def _residuals(prompt: PromptInversion) -> go.Figure:
    """Return residual of the tokens found and margin to the second best, by position."""
    proof = prompt.certificate
    positions = list(range(len(prompt.recovered)))
    figure = log_distances("position", "relative distance")
    for index, (name, symbol, distances) in enumerate(
        [("token found", "circle", proof.residuals), ("second best", "diamond", proof.margins)]
    ):
        dots = Dots(name, positions, distances, prompt.recovered_strings, symbol, size=8)
        add_dots(figure, dots, index, "%{x}: %{text}<br>%{y:.1e}")
    mark_level(figure, proof.tolerance, "tolerance")
    return figure.update_xaxes(tickvals=positions, ticktext=list(map(str, positions)))


def _token_table(result: InvertResult) -> Table:
    """Return the evidence for each token of the first prompts."""
    rows = []
    for number, prompt in enumerate(result.prompts[:MOST_PROMPTS], 1):
        proof = prompt.certificate
        for position, token in enumerate(prompt.recovered_strings):
            rows.append(
                (
                    f"{number}, {position}",
                    prompt.strings[position] if prompt.strings else "?",
                    token,
                    proof.residuals[position],
                    proof.margins[position],
                    proof.compared[position],
                    proof.types[position],
                    len(proof.equivalent[position]),
                    prompt.verdicts[position],
                )
            )
    return Table(TOKEN_COLUMNS, rows, where="page")
