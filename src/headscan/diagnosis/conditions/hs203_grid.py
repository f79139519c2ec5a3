"""HS203: the weights lie on a coarse grid."""

from __future__ import annotations

from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence

__all__ = ["CoarseWeights"]


@CONDITIONS.register("HS203")
class CoarseWeights(Condition):
    """Different values among 64 neighbouring weights, in the coarsest matrix."""

    title = "Weights on a coarse grid"
    question = "cause"
    meaning = "The weights were rounded to at most 16 values a group: what these numbers show is the rounded model's."
    source = "definition; groups of 64 and 128: Dettmers and Zettlemoyer 2022, arXiv:2212.09720"
    unit = "different values in 64 weights"
    heading = "Weights"
    threshold = 16.0
    least = False
    todo = (
        "Say with every number that it is of the rounded model. headscan compare MODEL ORIGINAL tells site by site what "
        "rounding changed; headscan evaluate what it costs."
    )
    limits = (
        "It sees rounding with one scale for 64 neighbours or more. Finer groups, or codebooks of vectors, pass unseen; "
        "what rounding costs it does not say. Weights of equal values were never rounded and are passed over."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of models whose weights are at hand."""
        grid = evidence.grid
        if grid is None:
            return None
        return Seen(
            value=grid.coarsest_levels, site=grid.coarsest, null=64.0,
            null_of="weights never rounded",
            sentence=f"64 neighbouring weights of {grid.coarsest} hold {grid.coarsest_levels:.0f} different values in the "
            f"median, those of all matrices {grid.levels:.0f}.",
            advice="headscan compare MODEL ORIGINAL says, site by site, what rounding changed.",
        )  # fmt: skip
