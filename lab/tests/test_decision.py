"""The one rule: every verdict can come out, of every claim, and none by luck."""

from dataclasses import replace

import numpy as np
import pytest
from headscan_lab.ledger.claim import CLAIMS, Claim
from headscan_lab.ledger.decision import decide, side
from headscan_lab.ledger.experiment import VERDICTS, ExperimentOutcome, Region
from headscan_lab.ledger.measurement import Measurement, difference_of, mean_of, share_of
from headscan_lab.ledger.run import all_claims
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NUMBERS = sorted(all_claims())
CAUSE = "the optimiser failed"


def estimate_of(
    low: float, high: float, *, tokens: int = 240, seeds: int = 5, prompts: int = 40
) -> Measurement:
    return Measurement(
        name="x",
        value=(low + high) / 2,
        interval=(low, high),
        tokens=tokens,
        seeds=seeds,
        prompts=prompts,
    )


def tried(claim: Claim) -> Claim:
    """The claim as if it were about something that is here."""
    return replace(claim, large=False)


@pytest.mark.parametrize("number", [n for n in NUMBERS if all_claims()[n].experiment is not None])
def test_every_claim_can_hold_and_can_fail(number):
    """Within the values that its quantity can have, with the power that it asks for: no rule is a
    foregone conclusion.
    """
    claim = tried(all_claims()[number])
    low, high = claim.experiment.words.range
    bounds = claim.counts.bounds()
    steps = [low + (high - low) * k / 64 for k in range(65)] + [
        b + d for b in bounds for d in (-1e-3, 0, 1e-3)
    ]
    seeds = claim.experiment.power.seeds
    points = [estimate_of(x, x, seeds=seeds) for x in steps if low <= x <= high]
    points += [estimate_of(b - 1e-3, b + 1e-3, seeds=seeds) for b in bounds]
    beside = None
    if claim.control is not None:  # a control that shows no other cause
        apart = next(x for x in (0.0, *steps) if not claim.control.holds(x))
        beside = estimate_of(apart, apart)
    reached = {
        decide(claim, ExperimentOutcome(effect=x, control=beside, cause=CAUSE)).tendency
        for x in points
    }
    assert {"supported", "refuted", "undecided"} <= reached
    assert (claim.control is not None) <= type(claim.experiment).controlled
    if claim.control is not None:
        effect = next(x for x in points if side(x, claim.counts) == "in")
        values = (0.0, 0.5, 1.0, low, high)
        verdicts = {
            decide(
                claim, ExperimentOutcome(effect=effect, control=estimate_of(x, x), cause=CAUSE)
            ).verdict
            for x in values
        }
        assert verdicts == {"confounded", "supported"}


def test_a_named_large_model_is_never_more_than_a_tendency():
    for claim in all_claims().values():
        if claim.large:
            assert claim.command, claim.id
            for x in (0.0, 0.5, 1.0) if claim.experiment is not None else ():
                decision = decide(claim, ExperimentOutcome(effect=estimate_of(x, x, seeds=40)))
                assert decision.verdict == "not tested"
                assert decision.tendency in VERDICTS[:4]
        for name in ("llama", "gpt-j", "gpt2", "mistral", "bert-base", "pythia"):
            assert claim.large or name not in claim.model.lower(), claim.id


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine draws slowly
@given(st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 1), st.floats(0, 0.5))
def test_a_verdict_follows_from_the_interval_and_not_from_the_estimate(
    value, reach, bound, control
):
    claim = tried(replace(all_claims()[75], counts=Region(None, bound)))
    low = max(0.0, value - reach)
    high = min(1.0, value + reach)
    decision = decide(
        claim,
        ExperimentOutcome(
            effect=estimate_of(low, high),
            control=estimate_of(0.5 - control, 0.5 + control),
            cause=CAUSE,
        ),
    )
    if high <= bound:
        if 0.5 - control >= 0.9:
            expected = "confounded"
        else:
            expected = "supported" if 0.5 + control < 0.9 else "undecided"
        assert decision.verdict == expected
    elif low > bound:
        assert decision.verdict == "refuted"
    else:
        assert decision.verdict == "undecided"


