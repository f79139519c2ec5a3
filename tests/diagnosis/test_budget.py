"""A budget of time is kept: what it has no room for is left out, and said."""

from functools import partial
from unittest import mock

import pytest

import headscan
from headscan.diagnosis import measurements, plan, stages
from headscan.diagnosis.plan import Deadline, OutOfTime
from tests.attack.kills import timeless
from tests.diagnosis.conftest import TEXT
from tests.tiny import save_tiny


class Clock:
    """Stands until it is moved on, but for a microsecond each time it is read."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(plan, "time", clock)
    return clock


def evidence(lens):
    return (
        headscan.checkup(lens, TEXT, context=16, max_tokens=1200, budget="2m")
        .examinations[0]
        .evidence
    )


def slowed(monkeypatch, clock, number: int) -> list[int]:
    """Makes a scan, by its number, take longer than the budget; the tokens that each is
    asked for.
    """
    scan_unit = stages._scan_unit
    calls = []

    def slow(unit, stage, lens, inputs, progress, tokens, measures):
        calls.append(tokens)

        def report(*args):
            if len(calls) == number:
                clock.now += 130
            progress(*args)

        return scan_unit(unit, stage, lens, inputs, report, tokens, measures)

    monkeypatch.setattr(stages, "_scan_unit", slow)
    return calls


def test_after_a_scan_that_took_the_budget_nothing_else_is_begun(lens, clock, monkeypatch):
    slowed(monkeypatch, clock, 1)
    findings = evidence(lens)
    assert findings.loss is not None
    assert (findings.read, findings.bits, findings.flow, findings.cure, findings.nulls) == (
        None,
        None,
        None,
        None,
        [],
    )
    for part in ("No prompt was", "No bits", "Flow between", "No remedy", "Random weights"):
        assert any(skipped.sentence.startswith(part) for skipped in findings.skipped), part


def test_a_scan_of_random_weights_that_takes_too_long_is_stopped(lens, clock, monkeypatch):
    calls = slowed(monkeypatch, clock, 2)
    findings = evidence(lens)
    assert calls == [1200, 1200]
    assert findings.sites[0]["tokens"] == 1200
    assert findings.nulls == []
    assert findings.read.prompts == 4
    assert [skipped.sentence for skipped in findings.skipped] == [
        "Random weights were not scanned for comparison: there was no time in 2m."
    ]


def test_a_stage_that_runs_out_of_time_is_left_out_whole(lens, clock, monkeypatch):
    inverted = []
    read = measurements.invert

    def slow(*args, **named):
        clock.now += 60
        inverted.append(read(*args, **named))
        return inverted[-1]

    monkeypatch.setattr(measurements, "invert", slow)
    findings = evidence(lens)
    assert findings.read is None
    assert 1 <= len(inverted) < 4
    skipped = findings.skipped[0]
    assert (skipped.sentence, skipped.option) == (
        "No prompt was inverted: there was no time in 2m.",
        "--budget 10m",
    )


def test_the_plan_is_by_work_and_knows_no_clock(lens, clock, monkeypatch):
    plans = []
    planned = stages.planned
    monkeypatch.setattr(
        stages,
        "planned",
        lambda *args, **named: plans.append(planned(*args, **named)) or plans[-1],
    )
    evidence(lens)
    monkeypatch.setattr(Clock, "perf_counter", lambda self: 50.0)
    evidence(lens)
    assert plans[0] == plans[1]
    linear = 2 * (12 * 32 * 32) + 256 * 32 + 64 * 32  # two blocks, tied table and head, positions
    assert plan.work(lens) == pytest.approx(2 * linear / plan.SPEED, rel=0.1)


def test_a_deadline_stops_what_watches_it(clock):
    until = Deadline.of("2m")
    clock.now += 200
    with pytest.raises(OutOfTime):
        until.kept(lambda *args: None)("anything", 0, None, "tokens")
    until.kept(lambda *args: None)("what is done already stays", 9, 9, "tokens")


def test_an_interrupted_checkup_of_one_model_goes_on_at_its_stage(tmp_path, monkeypatch):
    interrupted = mock.Mock(side_effect=KeyboardInterrupt)
    model = str(save_tiny(tmp_path / "tiny"))
    run = partial(headscan.checkup, model, "stories", context=32, max_tokens=320)
    uninterrupted = timeless(run().document)
    with monkeypatch.context() as broken:
        broken.setattr(measurements.Measurements, "_try_remedies", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(out=tmp_path / "out")
    # what was read and scanned is not read and scanned again
    monkeypatch.setattr(measurements, "invert", interrupted)
    monkeypatch.setattr(stages, "MEASURES", "none")
    assert timeless(run(out=tmp_path / "out", resume=True).document) == uninterrupted
