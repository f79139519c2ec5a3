"""The conditions of a model's shape (HS1..): its hidden states as a cloud of vectors."""

from headscan.diagnosis.evidence import ModelEvidence, interval, value
from headscan.diagnosis.registry import Seen, condition
from headscan.run import Row
from headscan.scanner.findings import CONE_ALARM, LEANING, NARROW, ROGUE_COSINE, SINKS_NOTICED


@condition(
    "HS101",
    "shape",
    "Narrow cone",
    threshold=NARROW,
    alarm=CONE_ALARM,
    unit="average cosine",
    brings=("HS201", "HS207", "HS401"),
    unless="HS201",
    sentence="Average cosine of the last block's tokens, without sinks.",
    meaning="The last block's tokens point in similar directions on average, so cosine "
    "similarities between them carry little information.",
    source="Ethayarajh 2019, arXiv:1909.00512; Godey et al. 2024, arXiv:2401.12143",
    todo="Compare vectors only after centring (headscan remedy measures which map helps search). "
    "Of a model with a linear head headscan.decone moves the common direction into a bias, "
    "and no logit changes. In training: a head with a bias, or none (docs/training.md).",
    limits="A cone is no defect by itself: a healthy model may predict well with one. Raw cosines "
    "are then uninformative, the states are not. Sinks are left out, and only the last block is "
    "examined.",
)
def narrow_cone(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the average cosine at the last block; the advice quotes that at the output head's
    input.
    """
    row = evidence.blocks[-1]
    site = row.text("site")
    cosine = value(row, "average_cosine")
    if cosine is None:
        return None
    return Seen(
        value=cosine,
        site=site,
        interval=interval(row, "average_cosine"),
        null=value(evidence.null(site), "average_cosine"),
        sentence=f"Average cosine similarity {cosine:.2f} at {site}.",
        advice=f"{_centring_advice(evidence)}{_search_advice(evidence)}",
    )


def _centring_advice(evidence: ModelEvidence) -> str:
    """Return how to remove the common direction: by a bias of the output head where that helps."""
    gauge = evidence.gauge
    if gauge is None:
        return "Centre vectors before you compare them."
    site, cosine_before, cosine_after = gauge
    if cosine_before < LEANING:
        return "Centre vectors before you compare them."
    return (
        "headscan.decone(model) moves the common direction into a bias of the output head: at "
        f"{site} the average cosine goes from {cosine_before:.2f} to {cosine_after:z.2f}, and no "
        "logit changes."
    )


@condition(
    "HS102",
    "shape",
    "Rogue coordinates",
    threshold=ROGUE_COSINE,
    known=True,
    brings=("HS101", "HS201", "HS202", "HS401"),
    unit="average cosine that outlying coordinates make",
    sentence="Part of the average cosine that outlying coordinates add, at the site where it is "
    "largest.",
    meaning="A few coordinates dominate the similarity of two tokens, and with it distances and "
    "probes.",
    source="Timkey and van Schijndel 2021, arXiv:2109.04404",
    todo="Standardise coordinates, or leave these out, before vectors are compared or rounded; "
    "give them their own scale in 8 bits. Where they appear between two checkpoints, look at "
    "the weights and biases of the norms.",
    limits="Many large models have such coordinates at early blocks and work with them. The "
    "number is of cosines, not of the loss: headscan compare with a model without them "
    "shows whether the model needs them. A coordinate is outlying that makes a tenth of "
    "the average cosine or more. The number has no interval.",
)
def rogue_coordinates(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen:
    """Return the average cosine that outlying coordinates make, at the site where it is largest."""
    row = max(evidence.sites, key=_rogue_cosine, default=Row())
    rogue_cosine = _rogue_cosine(row)
    if not rogue_cosine:
        return Seen(
            value=0.0,
            sentence="No coordinate causes a tenth of a site's average cosine.",
            advice="",
        )
    site = row.text("site")
    listed = row.get("rogue_coordinates")
    coordinates = listed if isinstance(listed, list) else []
    plural = "" if len(coordinates) == 1 else "s"
    coordinate_names = f"coordinate{plural} {', '.join(map(str, coordinates))}"
    listed_as = f"Largest {coordinate_names}"

    cosine = value(row, "average_cosine") or 0.0
    cosine_without = row.number("average_cosine_without_rogue")
    effect = ""
    if cosine_without is not None:
        effect = f": the average cosine is then {cosine_without:.2f}"
    null = evidence.null(site)
    return Seen(
        value=rogue_cosine,
        site=site,
        null=None if null is None else _rogue_cosine(null),
        sentence=f"{listed_as} at {site}: {rogue_cosine:.2f} of an average cosine of {cosine:.2f}.",
        advice=f"Standardise coordinates, or set {coordinate_names} aside, before vectors are "
        f"compared{effect}. If predictions are also bad, look at the weights and biases that "
        f"write it.{_search_advice(evidence)}",
    )


def _rogue_cosine(row: Row) -> float:
    """Return the part of a site's average cosine that its outlying coordinates make."""
    share = row.number("rogue_share") or 0.0
    cosine = value(row, "average_cosine") or 0.0
    return max(0.0, share * cosine)


def _search_advice(evidence: ModelEvidence) -> str:
    """Return how remedies changed search, or the command that measures it."""
    remedies = evidence.cure
    if remedies is None or remedies.best is None:
        return " headscan remedy measures which map helps search."
    return f" {remedies.sentence}."


@condition(
    "HS103",
    "shape",
    "Collapsed layer",
    threshold=3.0,
    least=False,
    unit="directions in use (participation ratio)",
    brings=("HS101", "HS102", "HS201", "HS202", "HS207", "HS401"),
    unless="HS201",
    sentence="Participation ratio of the block where it is least, without sinks: it is centred, "
    "so a cone alone does not lower it.",
    meaning="The tokens of a layer differ along a handful of directions only, so it passes on "
    "little of the text.",
    source="dimensional collapse: Jing et al. 2022, arXiv:2110.09348",
    todo="Look at that block's weights and at its learning rate; compare with an earlier "
    "checkpoint (headscan compare). In a run, headscan.training.Monitor warns, keeps a "
    "checkpoint or stops.",
    limits="The participation ratio counts directions by variance: a few of large variance hide "
    "many small ones that still carry the text (see HS301). It is also low on very few "
    "tokens and on monotonous text.",
)
def collapsed_layer(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the participation ratio of the block where it is least."""
    ratio: float | None = None
    block = Row()
    for row in evidence.blocks:
        ratio_of_row = value(row, "participation_ratio")
        if ratio_of_row is not None and (ratio is None or ratio_of_row < ratio):
            ratio = ratio_of_row
            block = row
    if ratio is None:
        return None
    site = block.text("site")
    return Seen(
        value=ratio,
        site=site,
        interval=interval(block, "participation_ratio"),
        null=value(evidence.null(site), "participation_ratio"),
        sentence=f"The tokens of {site} differ along about {ratio:.1f} of "
        f"{block.number('width'):.0f} directions.",
    )


@condition(
    "HS104",
    "shape",
    "Sink tokens",
    threshold=SINKS_NOTICED,
    known=True,
    unit="share of the energy",
    sentence="Share of a site's energy that its sink tokens carry, where it is largest.",
    meaning="A few tokens, mostly the first of a window, have norms so large that averages over "
    "all tokens describe them alone.",
    source="Xiao et al. 2023, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762",
    todo="Read the columns without sinks; leave the first token out of means; give sinks a scale "
    "of their own where activations are rounded.",
    limits="Most trained transformers have sinks; they are a problem only for averages and "
    "rounding over all tokens.",
)
def sink_tokens(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the share of the energy that sinks carry, at the site where it is largest."""
    rows = [row for row in evidence.sites if row.number("sink_energy") is not None]
    if not rows:
        return None
    row = max(rows, key=_sink_energy)
    energy = _sink_energy(row)
    site = row.text("site")
    null = evidence.null(site)
    sinks = row.number("sinks") or 0
    tokens = row.number("tokens") or 0
    return Seen(
        value=energy,
        site=site,
        null=None if null is None else null.number("sink_energy"),
        sentence=f"{sinks:,.0f} of {tokens:,.0f} tokens carry {energy:.0%} of the energy at {site}."
        if sinks
        else "No sink tokens.",
    )


def _sink_energy(row: Row) -> float:
    return row.number("sink_energy") or 0.0
