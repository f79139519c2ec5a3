"""HS102: a few coordinates make the cone."""

from __future__ import annotations

from headscan.diagnosis.advice import searching
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence, value
from headscan.run import Row

__all__ = ["RogueCoordinate"]


@CONDITIONS.register("HS102")
class RogueCoordinate(Condition):
    """Average cosine that outlying coordinates make alone, at the site where that is largest.

    The average cosine is the share of a unit vector's squared length that all tokens have in common, and a coordinate's part in
    it is the square of that coordinate's mean. From a half on, what a few coordinates hold for every token alike outweighs all
    that the others say of the token; that is what the threshold stands for, chosen before it was computed of any model.
    Healthy models were found beyond it since, as the literature says: alone it is a notice.
    """

    title = "Rogue coordinates"
    question = "shape"
    meaning = "A few coordinates decide how alike two tokens look; distances and probes mostly see these few."
    source = "Timkey and van Schijndel 2021, arXiv:2109.04404"
    unit = "average cosine that outlying coordinates make"
    threshold = 0.5
    known = True
    brings = ("HS101", "HS201", "HS202", "HS401")
    todo = (
        "Standardise coordinates, or leave these out, before vectors are compared or rounded; give them a scale of their "
        "own in 8 bits. Where a checkpoint has them and the one before has not, look at the norms' weights and biases "
        "there."
    )
    limits = (
        "Many large models have such coordinates at early blocks and work with them. The number is of cosines, not of the "
        "loss: whether the model needs them, headscan compare on a model without them says. A coordinate is outlying that "
        "makes a tenth of the average cosine or more. The number has no interval."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of all sites."""
        made, row = max(((_made(row), row) for row in evidence.sites), key=lambda pair: pair[0], default=(0.0, None))
        if row is None or not made:
            return Seen(value=0.0, sentence="No coordinate makes a tenth of a site's average cosine.", advice="")
        found, null = row.get("rogue_coordinates"), evidence.null(row.text("site"))
        found = found if isinstance(found, list) else []
        few = f"coordinate{'s' * (len(found) != 1)} {', '.join(map(str, found))}"
        add = "alone adds" if len(found) == 1 else "add"
        left = row.number("average_cosine_without_rogue")
        effect = f": the average cosine is then {left:.2f}" if left is not None else ""
        return Seen(
            value=made, site=row.text("site"), null=_made(null) if null is not None else None,
            sentence=f"Two tokens have a cosine of {value(row, 'average_cosine') or 0.0:.2f} on average at {row['site']}; "
            f"{few} {add} {made:.2f} to it.",
            advice=f"Standardise coordinates, or set {few} aside, before vectors are compared{effect}. Where predictions "
            f"are bad, too, look at the weights and biases that write it.{searching(evidence)}",
        )  # fmt: skip


def _made(row: Row) -> float:
    """The average cosine that outlying coordinates make at a site."""
    return max(0.0, (row.number("rogue_share") or 0.0) * (value(row, "average_cosine") or 0.0))
