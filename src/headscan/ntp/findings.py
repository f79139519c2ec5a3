"""The findings of a prediction: sentences with codes, about the data and about each model."""

from collections.abc import Sequence

from headscan.ntp.entropy import DataNumbers
from headscan.ntp.kinds import (
    BOUND,
    COLLAPSE,
    DIRECTION,
    LOW_RANK,
    ONE_SUCCESSOR,
    OUTSIDE,
    RANK,
    UNSETTLED,
)
from headscan.ntp.result import ModelComparison, SolutionNumbers
from headscan.run import Finding, Level

LOW_RANK_SHARE = 0.5
"""A rank below this share of what the distinct supports allow is called low: a convention."""

MANY_SINGLE_SUCCESSORS = 0.5
UNSETTLED_MASS = 0.1
SMALL_OUTSIDE_MASS = 0.05
HIGH_COSINE = 0.9


def findings_of(
    order: int,
    data: DataNumbers,
    solution: SolutionNumbers | None,
    comparisons: Sequence[ModelComparison],
) -> list[Finding]:
    """Return the findings, most important first: of the data, then of each model."""
    findings = _data_findings(order, data)
    if solution is not None:
        findings.append(_rank_finding(data, solution))
    for comparison in comparisons:
        findings += _model_findings(comparison)
    return findings


def _data_findings(order: int, data: DataNumbers) -> list[Finding]:
    bound = data.entropy_bound
    sentence = (
        f"No model that sees {order} tokens gets below {bound:.4g} nats a token on this text."
    )
    findings = [BOUND.finding("notice", sentence, value=bound)]

    single = data.single_successor_share
    if single > MANY_SINGLE_SUCCESSORS:
        sentence = (
            f"{single:.0%} of the contexts were followed by one token only: their logits have no "
            "finite part."
        )
        findings.append(ONE_SUCCESSOR.finding("notice", sentence, value=single))

    unseen = data.unseen_mass
    if unseen > UNSETTLED_MASS:
        sentence = (
            f"About {unseen:.0%} of next occurrences would bring a successor not yet seen: the "
            "supports are not settled."
        )
        findings.append(UNSETTLED.finding("notice", sentence, value=unseen))
    return findings


def _rank_finding(data: DataNumbers, solution: SolutionNumbers) -> Finding:
    largest = min(data.vocabulary - 1, solution.supports)
    sentence = (
        f"The growing part has rank {solution.rank} of the {largest:,} that "
        f"{solution.supports:,} distinct supports of {data.vocabulary:,} tokens allow, certified "
        f"to a relative gap of {solution.gap:.0e}."
    )
    if solution.rank >= LOW_RANK_SHARE * largest:
        return RANK.finding("notice", sentence, value=solution.rank)
    level: Level = "fine" if solution.converged else "notice"
    return LOW_RANK.finding(level, sentence, value=solution.rank)


def _model_findings(comparison: ModelComparison) -> list[Finding]:
    model = comparison.name
    metrics = comparison.metrics
    findings = []

    direction = metrics.direction
    if direction is not None:
        sentence = f"The growing part of the logits has cosine {direction:.3f} with the prediction."
        findings.append(
            DIRECTION.finding(_level(direction), sentence, value=direction, model=model)
        )

    projected = metrics.SC1.after
    if projected is not None:
        same = projected.same_cosine
        sentence = (
            f"Contexts with equal supports: cosine {same:.3f} after projection, "
            f"{projected.other_cosine:.3f} between different supports."
        )
        findings.append(COLLAPSE.finding(_level(same), sentence, value=same, model=model))

    outside = metrics.outside_mass
    if outside > SMALL_OUTSIDE_MASS:
        sentence = (
            f"{outside:.1%} of the probability lies outside the supports: it generalises, or has "
            "not fitted."
        )
        findings.append(OUTSIDE.finding("notice", sentence, value=outside, model=model))
    return findings


def _level(cosine: float) -> Level:
    return "fine" if cosine > HIGH_COSINE else "notice"
