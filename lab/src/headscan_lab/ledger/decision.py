"""The one rule that turns what was measured into a verdict, whatever the claim.

The interval of the effect lies inside the region that counts: the claim holds. Outside: it fails.
Across a bound, or with less power than the protocol asks for: undecided. An effect that holds and
has a control is confounded where the control lies inside its own region, stands where it lies
outside, and is undecided between, or where the control could not work.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from headscan_lab.ledger.claim import Claim
from headscan_lab.ledger.experiment import ClaimVerdict, ExperimentOutcome, Power, Region, Tendency
from headscan_lab.ledger.measurement import Measurement

WORKS = Region(0.9, None)
"""A search counts as working where it finds so much of what is certainly there."""


@dataclass(frozen=True)
class Decision:
    """A verdict, and its reasons.

    Attributes:
        verdict: of the claim.
        tendency: of the experiment, which a claim not tested keeps beside its verdict; None where
            nothing was measured.
        more: so many more prompts (or seeds, where there are no prompts) would decide at the effect
            seen; None where it is decided, or where the estimate lies on a bound and no number
            would.
        why: one sentence.
    """

    verdict: ClaimVerdict
    tendency: Tendency | None
    more: int | None
    why: str


@dataclass(frozen=True)
class _Trend:
    """The tendency of an experiment, the missing prompts or seeds, and one sentence."""

    tendency: Tendency
    more: int | None
    why: str


def side(measured: Measurement, region: Region) -> Literal["in", "out", "across"]:
    """Return where an interval lies against a region.

    >>> low = Measurement(name="x", value=0.1, interval=(0.05, 0.2))
    >>> side(low, Region(None, 0.5)), side(low, Region(0.5, None)), side(low, Region(0.15, None))
    ('in', 'out', 'across')
    """
    low, high = measured.interval
    if region.holds(low) and region.holds(high):
        return "in"
    below = region.low is not None and high < region.low
    above = region.high is not None and low > region.high
    return "out" if below or above else "across"


def decide(claim: Claim, outcome: ExperimentOutcome | None) -> Decision:
    """Return the verdict of a claim on an outcome; None stands for no experiment."""
    if claim.experiment is None or claim.counts is None or outcome is None:
        return _untested(claim, outcome)
    if outcome.effect is None:
        return _untested(claim, outcome)
    trend = _trend(claim.counts, claim.control, outcome, claim.experiment.power)
    verdict: ClaimVerdict = "not tested" if claim.large else trend.tendency
    why = trend.why
    if claim.corrected and verdict == "refuted":
        verdict = "misprint"
        why = f"{why} Instead: {claim.corrected}."
    return Decision(verdict, trend.tendency, trend.more, why)


def _untested(claim: Claim, outcome: ExperimentOutcome | None) -> Decision:
    note = "" if outcome is None else outcome.note
    why = note or claim.untried or "Nothing here measures it yet; the command would."
    return Decision("not tested", None, None, why)


def _trend(
    counts: Region, control: Region | None, outcome: ExperimentOutcome, power: Power
) -> _Trend:
    effect = outcome.effect
    assert effect is not None
    # One trained model has no seeds to draw: only the protocol's tokens are asked for.
    if len(set(outcome.models)) == 1:
        power = replace(power, seeds=1)
    shortfall = _shortfall(effect, power)
    if shortfall:
        why = f"{effect}: fewer seeds or tokens than the protocol asks."
        return _Trend("undecided", shortfall, why)

    comparison = f"{effect}; {counts} would count"
    position = side(effect, counts)
    if position == "across":
        return _Trend("undecided", _missing_sample(effect, counts), f"{comparison}.")
    if position == "out":
        return _Trend("refuted", None, f"{comparison}.")
    if control is None:
        if _neither_finds_anything(counts, outcome):
            return _Trend(
                "undecided", None, f"{comparison}; but neither of the two finds anything."
            )
        return _Trend("supported", None, f"{comparison}.")
    return _controlled_trend(comparison, control, outcome)


def _neither_finds_anything(counts: Region, outcome: ExperimentOutcome) -> bool:
    """Return whether a small difference is one of two shares that are both near zero."""
    floor = counts.high if counts.low is not None and counts.low < 0 else None
    if not floor or len(outcome.beside) < 2:
        return False
    return all(measurement.interval[1] <= floor for measurement in outcome.beside[:2])


def _controlled_trend(comparison: str, control: Region, outcome: ExperimentOutcome) -> _Trend:
    """Return the trend of an effect that was seen, by its control."""
    if outcome.control is None:
        return _Trend("undecided", None, f"{comparison}, but the control was not measured.")
    comparison = f"{comparison}. {outcome.control}"
    position = side(outcome.control, control)
    if position == "in":
        return _Trend("confounded", None, f"{comparison}: {outcome.cause}.")
    if outcome.works is not None and side(outcome.works, WORKS) != "in":
        why = f"{comparison}; but the control itself is not seen to work: {outcome.works}."
        return _Trend("undecided", None, why)
    if position == "across":
        missing = _missing_sample(outcome.control, control)
        return _Trend("undecided", missing, f"{comparison}: whether {outcome.cause} is open.")
    return _Trend("supported", None, f"{comparison}: that {outcome.cause} is ruled out.")


def _shortfall(effect: Measurement, power: Power) -> int:
    """Return how many more prompts (or seeds) the protocol asks for."""
    if effect.tokens < power.tokens:
        tokens_a_prompt = effect.tokens / effect.prompts if effect.prompts else 1.0
        return math.ceil((power.tokens - effect.tokens) / max(tokens_a_prompt, 1e-9))
    return max(0, power.seeds - effect.seeds)


def _missing_sample(measured: Measurement, region: Region) -> int | None:
    """Return how many more prompts (or seeds) would clear the nearest bound.

    At the value seen an interval shrinks with the root of the sample. The number is None where the
    value lies on the bound.
    """
    low, high = measured.interval
    crossed = [bound for bound in region.bounds() if low <= bound <= high]
    gap = min(abs(measured.value - bound) for bound in crossed)
    reach = max(
        high - measured.value if bound >= measured.value else measured.value - low
        for bound in crossed
    )
    sample = measured.prompts or measured.seeds
    if gap <= 1e-9 or not sample:
        return None
    return math.ceil(sample * ((reach / gap) ** 2 - 1)) or 1
