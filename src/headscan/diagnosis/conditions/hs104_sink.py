"""HS104: a few tokens carry most of the energy."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["SinkTokens"]


@CONDITIONS.register("HS104")
class SinkTokens(Condition):
    """Share of a site's energy that its sink tokens carry, where it is largest."""

    title = "Sink tokens"
    question = "shape"
    meaning = (
        "A few tokens, mostly the first of a window, are so long that averages over all tokens speak of them alone."
    )
    source = "Xiao et al. 2023, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762"
    unit = "share of the energy"
    threshold = 0.5
    known = True
    todo = (
        "Read the columns without sinks; leave the first token out of means; give sinks a scale of their own where "
        "activations are rounded."
    )
    limits = (
        "Sinks are how attention rests, in most trained transformers; they harm only who averages or rounds over them."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The site whose energy they carry most of."""
        known = [row for row in evidence.sites if row.number("sink_energy") is not None]
        if not known:
            return None
        row = max(known, key=lambda row: row.number("sink_energy") or 0.0)
        energy, null = row.number("sink_energy") or 0.0, evidence.null(row.text("site"))
        return Seen(
            value=energy, site=row.text("site"), null=null.number("sink_energy") if null is not None else None,
            sentence=f"{row.number('sinks') or 0:.0f} of {row.number('tokens') or 0:.0f} tokens carry {energy:.0%} of the "
            f"energy at {row['site']}.",
            advice="Read the columns without sinks; leave the first token out of means, and rounding its own scale.",
        )  # fmt: skip
