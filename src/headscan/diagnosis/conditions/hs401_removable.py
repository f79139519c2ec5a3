"""HS401: what all tokens have in common at the output head's input can be taken away for nothing."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence
from headscan.geometry.findings import LEANING

__all__ = ["RemovableDirection"]


@CONDITIONS.register("HS401")
class RemovableDirection(Condition):
    """What a bias of the output head takes off the average cosine of its input."""

    title = "Common direction that a bias removes"
    question = "cure"
    meaning = (
        "Part of what all tokens have in common could be held by a bias of the output head: it can go without changing a "
        "prediction."
    )
    source = "docs/anatomy.md; Godey et al. 2024, arXiv:2401.12143"
    unit = "average cosine that goes away"
    threshold = LEANING
    known = True
    todo = "headscan.decone(model) returns the model with that bias, and proves that no logit changed."
    limits = (
        "What goes is what tokens have in common at the output head's input; inner blocks keep theirs. Whether vectors then "
        "search better is another question (HS402)."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where the head is linear."""
        if evidence.gauge is None:
            return None
        site, before, after = evidence.gauge
        null, there = evidence.gauge_of_null, "A" if before >= LEANING else "There is hardly one: a"
        return Seen(
            value=before - after, site=site, interval=evidence.gauge_interval, null=None if null is None else null[1] - null[2],
            sentence=f"{there} bias of the output head would take the average cosine at {site} from {before:.2f} to {after:z.2f} "
            "and change no logit.",
            advice="headscan.decone(model) returns that model.",
        )  # fmt: skip
