"""The conditions that say what a remedy would change (HS4..)."""

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import Seen, condition
from headscan.scanner.findings import LEANING


@condition(
    "HS401",
    "cure",
    "Common direction that a bias removes",
    threshold=LEANING,
    known=True,
    unit="average cosine that goes away",
    silent="it has no linear output head",
    sentence="Part of the average cosine at the output head's input that a bias of the head "
    "removes.",
    meaning="A bias of the output head could replace part of what all tokens have in common, "
    "without changing a prediction.",
    source="docs/measures.md; Godey et al. 2024, arXiv:2401.12143",
    todo="headscan.decone(model) returns the model with that bias, and proves that no logit "
    "changed.",
    limits="Only the common direction at the output head's input is removed; inner blocks keep "
    "theirs. Whether search improves is another question (HS402).",
)
def removable_direction(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return what a bias takes off the average cosine, where the output head is linear."""
    gauge = evidence.gauge
    if gauge is None:
        return None
    site, cosine_before, cosine_after = gauge
    null_reduction = None
    if evidence.gauge_of_null is not None:
        _, null_before, null_after = evidence.gauge_of_null
        null_reduction = null_before - null_after
    beginning = "A" if cosine_before >= LEANING else "There is hardly one: a"
    return Seen(
        value=cosine_before - cosine_after,
        site=site,
        interval=evidence.gauge_interval,
        null=null_reduction,
        sentence=f"{beginning} bias of the output head would take the average cosine at {site} "
        f"from {cosine_before:.2f} to {cosine_after:z.2f} and change no logit.",
    )


@condition(
    "HS402",
    "cure",
    "Search that a remedy improves",
    threshold=0.02,
    known=True,
    beyond_chance=True,
    unit="gain in recall@1",
    lacks=("remedies",),
    sentence="Gain in recall@1 of the best of the remedies tried, its interval above 0.",
    meaning="Post-processing the vectors improves next-passage retrieval.",
    source="docs/remedies.md; Mu and Viswanath 2018, arXiv:1702.01417",
    todo="headscan remedy MODEL --pairs FILE --out DIR judges all remedies on your own pairs and "
    "writes the best as a folder that the model or a pipeline loads.",
    limits="Judged on consecutive passages of 16 tokens of one text, by mean states at the head's "
    "input: results on your documents may differ. Whitening needs more vectors than a short "
    "checkup has.",
)
def remedied_search(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the gain in recall@1 of the best remedy, where remedies were tried."""
    remedies = evidence.cure
    if remedies is None or remedies.best is None:
        return None
    best = remedies.best
    return Seen(
        value=best.number("recall_at_1_gain") or 0.0,
        site=remedies.site,
        interval=best.interval("recall_at_1_gain"),
        null=0.0,
        null_of="no remedy",
        sentence=f"{remedies.sentence}, {remedies.site}.",
        advice=f"headscan remedy exports {best.text('remedy')}; fit it on more of your own texts.",
    )
