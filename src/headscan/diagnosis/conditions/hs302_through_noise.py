"""HS302: noise on the states does not hide the text."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["TextThroughNoise"]


@CONDITIONS.register("HS302")
class TextThroughNoise(Condition):
    """Share of a token's bits that states tell through noise, proved from below."""

    title = "Text that shows through noise"
    question = "leak"
    meaning = "Gaussian noise that costs the model dearly still leaves most of each token's information in its states."
    source = "docs/leaks.md; bounds: Kolchinsky and Tracey 2017, arXiv:1706.02419"
    unit = "share of a token's bits told, at least"
    threshold = 0.5
    known = True
    todo = (
        "Do not rely on noise that leaves the model usable: headscan privacy puts other defences (rounding, projection, "
        "permutation, rotation) beside it, each with the bits it leaves and the nats it costs."
    )
    limits = (
        "A lower bound, for this model's own expectation of the text as prior knowledge and for the likeliest candidates: "
        "more may be told, never less. One block and a few windows; the interval is wide."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where bits were counted."""
        bits = evidence.bits
        if bits is None:
            return None
        ends = bits.interval
        share = [min(1.0, max(0.0, end / bits.prior_bits)) for end in ends] if ends is not None else None
        return Seen(
            value=bits.lower / bits.prior_bits, site=bits.site, interval=(share[0], share[1]) if share else None,
            null=bits.guessed, null_of="tokens guessed without a state",
            sentence=f"Behind noise of {bits.noise:g} of their spread the states of {bits.site} still tell "
            f"{bits.told[0]}%{' or more' * (bits.told[0] < 100)} of a token's {bits.prior_bits:.1f} bits; the best attack names "
            f"{bits.named:.0%} of the tokens outright.",
            advice="headscan privacy puts other defences beside noise: what each leaves, and what it costs.",
        )  # fmt: skip
