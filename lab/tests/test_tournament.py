"""The tournament: bit for bit over a resume and beside another process, its numbers from its
moments, its words from them.
"""

import json
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from headscan_lab.tournament.race import SHAPES, Moment, Race, pace, stop
from headscan_lab.tournament.run import Tournament, tournament
from headscan_lab.tournament.table import (
    ArmDifference,
    arm_row,
    at_loss,
    at_seconds,
    compare,
    sentence_of,
)
from headscan_lab.tournament.variants import ARMS

import headscan
from headscan import BadInput

SMALL = {
    "arms": "ce,ce+unigram",
    "seeds": 2,
    "steps": 3,
    "cells": "300/8,260/8",
    "rates": "0.01,0.03",
    "matched_loss": 5.5,
}


def _without_seconds(result):
    text = json.dumps(result.document["races"])
    races = json.loads(text)
    for race in races:
        assert race.pop("seconds_a_step") > 0
    return races


def test_two_arms_and_two_seeds_resumed_bit_for_bit(story_file, tmp_path, monkeypatch):
    uninterrupted = tournament(str(story_file), out=tmp_path / "a", processes=1, **SMALL)
    assert [
        len(uninterrupted.arms),
        len(uninterrupted.rates),
        len(uninterrupted.others),
        len(uninterrupted.races),
    ] == [2, 4, 2, 8 + 4]
    for row in uninterrupted.arms:
        for name in (
            "arm",
            "seeds",
            "rate",
            "heldout_nats",
            "average_cosine_at_matched_loss",
            "kept_norm",
            "sentence",
        ):
            assert name in row
            assert name in ("arm", "seeds", "rate", "sentence") or f"{name}_interval" in row
    assert {race.rate for race in uninterrupted.races} == {0.01, 0.03}
    page = uninterrupted.page()
    assert "Leaderboard" in page
    assert uninterrupted.protocol.started[:10] in page
    assert headscan.load(tmp_path / "a").document == uninterrupted.document

    from headscan_lab.tournament import race as module

    real = module.race
    ran = []

    def stopped(job, *args):
        ran.append(job.name)
        if len(ran) == 5:
            raise KeyboardInterrupt
        return real(job, *args)

    monkeypatch.setattr(module, "race", stopped)
    with pytest.raises(KeyboardInterrupt):
        tournament(str(story_file), out=tmp_path / "b", processes=1, **SMALL)
    with pytest.raises(BadInput, match="--steps was 3"):
        tournament(
            str(story_file), out=tmp_path / "b", processes=1, resume=True, **SMALL | {"steps": 4}
        )
    monkeypatch.setattr(
        module, "race", lambda job, *args: (ran.append(job.name), real(job, *args))[1]
    )
    again = tournament(str(story_file), out=tmp_path / "b", processes=1, resume=True, **SMALL)
    assert len(ran) == 5 + 8  # the fifth was run twice, the first four were not
    assert _without_seconds(again) == _without_seconds(uninterrupted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arms": "magic*"}, "There is no arm 'magic"),
        ({"cells": "4096"}, "--cells are pairs"),
        ({"cells": "300/9"}, "divisible by the 4 attention heads"),
        ({"rates": "0.1,x"}, "--rates are numbers"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"matched_loss": float("nan")}, "--matched-loss must be a finite number"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(BadInput, match=message):
        tournament("no such text", **options)


# ---- numbers


def _moment(step, nats, cosine, inner=None):
    shape = dict.fromkeys(SHAPES, 1.0) | {
        "average_cosine": cosine,
        "average_cosine_without_ones": inner or cosine,
    }
    return Moment(step=step, nats=nats, **shape)


def _race(arm, seed, cosine, inner=None, *, rate=1e-3, speed=10):
    moments = [
        _moment(0, 8.0, 0.9),
        _moment(speed, 6.0, 2 * cosine, inner),
        _moment(40, 4.0, 0.0, inner),
    ]
    return Race(
        arm=arm,
        vocabulary=300,
        width=8,
        rate=rate,
        seed=seed,
        tuning_nats=4.0,
        tokens_a_step=100,
        moments=moments,
        seconds_a_step=2.0,
    )


def test_a_run_is_read_where_its_loss_is_the_matched_one():
    race = _race("ce", 0, 0.3)
    matched = at_loss(race, 5.0)  # half way from step 10 to 40
    assert matched["tokens"] == 2500
    assert matched["average_cosine"] == pytest.approx(0.3)
    assert at_loss(race, 3.9)["tokens"] is None
    assert at_loss(race, 8.0)["tokens"] is None  # it begins there
    assert at_seconds(race, 50.0) == pytest.approx(5.0)
    assert at_seconds(race, 100.0) is None
    row = arm_row([race, _race("ce", 1, 0.4)], about="", matched=5.0, seconds=50.0)
    assert row.number("average_cosine_at_matched_loss") == pytest.approx(0.35)
    low, high = row.interval("average_cosine_at_matched_loss")
    assert (high - low) / 2 == pytest.approx(
        12.706 * np.std([0.3, 0.4], ddof=1) / np.sqrt(2), rel=1e-3
    )
    assert row["seeds_that_reach_it"] == 2
    never = arm_row(
        [replace(race, moments=race.moments[:2], tuning_nats=None)],
        about="",
        matched=5.0,
        seconds=50.0,
    )
    assert never.number("heldout_nats") is None
    assert never.number("tokens_to_matched_loss") is None


def test_a_pace_is_taken_of_all_arms_in_turn_so_that_a_machine_that_slows_down_slows_all(
    monkeypatch,
):
    now = [0.0]
    turns = []

    class Slowing:
        def __init__(self, job, *args):
            self.name = job.arm

        def step(self):
            now[0] += (2.0 if self.name == "headless" else 1.0) * 1.01 ** len(turns)
            turns.append(self.name)

    monkeypatch.setattr("headscan_lab.tournament.race.Runner", Slowing)
    monkeypatch.setattr("headscan_lab.tournament.race.time.process_time", lambda: now[0])
    plan = tournament.verb.given(("no text",), {}).chosen(Tournament).plan
    paces = pace(["ce", "headless"], plan.cells[0], plan, None, 0)
    assert turns == (["ce"] * 3 + ["headless"] * 3) * 4
    assert paces.of("headless") / paces.of("ce") == pytest.approx(2.0, rel=0.05)


def _told(cosines, other_cosines, *, inner=(None, None), speeds=(10, 10), more_differences=()):
    arm = [_race("x", k, cosine, inner[0], speed=speeds[0]) for k, cosine in enumerate(cosines)]
    reference = [
        _race("ce", k, cosine, inner[1], speed=speeds[1]) for k, cosine in enumerate(other_cosines)
    ]
    differences = compare(arm, reference, where="own rates", matched=5.0, arms=1)
    return sentence_of([*differences, *more_differences], 5.0)


def test_the_words_are_those_of_the_numbers():
    clear = [0.10, 0.11, 0.09, 0.10, 0.105]
    larger = [0.30, 0.32, 0.29, 0.31, 0.3]
    assert "smaller than that of ce: 0.101 against 0.304." in _told(clear, larger)
    assert "larger than that of ce" in _told(larger, clear)
    assert "not told apart" in _told([0.1, 0.5, 0.2, 0.4, 0.3], larger)
    assert "only moved" not in _told(clear, larger)
    moved = _told(clear, larger, inner=(0.3, 0.3))
    assert "The cone has only moved: without the direction of ones" in moved
    assert "Two seeds that reach" in _told(clear[:1], larger[:1])
    assert "equal tokens its held-out loss is not told apart" in moved
    assert "fewer tokens, 0.88 times as many" in _told(clear, larger, speeds=(4, 10))
    assert "tokens" not in _told(clear, larger).replace("equal tokens", "")
    flat = ArmDifference(
        arm="x",
        reference="ce",
        measure="effective_rank",
        where="own rates",
        seeds=5,
        value=2.3,
        reference_value=6.6,
        difference=-4.3,
        interval=(-6.0, -2.0),
        neutral=0.0,
    )
    assert "Part of it has only moved" in _told(
        clear, larger, inner=(0.2, 0.3), more_differences=[flat]
    )
    assert "Part of it has only moved" not in _told(larger, clear, more_differences=[flat])
    turned = ArmDifference(
        arm="x",
        reference="ce",
        measure="average_cosine",
        where="rate 0.003",
        seeds=5,
        value=0.3,
        reference_value=0.2,
        difference=0.1,
        interval=None,
        neutral=0.0,
    )
    assert "(not at rate 0.003)" in _told(clear, larger, more_differences=[turned])


def test_every_arm_has_words_and_the_first_is_plain():
    assert next(iter(ARMS)) == "ce"
    assert all(arm.about for arm in ARMS.values())
    assert len(ARMS) >= 12


def test_an_interruption_leaves_no_process_running():
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        waiting = pool.submit(time.sleep, 60)
        (process,) = pool._processes.values()
        stop(pool)
        started = time.monotonic()
        while process.exitcode is None and time.monotonic() < started + 30:
            # the pool's own thread waits for the process, too: of two that do, one is told nothing
            # at first
            time.sleep(0.01)
        assert process.exitcode == -signal.SIGKILL
        assert not waiting.done() or waiting.exception() is not None
