"""HS102: a few coordinates make the cone."""

from __future__ import annotations

from headscan.diagnosis.advice import searching
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence, value
from headscan.geometry.findings import LEANING

__all__ = ["RogueCoordinate"]


@CONDITIONS.register("HS102")
class RogueCoordinate(Condition):
    """Share of the average cosine that outlying coordinates make, at the site where it is largest."""

    title = "Rogue coordinates"
    question = "shape"
    meaning = "A few coordinates decide how alike two tokens look; distances and probes mostly see these few."
    source = "Timkey and van Schijndel 2021, arXiv:2109.04404"
    unit = "share of the average cosine"
    threshold = 0.5
    alarm = 0.985
    brings = ("HS101", "HS201", "HS202", "HS401")
    todo = (
        "Standardise coordinates, or leave these out, before vectors are compared or rounded; give them a scale of their "
        "own in 8 bits. Where a checkpoint has them and the one before has not, look at the norms' weights and biases "
        "there."
    )
    limits = (
        "Many large models have such coordinates at early blocks and work with them. The share is of the average cosine, "
        "not of the loss: whether the model needs them, headscan compare on a model without them says. It has no "
        "interval."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Among sites that are cones at all."""
        sites = [row for row in evidence.sites if (value(row, "average_cosine") or 0.0) >= LEANING]
        if not sites:
            return Seen(value=0.0, sentence="No site is a cone that coordinates could make.", advice="")
        row = max(sites, key=lambda row: row.number("rogue_share") or 0.0)
        share, found = row.number("rogue_share") or 0.0, row.get("rogue_coordinates")
        names = ", ".join(map(str, found)) if isinstance(found, list) and found else "none"
        left, null = row.number("average_cosine_without_rogue"), evidence.null(row.text("site"))
        effect = f": the average cosine is then {left:.2f}" if left is not None else ""
        return Seen(
            value=share, site=row.text("site"), null=null.number("rogue_share") if null is not None else None,
            sentence=f"Outlying coordinates ({names}) make {share:.0%} of the average cosine at {row['site']}.",
            advice=f"Standardise coordinates, or set these aside, before vectors are compared{effect}.{searching(evidence)}",
        )  # fmt: skip
