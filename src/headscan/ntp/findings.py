"""The findings of a prediction: sentences with codes, about the data and about each model."""

from collections.abc import Sequence
from typing import Literal

from headscan.ntp.entropy import DataNumbers
from headscan.ntp.result import ModelComparison, SolutionNumbers
from headscan.run import Finding

LOW_RANK = 0.5
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


def _finding(
    code: str,
    level: Literal["alert", "notice", "good"],
    value: float,
    sentence: str,
    model: str | None = None,
) -> Finding:
    return Finding(code=code, level=level, sentence=sentence, value=value, model=model)


def _data_findings(order: int, data: DataNumbers) -> list[Finding]:
    bound = data.entropy_bound
    sentence = f"no model that sees {order} tokens gets below {bound:.4g} nats a token on this text"
    findings = [_finding("BOUND", "notice", bound, sentence)]

    single = data.single_successor_share
    if single > MANY_SINGLE_SUCCESSORS:
        sentence = (
            f"{single:.0%} of the contexts were followed by one token only: their logits have no "
            "finite part"
        )
        findings.append(_finding("ONE SUCCESSOR", "notice", single, sentence))

    unseen = data.unseen_mass
    if unseen > UNSETTLED_MASS:
        sentence = (
            f"about {unseen:.0%} of next occurrences would bring a successor not yet seen: the "
            "supports are not settled"
        )
        findings.append(_finding("UNSETTLED", "notice", unseen, sentence))
    return findings


def _rank_finding(data: DataNumbers, solution: SolutionNumbers) -> Finding:
    largest = min(data.vocabulary - 1, solution.supports)
    sentence = (
        f"the growing part has rank {solution.rank} of the {largest:,} that "
        f"{solution.supports:,} distinct supports of {data.vocabulary:,} tokens allow, certified "
        f"to a relative gap of {solution.gap:.0e}"
    )
    if solution.rank >= LOW_RANK * largest:
        return _finding("RANK", "notice", solution.rank, sentence)
    level: Literal["good", "notice"] = "good" if solution.converged else "notice"
    return _finding("LOW RANK", level, solution.rank, sentence)


def _model_findings(comparison: ModelComparison) -> list[Finding]:
    model = comparison.name
    metrics = comparison.metrics
    findings = []

    direction = metrics.direction
    if direction is not None:
        sentence = f"the growing part of the logits has cosine {direction:.3f} with the prediction"
        findings.append(_finding("DIRECTION", _level(direction), direction, sentence, model))

    projected = metrics.SC1.after
    if projected is not None:
        same = projected.same_cosine
        sentence = (
            f"contexts with equal supports: cosine {same:.3f} after projection, "
            f"{projected.other_cosine:.3f} between different supports"
        )
        findings.append(_finding("COLLAPSE", _level(same), same, sentence, model))

    outside = metrics.outside_mass
    if outside > SMALL_OUTSIDE_MASS:
        sentence = (
            f"{outside:.1%} of the probability lies outside the supports: it generalises, or has "
            "not fitted"
        )
        findings.append(_finding("OUTSIDE", "notice", outside, sentence, model))
    return findings


def _level(cosine: float) -> Literal["good", "notice"]:
    return "good" if cosine > HIGH_COSINE else "notice"
