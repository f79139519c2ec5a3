"""What a step of each arm costs: all arms in turn, again for every seed, so that what else a machine does falls on all alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscan.training.racing.plan import GridCell, TournamentPlan
from headscan.training.racing.race import Ground, Job, Runner, alone

__all__ = ["Pace", "pace"]

TURNS, STEPS = 4, 3  # times that every arm is tried, and steps each time; the first turn only warms up


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Processor seconds of a step of each of `arms`, of one thread."""

    arms: list[str]
    seconds_a_step: list[float]

    def of(self, arm: str) -> float:
        """An arm's."""
        return self.seconds_a_step[self.arms.index(arm)]


def pace(arms: Sequence[str], cell: GridCell, plan: TournamentPlan, ground: Ground, seed: int) -> Pace:
    """Time a few steps of every arm, one arm after another and again: the median over the turns but the first.

    A timing apart because the runs themselves lie hours from each other, beside whatever else was done meanwhile.
    """
    with alone(seed):
        runners = [Runner(Job(arm=arm, cell=cell, rate=min(plan.rates), seed=seed), plan, ground) for arm in arms]
        turns = [[_timed(runner) for runner in runners] for _ in range(TURNS)]
    return Pace(arms=list(arms), seconds_a_step=np.median(turns[1:], axis=0).tolist())


def _timed(runner: Runner) -> float:
    begun = time.process_time()
    for _ in range(STEPS):
        runner.step()
    return (time.process_time() - begun) / STEPS