def test_what_would_decide_is_told():
    claim = tried(all_claims()[1])
    # At .8 with a reach of .15 on 40 prompts, the bound .9 is cleared when the reach is .1: 40 ·
    # (.15/.1)² = 90 prompts.
    assert decide(claim, ExperimentOutcome(effect=estimate_of(0.65, 0.95))).more == 50
    # on the bound: no number would
    assert decide(claim, ExperimentOutcome(effect=estimate_of(0.8, 1.0))).more is None
    # 20 tokens are missing, 4.5 come with a prompt.
    assert decide(claim, ExperimentOutcome(effect=estimate_of(0, 0, tokens=180))).more == 5
    assert decide(claim, ExperimentOutcome(effect=estimate_of(0, 0, seeds=2))).more == 3


def test_a_search_that_does_not_work_explains_nothing():
    claim = tried(all_claims()[75])
    # nor one that was not made
    assert decide(claim, ExperimentOutcome(effect=estimate_of(0.0, 0.1))).verdict == "undecided"
    lost = estimate_of(0.0, 0.1)
    nothing = estimate_of(0.0, 0.1)
    works = estimate_of(0.95, 1.0), estimate_of(0.4, 0.6)
    verdicts = [
        decide(
            claim, ExperimentOutcome(effect=lost, control=nothing, cause=CAUSE, works=work)
        ).verdict
        for work in works
    ]
    assert verdicts == ["supported", "undecided"]
    # two descents that find nothing are not alike
    even = tried(all_claims()[125])
    apart = estimate_of(-0.09, 0.09)
    pairs = (nothing, estimate_of(0.0, 0.09)), (estimate_of(0.8, 1.0), nothing)
    assert [
        decide(even, ExperimentOutcome(effect=apart, beside=pair)).verdict for pair in pairs
    ] == ["undecided", "supported"]


def test_intervals_never_close_by_luck():
    same = share_of("x", [[[1.0] * 5] * 8] * 5)
    assert same.interval[0] < 0.95
    assert same.tokens == 200
    by_seed = share_of("x", [[[float(k % 2)] * 5] * 8 for k in range(5)])
    mixed = share_of("x", [[[float(p % 2)] * 5 for p in range(8)]] * 5)
    assert by_seed.interval[1] - by_seed.interval[0] > 2 * (mixed.interval[1] - mixed.interval[0])
    difference = difference_of("x", same, by_seed)
    assert difference.interval[0] < difference.value <= difference.interval[1]


def test_the_ledger_has_each_claim_once_with_its_protocol():
    later = [501, 511, 512, 513, 514, 521, 531, 532, 533, 541, 542, 543]
    early = [
        *range(1, 22),
        24,
        26,
        27,
        *range(28, 131),
        *range(201, 217),
        *range(301, 306),
        *range(401, 426),
    ]
    assert early + later == NUMBERS
    for claim in map(CLAIMS.__getitem__, CLAIMS):
        assert claim.statement.endswith("."), claim.id
        assert claim.place, claim.id
        assert claim.model, claim.id


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 5), (0.8, 5), (0.9, 20), (0.97, 100)])
def test_the_interval_of_a_bounded_mean_lies_between_its_bounds_and_covers(mean, spread):
    """Five draws of a beta distribution, stretched to [-1, 1]; Student's, cut at 1, covers 91 to 94
    % of the skewed.
    """
    truth = 2 * mean - 1
    draws = 2 * np.random.default_rng(0).beta(mean * spread, (1 - mean) * spread, (4000, 5)) - 1
    ends = np.array(
        [mean_of("x", list(draw), unit="cosine", bounds=(-1.0, 1.0)).interval for draw in draws]
    )
    assert np.abs(ends).max() <= 1
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() > 0.93


def test_an_interval_of_equal_numbers_does_not_close():
    estimate = mean_of("x", [0.0] * 5, unit="share", prompts=1000, bounds=(0.0, 1.0))
    assert estimate.interval == pytest.approx((0.0, 3.84 / 1003.84), rel=0.01)
    assert mean_of("x", [1.0] * 5, unit="share", bounds=(0.0, 1.0)).interval[0] < 0.5
