"""The verb: claims one after another, typed, and taken up where a kill left off."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from headscan.claims import CLAIMS
from headscan.claims.ledger import ReproduceResult, all_claims, reproduce
from headscan.run import BadInput

KILLED = """
import os, signal
from headscan.claims.ledger import reproduce

def progress(stage, done, total=None, unit="tokens"):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

reproduce(["7", "105", "402"], seed=3, out={out!r}, progress=progress)
"""


def never(seed):
    raise AssertionError("what was finished is done again")


def test_a_killed_ledger_goes_on_where_it_was(tmp_path, monkeypatch):
    all_claims()
    out = tmp_path / "killed"
    done = subprocess.run([sys.executable, "-c", KILLED.format(out=str(out))], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    for number in (7, 105):
        monkeypatch.setitem(CLAIMS, number, replace(CLAIMS[number], experiment=never))
    with pytest.raises(BadInput, match="--seed was 3 and is 4 now"):
        reproduce(["7", "105", "402"], seed=4, out=out, resume=True)
    with pytest.raises(BadInput, match="--claims was"):
        reproduce(["7", "105"], seed=3, out=out, resume=True)
    steps = []
    resumed = reproduce(["7", "105", "402"], seed=3, out=out, resume=True, progress=lambda *step: steps.append(step))
    assert steps == [("experiments", number, 3, "claims") for number in range(4)]
    monkeypatch.undo()
    whole = reproduce(["7", "105", "402"], seed=3)
    assert [replace(row, seconds=0.0) for row in resumed.claims] == [replace(row, seconds=0.0) for row in whole.claims]
    assert ReproduceResult.load(out).claims == resumed.claims


def test_claims_are_named_by_numbers_and_words_alike(tmp_path):
    result = reproduce("7")
    assert result.claims == [replace(row, seconds=result.claims[0].seconds) for row in reproduce([7]).claims]
    assert list(result.frame().columns) == ["number", "statement", "source", "outcome", "why", "seconds"]
    with pytest.raises(BadInput, match="no claim"):
        reproduce(["7", "x"], out=tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_the_schema_says_what_a_verdict_is():
    schema = ReproduceResult.json_schema()
    assert set(schema["$defs"]["ClaimRecord"]["properties"]) == {
        "number", "statement", "source", "outcome", "why", "measured", "seconds",
    }  # fmt: skip
