"""A budget of time is kept: what it has no room for is left out, and said."""

from functools import partial
from types import SimpleNamespace
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


class TimedModel(SimpleNamespace):
    """A model whose passes take a time by a clock that stands otherwise. On a device a pass is only
    begun, and takes its time where a number of its states is read.
    """

    sentence = None
    context_length = None
    vocabulary_size = 100
    sites = ("embedding", "block.0", "head")

    def run(self, ids, sites, each):
        self.shapes.append(tuple(ids.shape))
        self.read.append(sites)
        took = self.first if len(self.shapes) == 1 else ids.numel() * self.seconds_a_token
        each(sites[0], Waiting(self.clock, took))


class Waiting:
    """States that are there once one of them was read."""

    def __init__(self, clock, took):
        self.clock = clock
        self.took = took

    def flatten(self):
        return self

    def __getitem__(self, _):
        self.clock.now += self.took
        return 0.0


@pytest.mark.parametrize("seconds", [1e-7, 2e-5, 1e-3, 0.02, 0.3])
def test_the_plan_follows_the_speed_of_a_trial(clock, seconds):
    """Also where the first pass takes long, as it does: 30 s do not count."""
    model = TimedModel(clock=clock, first=30.0, seconds_a_token=seconds, shapes=[], read=[])
    planned_with = plan.work(model)
    assert seconds / 1.5 < planned_with < seconds * 1.5
    assert model.shapes[0] == (1, 16)
    assert set(model.read) == {("head",)}
    assert sum(rows * length for rows, length in model.shapes) <= 2 * 2048 + 512 + 128 + 16
    # a trial of a slow model takes the time of few tokens
    assert clock.now - 30 < max(1.5, 129 * seconds)


def test_a_faster_machine_reads_more(clock):
    tokens = []
    for seconds in (1e-4, 1e-3, 0.01, 0.1):
        model = TimedModel(clock=clock, first=0.0, seconds_a_token=seconds, shapes=[], read=[])
        tokens.append(plan.planned("2m", plan.work(model)).tokens)
    assert tokens[0] > tokens[1] > tokens[2] > tokens[3]


def test_two_trials_of_one_machine_make_one_plan(clock):
    """They differ by some hundredths."""
    speeds = set()
    for seconds in (0.95e-3, 1e-3, 1.05e-3):
        model = TimedModel(clock=clock, first=0.0, seconds_a_token=seconds, shapes=[], read=[])
        speeds.add(plan.work(model))
    assert len(speeds) == 1


def test_a_resumed_checkup_keeps_its_plan(tmp_path, monkeypatch):
    """Though the machine is a thousand times slower by then."""
    run = partial(headscan.checkup, "gpt-vanilla-early", "stories", context=32, max_tokens=320)
    with monkeypatch.context() as broken:
        broken.setattr(stages, "fingerprint_of", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(out=tmp_path)
    plans = []
    monkeypatch.setattr(
        stages,
        "planned",
        lambda *args, **named: plans.append(plan.planned(*args, **named)) or plans[-1],
    )
    monkeypatch.setattr(stages, "work", lambda lens, context: 1.0)
    run(out=tmp_path, resume=True)
    assert plans[0].tokens == 320
    assert plans[0].prompts == 4


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
