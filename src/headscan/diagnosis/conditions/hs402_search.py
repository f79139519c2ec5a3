"""HS402: a remedy makes vectors search better."""

from __future__ import annotations

from headscan.diagnosis.advice import searched
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence
from headscan.run import Interval

__all__ = ["RemediedSearch"]


@CONDITIONS.register("HS402")
class RemediedSearch(Condition):
    """Gain in recall@1 of the best of the remedies tried, its interval above 0."""

    title = "Search that a remedy improves"
    question = "cure"
    meaning = (
        "A map of the finished vectors, fitted in one pass, lets more passages find the passage that follows them."
    )
    source = "docs/remedies.md; Mu and Viswanath 2018, arXiv:1702.01417"
    unit = "gain in recall@1"
    threshold = 0.02
    known = True
    todo = (
        "headscan remedy MODEL --pairs FILE fits all remedies, judges them on your own pairs and writes the best as a module of "
        "sentence-transformers, as ONNX or into the model's folder."
    )
    limits = (
        "Judged by consecutive passages of 16 tokens of one text, by the mean of the states that the head reads: search among "
        "your documents may come out otherwise. Whitening needs more vectors than a short checkup has."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where remedies were tried."""
        cure = evidence.cure
        best = cure.best if cure is not None else None
        if cure is None or best is None:
            return None
        ends = best.interval("recall_at_1_gain")
        gain, name = best.number("recall_at_1_gain") or 0.0, best.text("remedy")
        return Seen(
            value=gain, site=cure.site, interval=ends,
            null=0.0, null_of="no remedy",
            sentence=f"Search at {cure.site}: {searched(cure)}.",
            advice=f"headscan remedy exports {name}; fit it on more of your own texts.",
        )  # fmt: skip

    def present(self, value: float, interval: Interval | None = None) -> bool:
        """Only a gain beyond chance."""
        return super().present(value) and (interval is None or interval[0] > 0)
