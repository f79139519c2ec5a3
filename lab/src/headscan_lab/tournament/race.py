"""One run of a tournament: an arm at a rate with a seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.ntp.subspace import thread_limit
from headscan.training.run import build
from headscan_lab.tournament.moment import Moment, held_out_loss, last_states, measure_moment
from headscan_lab.tournament.optimisers import centre_head
from headscan_lab.tournament.plan import TournamentPlan
from headscan_lab.tournament.variants import ARMS


@dataclass(frozen=True)
class Ground:
    """The windows, int [n, T], and the tokens' counts in the training windows, int [V].

    Attributes:
        data: windows to train on.
        tuning: windows to choose rates by.
        held_out: windows to report on.
    """

    data: npt.NDArray[np.integer]
    tuning: npt.NDArray[np.integer]
    held_out: npt.NDArray[np.integer]
    counts: npt.NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is to be made: what distinguishes it from the others of its tournament."""

    arm: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.rate:g}-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Race:
    """A finished run.

    Attributes:
        tuning_nats: last loss on the tuning windows; None: not finite.
        tokens_a_step: tokens that a step reads.
        moments: measurements in the order of their steps, the same bit for bit whenever and beside
            whatever the job is run.
    """

    arm: str
    rate: float
    seed: int
    tuning_nats: float | None
    tokens_a_step: int
    moments: list[Moment]


class Runner:
    """A run in progress: the model, its optimiser, and the batches that are still to come."""

    def __init__(self, job: Job, plan: TournamentPlan, ground: Ground) -> None:
        self.arm = ARMS[job.arm]
        self.plan = plan
        self.done = 0
        self.counts = torch.from_numpy(ground.counts)
        recipe = plan.recipe(self.arm.recipe)
        model = build(recipe, self.arm.objective, len(self.counts), tied=self.arm.tied)
        self.learner = self.arm.learner(model, self.counts)
        self.optimizer = self.arm.optimiser.make(
            self.learner, rate=job.rate, betas=plan.betas, decay=plan.decay
        )
        self.peak_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.batches = _batches(ground.data, plan, job.seed)

    def step(self) -> bool:
        """Make one step; return False where the loss is not finite."""
        warm_up = min(1.0, (self.done + 1) / max(1, self.plan.warmup))
        for group, peak_rate in zip(self.optimizer.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak_rate * warm_up
        ids = next(self.batches)
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
    """Use one thread and a random state of this seed while the context lasts."""
    with thread_limit(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def race(job: Job, plan: TournamentPlan, ground: Ground) -> Race:
    """Run one job on one thread; its numbers depend on nothing else.

    A loss that is not finite ends the run early.
    """
    with alone(job.seed):
        runner = Runner(job, plan, ground)
        held_out = torch.from_numpy(ground.held_out).long()
        measured_steps = plan.measured_steps
        moments: list[Moment] = []
        for step in range(plan.steps + 1):
            if step in measured_steps:
                moments.append(measure_moment(runner.learner, held_out, runner.counts, step=step))
            if step == plan.steps or not runner.step():
                break
        finished = bool(moments) and moments[-1].step == plan.steps
        tuning_nats = _tuning_loss(runner, ground) if finished else float("nan")
    return Race(
        arm=job.arm,
        rate=job.rate,
        seed=job.seed,
        tuning_nats=tuning_nats if np.isfinite(tuning_nats) else None,
        tokens_a_step=plan.batch * (plan.context - 1),
        moments=moments,
    )


@torch.no_grad()
def _tuning_loss(runner: Runner, ground: Ground) -> float:
    windows = torch.from_numpy(ground.tuning).long()
    _, head_states = last_states(runner.learner, windows[:, :-1])
    head = runner.learner.readout(runner.counts)
    assert head is not None
    return held_out_loss(head, head_states, windows[:, 1:].flatten())


def _batches(data: npt.NDArray[np.integer], plan: TournamentPlan, seed: int) -> Iterator[Tensor]:
    """Yield batches of windows, shuffled anew each epoch; the order depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed + 100)
    while True:
        order = torch.randperm(len(data), generator=generator).numpy()
        for start in range(0, len(order) - plan.batch + 1, plan.batch):
            yield torch.from_numpy(data[order[start : start + plan.batch]]).long()
