"""HS103: a layer uses a handful of directions only."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence, interval, value

__all__ = ["Collapse"]


@CONDITIONS.register("HS103")
class Collapse(Condition):
    """Participation ratio of the block where it is least, without sinks: it is centred, so a cone alone does not lower it."""

    title = "Collapsed layer"
    question = "shape"
    meaning = "All tokens of a layer differ along a handful of directions only: little of the text passes it."
    source = "dimensional collapse: Jing et al. 2022, arXiv:2110.09348"
    unit = "directions in use (participation ratio)"
    threshold = 3.0
    least = False
    brings = ("HS101", "HS102", "HS201", "HS202", "HS401")
    todo = (
        "Look at that block's weights and at its learning rate; compare with an earlier checkpoint (headscan compare). In "
        "a run, headscan.training.Monitor warns, keeps a checkpoint or stops."
    )
    limits = (
        "The participation ratio counts directions by variance: a few loud ones hide many quiet ones that still carry the "
        "text (HS301 tells). On very few tokens, or a monotonous text, it is low of itself."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The flattest block."""
        known = [(found, row) for row in evidence.blocks if (found := value(row, "participation_ratio")) is not None]
        if not known:
            return None
        found, row = min(known, key=lambda pair: pair[0])
        null = value(evidence.null(row.text("site")), "participation_ratio")
        width = row.number("width")
        return Seen(
            value=found, site=row.text("site"), null=null, interval=interval(row, "participation_ratio"),
            sentence=f"The tokens of {row['site']} differ along about {found:.1f} of {width:.0f} directions.",
            advice="Look at the block's weights and learning rate; in a run, headscan.training.Monitor stops at the first sign.",
        )  # fmt: skip
