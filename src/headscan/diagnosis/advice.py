"""Advice that several conditions give, with its effect on this very model."""

from __future__ import annotations

from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["searching"]


def searching(evidence: ModelEvidence) -> str:
    """What the remedies that were tried did for search, as a sentence with a blank before it; nothing where none was tried."""
    cure = evidence.cure
    best = cure.best if cure is not None else None
    if cure is None or best is None:
        return " headscan remedy measures which map helps search."
    gain, ends = best.number("recall_at_1_gain") or 0.0, best.interval("recall_at_1_gain") or (0.0, 0.0)
    plain, of = cure.plain, f"of {cure.queries} passages find the one that follows"
    if ends[0] <= 0:
        return (
            f" For search no remedy helped beyond chance ({plain:.0%} {of}; best {best.text('remedy')}, {gain:+.0%})."
        )
    return f" For search: after {best.text('remedy')} {plain + gain:.0%} instead of {plain:.0%} {of}."
