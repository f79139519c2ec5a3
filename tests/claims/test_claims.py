"""The ledger, and the tool behind the claims on mixers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import headscan.claims.mixers  # noqa: F401 (enters its claims)
from headscan.claims import CLAIMS, Verdict, claim
from headscan.claims.mixer_recall import SIZE, body, language, recall
from headscan.run import BadInput


def test_the_mixer_claims_are_all_there():
    assert set(range(105, 123)) <= set(CLAIMS)
    for number, entry in CLAIMS.items():
        assert entry.number == number
        assert entry.statement.endswith(".")
        assert entry.source


def test_a_claim_runs_and_its_verdict_carries_numbers():
    verdict = CLAIMS[105].check(seed=1)
    assert verdict.outcome == "reproduced"
    assert verdict.measured["own"] == 1.0
    assert verdict.seconds > 0


def test_the_ledger_refuses_doubles_and_odd_verdicts():
    with pytest.raises(BadInput, match="twice"):
        claim(105, "Again.", "nobody")(lambda seed: Verdict("reproduced", ""))
    with pytest.raises(ValueError, match="verdict"):
        Verdict("perhaps", "")  # type: ignore[arg-type]


def test_recall_knows_what_is_there_and_what_is_not():
    model = body("flat", 64, 1)
    found = recall(model, first=1, steps=60)
    assert found.exact == 1.0
    # Cut the wire from position 0 to all others: now nothing of it is left, and the search must say so.
    with torch.no_grad():
        for layer in model.layers:
            layer.mixing.weight[1:, 0] = 0
    blind = recall(model, first=1, steps=60)
    assert blind.exact < 0.5
    assert blind.hidden < 0.5
    assert blind.margin < 1e-6


def test_the_language_is_learnable_and_repeatable():
    ids = language()(50, 3)
    assert torch.equal(ids, language()(50, 3))
    assert int(ids.max()) < SIZE
    pairs = {(int(a), int(b)) for row in ids for a, b in pairwise(row)}
    successors: dict[int, set[int]] = {}
    for a, b in pairs:
        successors.setdefault(a, set()).add(b)
    assert max(map(len, successors.values())) <= 8
