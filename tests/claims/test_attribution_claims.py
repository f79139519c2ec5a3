"""The claims on attribution: all there, and they run."""

from __future__ import annotations

import pytest
import torch

import headscan.claims.attribution  # noqa: F401 (enters its claims)
from headscan.claims import CLAIMS
from headscan.claims.small_models import language, small

NUMBERS = range(22, 28)


def test_every_claim_is_there():
    assert set(NUMBERS) <= set(CLAIMS)
    for number in NUMBERS:
        assert CLAIMS[number].statement.endswith(".")


@pytest.mark.parametrize("number", [23, 25, 26])
def test_a_claim_runs(number):
    verdict = CLAIMS[number].check(seed=1)
    assert verdict.outcome == "reproduced"
    assert verdict.measured


def test_the_language_can_be_learned():
    ids = language(0, 16, 16)
    with torch.no_grad():
        losses = [float(small(steps=steps, seed=1).model(input_ids=ids, labels=ids).loss) for steps in (0, 300)]
    assert losses[1] < losses[0] - 1
