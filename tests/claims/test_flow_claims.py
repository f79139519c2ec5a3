"""The claims on attribution, information between tokens and the channel: all there, and they run."""

from __future__ import annotations

import pytest

import headscan.claims.attribution
import headscan.claims.channel
import headscan.claims.non_self  # noqa: F401 (enters its claims)
from headscan.claims import CLAIMS, OUTCOMES
from headscan.claims.non_self import larger, missing, present
from headscan.claims.small_models import language, small

NUMBERS = [*range(22, 28), *range(71, 105), *range(123, 127)]


def test_every_claim_is_there():
    assert set(NUMBERS) <= set(CLAIMS)
    for number in NUMBERS:
        assert CLAIMS[number].statement.endswith(".")


def test_verdicts_follow_from_numbers():
    found = {"hidden_published": 0.0, "hidden_adam": 0.0, "hidden_exact": 1.0}
    assert missing(found).outcome == "artefact"
    assert missing(found | {"hidden_exact": 0.0}).outcome == "reproduced"
    assert missing(found | {"hidden_published": 1.0}).outcome == "not reproduced"
    assert present(found | {"hidden_exact": 0.0}).outcome == "not reproduced"
    assert present(found).outcome == "reproduced"
    assert "headscan flow big/model" in larger("big/model", found).why


@pytest.mark.parametrize("number", [22, 23, 25, 26, 72, 93])
def test_a_claim_runs(number):
    verdict = CLAIMS[number].check(seed=1)
    assert verdict.outcome == "reproduced"
    assert verdict.measured
    assert verdict.outcome in OUTCOMES


def test_the_language_can_be_learned():
    ids = language(0, 16, 16)
    import torch

    with torch.no_grad():
        losses = [float(small(steps=steps, seed=1).model(input_ids=ids, labels=ids).loss) for steps in (0, 300)]
    assert losses[1] < losses[0] - 1
