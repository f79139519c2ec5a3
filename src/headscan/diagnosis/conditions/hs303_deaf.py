"""HS303: tokens know nothing of each other."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["DeafTokens"]


@CONDITIONS.register("HS303")
class DeafTokens(Condition):
    """How far an output moves when another token is replaced, over how far when its own is."""

    title = "Tokens that know nothing of each other"
    question = "leak"
    meaning = "Nothing flows between tokens: attention is cut off or broken, and each token is read for itself."
    source = "docs/flow.md"
    heading = "Flow"
    unit = "movement by another token over that by its own"
    threshold = 0.01
    least = False
    brings = ("HS201", "HS202")
    todo = (
        "Look at the attention: its mask, its output projection, a norm before it. headscan flow --cut attention,mlp shows which "
        "part carries what, site by site."
    )
    limits = (
        "It is a mean over places of a few short prompts at the last block. That something flows does not say that it is used: "
        "headscan attribute asks that of one prediction."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where it was measured."""
        flow = evidence.flow
        if flow is None:
            return None
        told = (
            f"; from one output {flow.told:.0%} of the other tokens can be told, each among {flow.candidates}"
            if flow.told is not None
            else ""
        )
        return Seen(
            value=flow.heard, site=flow.site, interval=flow.interval, null=flow.null,
            sentence=f"Replacing another token moves an output of {flow.site} {flow.heard:.2g} times as far as replacing "
            f"its own{told}.",
            advice="headscan flow --cut attention,mlp shows which part carries what between tokens.",
        )  # fmt: skip
