"""HS204: a checkpoint loses more than the one before it."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["CheckpointOrder"]


@CONDITIONS.register("HS204")
class CheckpointOrder(Condition):
    """Loss minus the least loss of the checkpoints before."""

    title = "Checkpoints out of order"
    question = "cause"
    meaning = (
        "A later checkpoint predicts worse than an earlier one: they are not in order, or training went wrong there."
    )
    source = "definition"
    unit = "nats a token above the best checkpoint before"
    threshold = 0.1
    brings = ("HS101", "HS102", "HS201", "HS202")
    todo = (
        "Sort checkpoints by their step. Where they are in order, look at the run between these two: learning rate, data, "
        "a restart without the optimiser's state."
    )
    limits = (
        "Losses are of one text: a run may get worse on it and better on others. Neighbours that differ by less than .1 "
        "nat are not told apart, and it has no interval."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of all but the first of a row of checkpoints."""
        loss = evidence.loss.number("loss") if evidence.loss is not None else None
        before = [(found, one.model) for one in earlier if one.loss is not None and (found := one.loss.number("loss"))]
        if loss is None or not before:
            return None
        least, name = min(before)
        return Seen(
            value=loss - least, site="output head",
            sentence=f"The loss of {evidence.model} is {loss:.2f} nats a token, that of {name} before it {least:.2f}.",
            advice="Sort the checkpoints by their step; where they are in order, look at the run between these two.",
        )  # fmt: skip
