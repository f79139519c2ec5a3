"""HS401: the cone at the head's input can be taken away for nothing."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["RemovableCone"]


@CONDITIONS.register("HS401")
class RemovableCone(Condition):
    """What a bias of the head takes off the average cosine of the head's input."""

    title = "Cone that a bias removes"
    question = "cure"
    meaning = "Part of the cone is a constant that every logit row could hold as a bias: it can go without changing a prediction."
    source = "docs/anatomy.md; Godey et al. 2024, arXiv:2401.12143"
    unit = "average cosine that goes"
    threshold = 0.15
    known = True

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where the head is linear."""
        row = next((row for row in evidence.common if row.get("null") is None), None)
        before, after = (row.number("cosine"), row.number("cosine_after")) if row is not None else (None, None)
        if row is None or before is None or after is None:
            return None
        null = next((one for one in evidence.common if one.get("null") == "random-init"), None)
        ends = [null.number("cosine"), null.number("cosine_after")] if null is not None else [None, None]
        return Seen(
            value=before - after, site=row.text("site"),
            null=ends[0] - ends[1] if ends[0] is not None and ends[1] is not None else None,
            sentence=f"A bias of the head takes the average cosine at {row['site']} from {before:.2f} to {after:z.2f}, "
            "and no logit changes.",
            advice="headscan.decone(model) returns that model.",
        )  # fmt: skip
