"""HS201: the model predicts no better than counting does."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["UntrainedHead"]


@CONDITIONS.register("HS201")
class UntrainedHead(Condition):
    """Loss over the entropy of the text's tokens, which is what knowing their frequencies alone loses."""

    title = "Predictions no better than counting"
    question = "cause"
    meaning = (
        "The loss is not below what word frequencies give: the head was not trained, or head, tokenizer, weights and text do not "
        "belong together."
    )
    source = "definition"
    unit = "loss over that of word frequencies"
    threshold = 1.0
    brings = ("HS202",)
    todo = (
        "See that the tokenizer is the model's own and that the checkpoint has the head's weights (a warning of missing "
        "keys on loading). A body that was trained without a head gets one from headscan recover."
    )
    limits = (
        "It compares with the frequencies of the very text that was read, which no model knew beforehand: on a short or "
        "foreign text a healthy model may come near, or beyond (docs/checkup.md: gpt-vanilla and stories260K on wikitext-2). "
        "It does not say whether head, body or tokenizer is at fault."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of models that predict a next token."""
        row = evidence.loss
        loss, counted = (row.number("loss"), row.number("unigram_entropy")) if row is not None else (None, None)
        if row is None or loss is None or not counted:
            return None
        ends, random = row.interval("loss"), evidence.loss_of_null
        null = random.number("loss") if random is not None else None
        return Seen(
            value=loss / counted, site="output head", interval=(ends[0] / counted, ends[1] / counted) if ends else None,
            null=null / counted if null is not None else None,
            sentence=f"The loss is {loss:.2f} nats a token, {'worse' if loss >= counted else 'better'} than the {counted:.2f} of "
            "word frequencies alone.",
            advice="See that the text is of the kind that the model was trained on, and the tokenizer the model's own; a body "
            "trained without a head gets one from headscan recover.",
        )  # fmt: skip
