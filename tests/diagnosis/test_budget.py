"""A budget of time is kept: what it has no room for is left out, and said."""

import pytest

import headscan
from headscan.diagnosis import plan
from headscan.diagnosis import run as examine
from headscan.diagnosis.plan import Deadline, OutOfTime
from tests.diagnosis.conftest import TEXT


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
    return headscan.checkup(lens, TEXT, context=16, max_tokens=1200, budget="2m").examinations[0].evidence


def slowed(monkeypatch, clock, number: int) -> list[int]:
    """Makes a scan, by its number, take longer than the budget; the tokens that each is asked for."""
    scanned, calls = examine._scanned, []

    def slow(lens, settings, progress, tokens, measures):
        calls.append(tokens)

        def told(*words):
            clock.now += 130 * (len(calls) == number)
            progress(*words)

        return scanned(lens, settings, told, tokens, measures)

    monkeypatch.setattr(examine, "_scanned", slow)
    return calls


def test_after_a_scan_that_took_the_budget_nothing_else_is_begun(lens, clock, monkeypatch):
    slowed(monkeypatch, clock, 1)
    found = evidence(lens)
    assert found.loss is not None
    assert (found.read, found.bits, found.flow, found.cure, found.nulls) == (None, None, None, None, [])
    for part in ("No prompt was", "No bits", "Flow between", "No remedy", "Random weights"):
        assert any(one.startswith(part) for one in found.skipped), part


def test_a_scan_of_random_weights_that_takes_too_long_is_stopped(lens, clock, monkeypatch):
    calls = slowed(monkeypatch, clock, 2)
    found = evidence(lens)
    assert calls == [1200, 1200]
    assert found.sites[0]["tokens"] == 1200
    assert found.nulls == []
    assert found.read.prompts == 4
    assert found.skipped == ["Random weights were not scanned for comparison: there was no time in 2m."]


def test_work_is_done_piece_by_piece_as_long_as_there_is_time(clock):
    until, done = Deadline.of("2m"), []

    def ten():
        clock.now += 10
        done.append(clock.now)

    assert len(until.within(35).each([ten] * 9)) == 3  # the fourth would end after the time
    assert until.left == pytest.approx(115.2 - 30, abs=1e-3)

    def endless():
        progress = until.kept(lambda *words: None)
        while True:
            clock.now += 1
            progress("searching", 0, None, "tokens")

    assert until.each([ten, endless, ten]) == [None]
    assert until.left <= 0
    assert until.each([ten]) == []
    with pytest.raises(OutOfTime):
        until.kept(lambda *words: None)("anything", 0, None, "tokens")
    until.kept(lambda *words: None)("what is done already stays", 9, 9, "tokens")
