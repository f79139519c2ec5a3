"""What several conditions say of the remedies that were tried on this very model."""

from __future__ import annotations

from headscan.diagnosis.evidence import ModelEvidence, TriedRemedies

__all__ = ["searched", "searching"]


def searching(evidence: ModelEvidence) -> str:
    """What the remedies that were tried did for search, as a sentence with a blank before it."""
    if evidence.cure is None or evidence.cure.best is None:
        return " headscan remedy measures which map helps search."
    return f" For search: {searched(evidence.cure)}."


def searched(cure: TriedRemedies) -> str:
    """How many passages find the one that follows, as they are and after the best remedy; whether that may be chance."""
    best, of = cure.best, cure.queries
    assert best is not None
    gain, ends = best.number("recall_at_1_gain") or 0.0, best.interval("recall_at_1_gain") or (0.0, 0.0)
    before, after = round(of * cure.plain), round(of * (cure.plain + gain))
    plain = f"{before} of {of} passages find the one that follows by the vectors as they are"
    if after <= before:
        return f"{plain}, and no more after any of the {len(cure.rows) - 1} remedies tried"
    chance = "" if ends[0] > 0 else ", so few more that it may be chance"
    return f"{plain}, {after} after the remedy {best.text('remedy')}{chance}"
