"""The table of contexts whose prediction differs between two models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headscan.report.kit import Table, Term, table
from headscan.report.kit.words import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headscan.comparison.result import MovedContext

PROBABILITIES = "Probability before and after."


def context_table(
    contexts: Sequence[MovedContext], *columns: str, terms: Mapping[str, Term]
) -> Table:
    """Return the contexts in their text, with fields of theirs and the tokens that moved most."""
    follows = Term("follows", "The token that follows in the text.")
    return table(
        contexts,
        (Term("context"), _text),
        "divergence",
        *columns,
        (follows, _following),
        (Term("rose", PROBABILITIES), partial(_moved, "risen")),
        (Term("fell", PROBABILITIES, where="page"), partial(_moved, "fallen")),
        terms=terms,
        title="Contexts",
    )


def _text(context: MovedContext) -> str:
    return "… " + " ".join(context.text.split())


def _following(context: MovedContext) -> str:
    return context.following


def _moved(field: str, context: MovedContext) -> str:
    """Return the token that moved most, with its probability before and after."""
    moved = getattr(context, field)
    if not moved:
        return ""
    first = moved[0]
    return f"{first.token} {number(first.before, 2)} → {number(first.after, 2)}"
