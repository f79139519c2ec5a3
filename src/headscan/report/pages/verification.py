"""The page of verified states: of which site of the model each stored site is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Head, Prose, Section, Term, page, section, table

if TYPE_CHECKING:
    from headscan.states.verification import VerificationResult

TERMS = {
    "site": Term("stored site"),
    "nearest": Term("site of the model"),
    "order": Term("order"),
    "in_order": Term(
        "in order",
        "Share of the stored vectors to which their own state is the nearest of all compared.",
        range=(0, 1),
        places=3,
    ),
    "precision": Term("precision", "The narrowest type in which all stored numbers fit."),
    "scale": Term("scale", "The stored vectors over the states.", places=4),
    "residual": Term(
        "residual",
        "What the scaled states leave of the stored vectors about their mean; 1: all of it.",
        places=4,
    ),
    "next": Term("next best site"),
    "next_residual": Term("its residual", places=4),
    "verdict": Term(
        "verdict",
        "own: the model's; related: the model's in fewer bits, or a near relative's; foreign: of "
        "another model, text or order.",
    ),
}


@page("verification")
def verification(result: VerificationResult) -> Head:
    """Return the answer."""
    return Head([f"Are these states of {result.models[0].name}?"], result.sentence)


@section("verification", 10)
def sites(result: VerificationResult) -> Section:
    """Return what explains each stored site."""
    sentence = (
        f"{result.tokens:,} vectors of each site were compared with the states of the model on the "
        "token ids that are stored beside them."
    )
    numbers = table(result.rows, *TERMS, terms=TERMS)
    lead = "The site, order, precision and scale that explain each stored site best."
    return Section("What explains the states", lead, [Prose(sentence), numbers])
