"""The tournament: bit for bit over a resume and beside another process, its numbers from its
moments.
"""

import signal
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from headscan_lab.tournament import workers
from headscan_lab.tournament.moment import SHAPES, Moment
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.reading import at_loss
from headscan_lab.tournament.run import best_rate, tournament
from headscan_lab.tournament.table import arm_row
from headscan_lab.tournament.variants import ARMS
from headscan_lab.tournament.workers import stop

import headscan
from headscan import BadInput

SMALL = {
    "arms": "ce,ce+unigram",
    "seeds": 2,
    "steps": 2,
    "vocabulary": 260,
    "width": 8,
    "matched_loss": 5.5,
    "processes": 1,
    "rates": "0.01",
}


def test_two_arms_and_two_seeds_resumed_bit_for_bit(story_file, tmp_path, monkeypatch):
    whole = tournament(str(story_file), out=tmp_path / "a", **SMALL)
    assert [len(whole.arms), len(whole.rates), len(whole.races)] == [2, 2, 4]
    for row in whole.arms:
        assert {"arm", "seeds", "rate", "reference"} <= row.keys()
        for name in ("heldout_nats", "average_cosine_at_matched_loss", "kept_norm"):
            assert name in row
            assert f"{name}_interval" in row
    page = whole.page()
    assert "Leaderboard" in page
    assert whole.protocol.started[:10] in page
    assert headscan.load(tmp_path / "a").document == whole.document

    real = workers.race
    ran = []

    def stopped(job, *rest):
        ran.append(job.name)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return real(job, *rest)

    def recorded(job, *rest):
        ran.append(job.name)
        return real(job, *rest)

    monkeypatch.setattr(workers, "race", stopped)
    with pytest.raises(KeyboardInterrupt):
        tournament(str(story_file), out=tmp_path / "b", **SMALL)
    with pytest.raises(BadInput, match="--steps was 2"):
        tournament(str(story_file), out=tmp_path / "b", resume=True, **SMALL | {"steps": 4})
    monkeypatch.setattr(workers, "race", recorded)
    again = tournament(str(story_file), out=tmp_path / "b", resume=True, **SMALL)
    assert len(ran) == 3 + 2  # the third was run twice, the first two were not
    assert again.document["races"] == whole.document["races"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arms": "magic*"}, "There is no arm 'magic"),
        ({"vocabulary": 9}, "--vocabulary must be at least 257"),
        ({"width": 9}, "divisible by the 4 attention heads"),
        ({"rates": "0.1,x"}, "--rates are numbers"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"matched_loss": float("nan")}, "--matched-loss must be a finite number"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(BadInput, match=words):
        tournament("no such text", **options)


def test_a_text_of_fewer_windows_than_a_batch_is_refused(story_file):
    with pytest.raises(BadInput, match=r"has \d windows of 64 tokens .* fewer than the \d+ of a"):
        tournament(str(story_file), max_tokens=200, **SMALL)


# ---- numbers


def _moment(step, nats, cosine):
    return Moment(step=step, nats=nats, **dict.fromkeys(SHAPES, 1.0) | {"average_cosine": cosine})


def _race(arm, seed, cosine, *, rate=1e-3, tuning=4.0):
    moments = [_moment(0, 8.0, 0.9), _moment(10, 6.0, 2 * cosine), _moment(40, 4.0, 0.0)]
    return Race(
        arm=arm, rate=rate, seed=seed, tuning_nats=tuning, tokens_a_step=100, moments=moments
    )


def test_a_run_is_read_where_its_loss_is_the_matched_one():
    race = _race("ce", 0, 0.3)
    reading = at_loss(race, 5.0)  # half way from step 10 to 40
    assert reading["tokens"] == 2500
    assert reading["average_cosine"] == pytest.approx(0.3)
    assert at_loss(race, 3.9)["tokens"] is None
    assert at_loss(race, 8.0)["tokens"] is None  # it begins there
    row = arm_row([race, _race("ce", 1, 0.4)], matched=5.0)
    assert row.number("average_cosine_at_matched_loss") == pytest.approx(0.35)
    low, high = row.interval("average_cosine_at_matched_loss")
    assert (high - low) / 2 == pytest.approx(
        12.706 * np.std([0.3, 0.4], ddof=1) / np.sqrt(2), rel=1e-3
    )
    assert row["seeds_that_reach_it"] == 2
    never = arm_row([replace(race, moments=race.moments[:2], tuning_nats=None)], matched=5.0)
    assert never.number("heldout_nats") is None
    assert never.number("tokens_to_matched_loss") is None


def test_an_arm_is_compared_with_its_reference_by_paired_seeds():
    races = [_race("headless", seed, cosine) for seed, cosine in enumerate((0.10, 0.12, 0.11))]
    references = [_race("ce", seed, cosine) for seed, cosine in enumerate((0.30, 0.31, 0.32))]
    row = arm_row(races, matched=5.0, references=references[:2], arms=1)
    differences = np.array([-0.20, -0.19])
    assert row["reference"] == "ce"
    assert row.number("average_cosine_less_reference") == pytest.approx(differences.mean())
    low, high = row.interval("average_cosine_less_reference")
    assert (high - low) / 2 == pytest.approx(
        12.706 * differences.std(ddof=1) / np.sqrt(2), rel=1e-3
    )
    wider = arm_row(races, matched=5.0, references=references[:2], arms=11)
    assert wider.interval("average_cosine_less_reference")[0] < low
    assert arm_row(races, matched=5.0).number("average_cosine_less_reference") is None


def test_the_best_rate_is_that_of_the_lowest_tuning_loss():
    races = [_race("ce", 0, 0.1, rate=rate, tuning=nats) for rate, nats in ((1.0, 4.0), (2.0, 3.0))]
    assert best_rate(races) == 2.0
    unfinished = _race("ce", 1, 0.1, rate=2.0, tuning=None)
    assert best_rate([*races, unfinished]) == 1.0
    assert best_rate([unfinished]) == 2.0


def test_every_arm_has_words_and_the_first_is_plain():
    assert next(iter(ARMS)) == "ce"
    assert all(arm.about for arm in ARMS.values())
    assert len(ARMS) >= 12


def test_an_interruption_leaves_no_process_running():
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        waiting = pool.submit(time.sleep, 60)
        (process,) = pool._processes.values()
        stop(pool)
        before = time.monotonic()
        while process.exitcode is None and time.monotonic() < before + 30:
            # The pool's own thread waits for the process, too: of two that do, one is not told.
            time.sleep(0.01)
        assert process.exitcode == -signal.SIGKILL
        assert not waiting.done() or waiting.exception() is not None
