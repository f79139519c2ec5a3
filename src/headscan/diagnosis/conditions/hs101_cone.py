"""HS101: the states stand in a narrow cone."""

from __future__ import annotations

from headscan.diagnosis.advice import searching
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import ModelEvidence, interval, value
from headscan.geometry.findings import LEANING

__all__ = ["Cone"]


@CONDITIONS.register("HS101")
class Cone(Condition):
    """Average cosine of the last block's tokens, without sinks."""

    title = "Narrow cone"
    question = "shape"
    meaning = "Any two tokens of the last block point much the same way, so cosines between them say little."
    source = "Ethayarajh 2019, arXiv:1909.00512; Godey et al. 2024, arXiv:2401.12143"
    unit = "average cosine"
    threshold = 0.5
    alarm = 0.7
    brings = ("HS201", "HS401")
    todo = (
        "Compare vectors only after centring (headscan remedy measures which map helps search). Of a model with a linear "
        "head headscan.decone moves the common direction into a bias, and no logit changes. In training: a head with a "
        "bias, or none (docs/training.md)."
    )
    limits = (
        "A cone is no defect by itself: a healthy model may predict well inside one. It says that raw cosines are "
        "uninformative, not that the states are. Sinks are left out, and one site, the last block, decides."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The last block, the biased input of its head beside it."""
        last = evidence.blocks[-1]
        found = value(last, "average_cosine")
        if found is None:
            return None
        null = value(evidence.null(last.text("site")), "average_cosine")
        where = last.text("site")
        return Seen(
            value=found, site=where, interval=interval(last, "average_cosine"), null=null, advice=_advice(evidence),
            sentence=f"Two tokens have a cosine of {found:.2f} on average at {where}.",
        )  # fmt: skip


def _advice(evidence: ModelEvidence) -> str:
    if evidence.gauge is None or evidence.gauge[1] < LEANING:
        return f"Centre vectors before they are compared.{searching(evidence)}"
    site, before, after = evidence.gauge
    return (
        f"headscan.decone(model) moves the common direction into a bias of the output head: at {site} the average cosine "
        f"goes from {before:.2f} to {after:z.2f}, and no logit changes.{searching(evidence)}"
    )
