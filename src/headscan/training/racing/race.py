"""One run of a tournament: an arm, a rate, a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.training.arms import ARMS
from headscan.training.centring import centre_head
from headscan.training.racing.moment import Moment, held_out_loss, last_states, measured
from headscan.training.racing.plan import GridCell, TournamentPlan
from headscan.training.run import build

__all__ = ["Ground", "Job", "Race", "Runner", "alone", "race"]


@dataclass(frozen=True)
class Ground:
    """The windows of a cell, int [n, T]: `data` to train on, `tuning` to choose rates by, `held_out` to report on; and
    the tokens' counts in `data`, int [V]."""

    data: npt.NDArray[np.integer]
    tuning: npt.NDArray[np.integer]
    held_out: npt.NDArray[np.integer]
    counts: npt.NDArray[np.integer]

    @property
    def unigram_nats(self) -> float:
        """Held-out loss of the training windows' smoothed unigram law."""
        law = np.log(self.counts + 0.5) - np.log((self.counts + 0.5).sum())
        return -float(law[self.held_out[:, 1:]].mean())


@dataclass(frozen=True, kw_only=True)
class Job:
    """What tells a run from the others of its tournament."""

    arm: str
    cell: GridCell
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """For the stored unit."""
        return f"{self.arm}-{self.cell.vocabulary}-{self.cell.width}-{self.rate:g}-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Race:
    """A run: the job, its last loss on the tuning windows (None: not finite), tokens a step, and its moments in order.

    seconds_a_step: processor time, taken apart (`headscan.training.racing.pace`); all else is the same, bit for bit, whenever
    and beside whatever it is run.
    """

    arm: str
    vocabulary: int
    width: int
    rate: float
    seed: int
    tuning_nats: float | None
    tokens_a_step: int
    moments: list[Moment]
    seconds_a_step: float | None = None

    @property
    def steps(self) -> int:
        """Steps that were done."""
        return self.moments[-1].step

    @property
    def seconds(self) -> float:
        """Processor time of training."""
        return self.steps * (self.seconds_a_step or 0.0)


class Runner:
    """A run in progress: the model, its optimiser, and the batches that are still to come."""

    def __init__(self, job: Job, plan: TournamentPlan, ground: Ground) -> None:
        self.arm, self.plan, self.done = ARMS[job.arm], plan, 0
        self.counts = torch.from_numpy(ground.counts)
        model = build(plan.recipe(self.arm.recipe, job.cell), self.arm.objective, len(self.counts), tied=self.arm.tied)
        self.learner = self.arm.learner(model, self.counts)
        self.optimizer = self.arm.optimiser.make(self.learner, rate=job.rate, betas=plan.betas, decay=plan.decay)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.rows = _batches(ground.data, plan, job.seed)

    def step(self) -> bool:
        """One step; False where the loss is not finite."""
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * min(1.0, (self.done + 1) / max(1, self.plan.warmup))
        ids = next(self.rows)
        self.optimizer.zero_grad()
        loss = self.learner(ids, ids)["loss"]
        if not bool(torch.isfinite(loss)):
            return False
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learner.parameters(), 1.0)
        self.optimizer.step()
        if self.arm.centre_head:
            centre_head(self.learner.model)
        self.done += 1
        return True


@contextmanager
def alone(seed: int) -> Iterator[None]:
    """On one thread, from a seed of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def race(job: Job, plan: TournamentPlan, ground: Ground) -> Race:
    """Run one job, on one thread: its numbers depend on nothing else. A loss that is not finite ends it early."""
    with alone(job.seed):
        runner = Runner(job, plan, ground)
        held_out = torch.from_numpy(ground.held_out).long()
        moments: list[Moment] = []
        for step in range(plan.steps + 1):
            if step in plan.measured:
                moments.append(measured(runner.learner, held_out, runner.counts, step=step))
            if step == plan.steps or not runner.step():
                break
        tuning = _tuning(runner, ground) if moments and moments[-1].step == plan.steps else None
    return Race(
        arm=job.arm, vocabulary=job.cell.vocabulary, width=job.cell.width, rate=job.rate, seed=job.seed,
        tuning_nats=tuning if tuning is not None and np.isfinite(tuning) else None,
        tokens_a_step=plan.batch * (plan.context - 1), moments=moments,
    )  # fmt: skip


@torch.no_grad()
def _tuning(runner: Runner, ground: Ground) -> float:
    windows = torch.from_numpy(ground.tuning).long()
    states = last_states(runner.learner, windows[:, :-1])[1]
    head = runner.learner.readout(runner.counts)
    assert head is not None
    return held_out_loss(head, states, windows[:, 1:].flatten())


def _batches(data: npt.NDArray[np.integer], plan: TournamentPlan, seed: int) -> Iterator[Tensor]:
    """Batches of windows, shuffled anew each epoch; the order is the seed's, whatever the arm."""
    draw = torch.Generator().manual_seed(seed + 100)
    while True:
        order = torch.randperm(len(data), generator=draw).numpy()
        for start in range(0, len(order) - plan.batch + 1, plan.batch):
            yield torch.from_numpy(data[order[start : start + plan.batch]]).long()
