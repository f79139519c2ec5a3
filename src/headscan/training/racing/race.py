"""One run of a tournament: an arm, a rate, a seed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.training.arms import ARMS, Arm
from headscan.training.centring import centre_head
from headscan.training.learner import Learner
from headscan.training.racing.moment import Moment, held_out_loss, last_states, measured
from headscan.training.racing.plan import GridCell, TournamentPlan
from headscan.training.run import build

__all__ = ["Ground", "Job", "Race", "race"]


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

    seconds a moment are processor time: all else is the same, bit for bit, whenever and beside whatever it is run.
    """

    arm: str
    vocabulary: int
    width: int
    rate: float
    seed: int
    tuning_nats: float | None
    tokens_a_step: int
    moments: list[Moment]


def race(job: Job, plan: TournamentPlan, ground: Ground) -> Race:
    """Run one job, on one thread: its numbers depend on nothing else. A loss that is not finite ends it early."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            return _race(job, plan, ground, ARMS[job.arm])
    finally:
        torch.set_num_threads(threads)


def _race(job: Job, plan: TournamentPlan, ground: Ground, arm: Arm) -> Race:
    counts, held_out = torch.from_numpy(ground.counts), torch.from_numpy(ground.held_out).long()
    model = build(plan.recipe(arm.recipe, job.cell), arm.objective, len(counts), tied=arm.tied)
    learner = arm.learner(model, counts)
    optimizer = arm.optimiser.make(learner, rate=job.rate, betas=plan.betas, decay=plan.decay)
    peaks = [group["lr"] for group in optimizer.param_groups]
    rows = _batches(ground.data, plan, job.seed)
    moments: list[Moment] = []
    seconds, due = 0.0, set(plan.measured)
    for step in range(plan.steps + 1):
        if step in due:
            moments.append(measured(learner, held_out, counts, step=step, seconds=seconds))
        if step == plan.steps:
            break
        begun = time.process_time()
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * min(1.0, (step + 1) / max(1, plan.warmup))
        if not _step(learner, optimizer, next(rows), arm):
            break
        seconds += time.process_time() - begun
    tuning = None
    if moments and moments[-1].step == plan.steps:
        windows = torch.from_numpy(ground.tuning).long()
        with torch.no_grad():
            states = last_states(learner, windows[:, :-1])[1]
            head = learner.readout(counts)
            assert head is not None
            tuning = held_out_loss(head, states, windows[:, 1:].flatten())
    return Race(
        arm=job.arm, vocabulary=job.cell.vocabulary, width=job.cell.width, rate=job.rate, seed=job.seed,
        tuning_nats=tuning if tuning is not None and np.isfinite(tuning) else None,
        tokens_a_step=plan.batch * (plan.context - 1), moments=moments,
    )  # fmt: skip


def _step(learner: Learner, optimizer: torch.optim.Optimizer, ids: Int[Tensor, "batch time"], arm: Arm) -> bool:
    """One step; False where the loss is not finite."""
    optimizer.zero_grad()
    loss = learner(ids, ids)["loss"]
    if not bool(torch.isfinite(loss)):
        return False
    loss.backward()
    torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    optimizer.step()
    if arm.centre_head:
        centre_head(learner.model)
    return True


def _batches(data: npt.NDArray[np.integer], plan: TournamentPlan, seed: int) -> Iterator[Tensor]:
    """Batches of windows, shuffled anew each epoch; the order is the seed's, whatever the arm."""
    draw = torch.Generator().manual_seed(seed + 100)
    while True:
        order = torch.randperm(len(data), generator=draw).numpy()
        for start in range(0, len(order) - plan.batch + 1, plan.batch):
            yield torch.from_numpy(data[order[start : start + plan.batch]]).long()
