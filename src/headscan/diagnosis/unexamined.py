"""The conditions that had no number in a source: why, and what would examine them."""

from collections.abc import Collection
from dataclasses import dataclass

from headscan.diagnosis.evidence import ModelEvidence, Skipped
from headscan.diagnosis.registry import CONDITIONS, Condition, Question

NEED_MASK = ("loss", "inversion", "bits")
"""Stages that a model without its causal mask lacks."""

CAUSAL_MASK = "a causal mask"


@dataclass(frozen=True, kw_only=True)
class Unexamined:
    """A condition without a number.

    Attributes:
        reason: why there is none.
        option: what would examine it, such as "--budget 10m" or "a causal mask"; empty where
            nothing would, because the condition does not apply to the source.
    """

    code: str
    title: str
    question: Question
    reason: str
    option: str = ""


def unexamined(evidence: ModelEvidence, examined: Collection[str]) -> list[Unexamined]:
    """Return every condition that is not among the examined codes, by code."""
    rows = []
    for code, condition in sorted(CONDITIONS.items()):
        if code in examined:
            continue
        skipped = _why_skipped(evidence, condition)
        reason = condition.silent
        option = ""
        if skipped is not None:
            reason = skipped.reason
            option = skipped.option
            if not option and evidence.later and skipped.stage in NEED_MASK:
                option = CAUSAL_MASK
        rows.append(
            Unexamined(
                code=code,
                title=condition.title,
                question=condition.question,
                reason=reason or "the source has no such number",
                option=option,
            )
        )
    return rows


def _why_skipped(evidence: ModelEvidence, condition: Condition) -> Skipped | None:
    """Return the skipped stage that would have given the number; None where none was skipped."""
    for skipped in evidence.skipped:
        if skipped.stage in (*condition.lacks, "states"):
            return skipped
    return None


def count_examined(examined: int, rows: Collection[Unexamined]) -> tuple[int, int]:
    """Return how many conditions were examined, of how many that could be.

    >>> count_examined(3, [])
    (3, 3)
    """
    return examined, examined + sum(bool(row.option) for row in rows)
