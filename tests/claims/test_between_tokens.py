"""Claims on attention alone and on one output alone: all there, and their verdicts follow from their numbers."""

from __future__ import annotations

import shlex

import pytest

from headscan.claims.between_tokens import COMMANDS, measure, missing, present
from headscan.claims.ledger import all_claims

NUMBERS = [90, 91, 92, 98, 100, 101, 124]


def test_every_claim_is_there_with_its_command():
    known = all_claims()
    assert sorted(COMMANDS) == NUMBERS
    for number in NUMBERS:
        assert known[number].experiment.__module__ == "headscan.claims.between_tokens"
        assert known[number].statement.endswith(".")
        assert shlex.split(COMMANDS[number])[:2] == ["headscan", "invert"]


def test_verdicts_follow_from_numbers():
    found = {"hidden_published": 0.0, "hidden_adam": 0.0, "hidden_exact": 1.0}
    assert missing(found).outcome == "artefact"
    assert missing(found | {"hidden_exact": 0.0}).outcome == "reproduced"
    assert missing(found | {"hidden_published": 1.0}).outcome == "not reproduced"
    assert present(found).outcome == "not reproduced"
    assert present(found | {"hidden_adam": 0.5}).outcome == "reproduced"


@pytest.mark.parametrize(("cut", "first"), [("attention", 1), ("whole", -1)])
def test_exact_search_finds_what_is_hidden(cut, first):
    found = measure(0, first, 1, seed=1, width=32, cut=cut)
    assert found["hidden_exact"] == 1.0
    assert found["margin"] > 1e-4
