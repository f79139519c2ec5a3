"""HS202: the logits have the wrong scale."""

from __future__ import annotations

import math

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["LogitScale"]


@CONDITIONS.register("HS202")
class LogitScale(Condition):
    """How many times too sure, or too unsure, the model is."""

    title = "Logits of the wrong scale"
    question = "cause"
    meaning = "All logits times one factor would predict better: a scale was lost or added between states and head."
    source = "Guo et al. 2017, arXiv:1706.04599 (temperature)"
    unit = "factor to the best scale of the logits"
    threshold = 2.0
    todo = (
        "Compare the configuration with training's: tied or untied weights, a scale of the embedding or of the logits, "
        "the final norm. Where only the temperature is off, divide the logits by it."
    )
    limits = (
        "A factor below 2 is common: a model is a little too sure on a foreign text, and a small one may be far too sure. It is "
        "measured on the first 1,024 tokens."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Either way: the value is the factor or its reciprocal, whichever is above 1."""
        scale = evidence.loss.number("best_scale") if evidence.loss is not None else None
        if evidence.loss is None or scale is None:
            return None
        ends = evidence.loss.interval("best_scale")
        factors = sorted(_factor(end) for end in ends) if ends and min(ends) > 0 else None
        through = ends is not None and ends[0] <= 1 <= ends[1]
        random = evidence.loss_of_null.number("best_scale") if evidence.loss_of_null is not None else None
        sure = (
            "The model is about as sure as it should be"
            if through
            else (f"The model is {'less' if scale > 1 else 'more'} sure than it should be")
        )
        return Seen(
            value=_factor(scale), site="output head",
            interval=(1.0 if through else factors[0], factors[1]) if factors else None,
            null=_factor(random) if random else None,
            sentence=f"{sure}: its loss is least with all logits multiplied by {scale:.2f}.",
            advice="See that the text is of the kind that the model was trained on; then compare the configuration with the "
            "training's: tied weights, a scale of embedding or logits, the final norm.",
        )  # fmt: skip


def _factor(scale: float) -> float:
    return math.exp(abs(math.log(scale)))
