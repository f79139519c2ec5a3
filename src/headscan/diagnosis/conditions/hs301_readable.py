"""HS301: a state gives its prompt away."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["ReadableStates"]


@CONDITIONS.register("HS301")
class ReadableStates(Condition):
    """Share of a prompt's tokens that exact search reads from the states of a middle block."""

    title = "States that give the prompt away"
    question = "leak"
    meaning = "Whoever has the states of one layer has the text: hidden states are to be kept as the text itself is."
    source = "Morris et al. 2023, arXiv:2310.06816; exact search: docs/inversion.md"
    unit = "share of tokens read"
    threshold = 0.9
    known = True
    todo = (
        "Keep states as the text itself is kept: who may see the one may see the other. headscan privacy says how many "
        "bits a defence leaves, and what it costs the model."
    )
    limits = (
        "One block and a few prompts were tried, by an attacker who has the weights. That a prompt was not read is no "
        "proof that it cannot be."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where search was tried."""
        found = evidence.read
        if found is None:
            return None
        return Seen(
            value=found.recovered, site=found.site, interval=found.interval,
            null=evidence.bits.guessed if evidence.bits is not None else None, null_of="guessing without a state",
            sentence=f"Exact search reads {found.recovered:.0%} of {found.tokens} tokens of the text from the states of "
            f"{found.site}; its verdict: {found.verdict}.",
            advice=f"Treat stored or shared states as text. {_noise(evidence)}",
        )  # fmt: skip


def _noise(evidence: ModelEvidence) -> str:
    bits = evidence.bits
    if bits is None:
        return "headscan privacy says what a defence leaves in them, and costs."
    low, high = bits.told
    share = f"{low}% to {high}%" if low < high else f"{low}%"
    return (
        f"Noise of {bits.noise:g} of their spread leaves {share} of a token's {bits.prior_bits:.1f} bits in them "
        "(headscan privacy: other defences, and what they cost)."
    )
