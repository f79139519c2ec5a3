"""One run of a tournament: an arm, a rate, a seed."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.measures.kept_gradient import GradientThroughHead
from headscan.measures.measure import MEASURES
from headscan.ntp.subspace import thread_limit
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats
from headscan.training.heads import Unembedding, body_of, final_norm_of
from headscan.training.learner import Learner
from headscan.training.run import build
from headscan_lab.tournament.optimisers import centre_head
from headscan_lab.tournament.variants import ARMS, GridCell, TournamentPlan

# ---- What is measured of a run at one step: its held-out loss, and the shape of its states.


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A run at one step; None where a number is undefined.

    step: steps done. nats: held-out loss a token.
    average_cosine, effective_rank: of the last block's states; `_without_ones`: each state less the
    mean of its own coordinates, which a LayerNorm deletes; `_without_mean`: less the mean state of
    other windows.
    final_norm_cosine: of the states that meet the head. head_mean: norm of the head's mean row over
        its rows' mean norm.
    kept_norm, kept_norm_null, kept_norm_random, kept_norm_best: of the logits' gradient through the
    head, token by token, its nulls and the best rank d (`KeptGradient`; the null is that of the
    leverages); kept_norm_batch,
    kept_norm_batch_null: of the mean gradient of the same tokens.
    """

    step: int
    nats: float
    average_cosine: float | None
    average_cosine_without_ones: float | None
    average_cosine_without_mean: float | None
    effective_rank: float | None
    effective_rank_without_ones: float | None
    effective_rank_without_mean: float | None
    final_norm_cosine: float | None
    head_mean: float | None
    kept_norm: float | None
    kept_norm_null: float | None
    kept_norm_random: float | None
    kept_norm_best: float | None
    kept_norm_batch: float | None
    kept_norm_batch_null: float | None


SHAPES = tuple(one.name for one in fields(Moment))[2:]
"""The names of what is measured besides the loss."""

SAMPLED = 512  # tokens whose gradients are measured


@torch.no_grad()
def measured(
    learner: Learner,
    windows: Int[Tensor, "n time"],
    counts: Int[Tensor, " vocabulary"],
    *,
    step: int,
) -> Moment:
    """The moment of a run, on held-out windows; two halves of which take each other's mean away."""
    block, states = last_states(learner, windows[:, :-1])
    targets = windows[:, 1:].flatten()
    head = learner.readout(counts)
    assert head is not None
    half = len(block) // 2
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
    chosen = torch.arange(0, len(states), max(1, len(states) // SAMPLED))[:SAMPLED]
    through.update(head.transform(states[chosen]), targets[chosen])
    kept = through.result()
    clouds = {
        "": block,
        "_without_ones": block - block.mean(1, keepdim=True),
        "_without_mean": torch.cat(
            [block[:half] - block[half:].mean(0), block[half:] - block[:half].mean(0)]
        ),
    }
    shape = {
        name + suffix: MEASURES[name](Cloud.of_rows(_rows(cloud)))
        for suffix, cloud in clouds.items()
        for name in ("average_cosine", "effective_rank")
    }
    return Moment(
        step=step,
        nats=held_out_loss(head, states, targets),
        **shape,
        final_norm_cosine=MEASURES["average_cosine"](Cloud.of_rows(_rows(states))),
        head_mean=float(head.rows.mean(0).norm() / head.rows.norm(dim=1).mean()),
        kept_norm=kept.kept_norm,
        kept_norm_null=kept.kept_norm_leverage,
        kept_norm_random=kept.kept_norm_random,
        kept_norm_best=kept.kept_norm_best,
        kept_norm_batch=kept.batch_kept_norm,
        kept_norm_batch_null=kept.batch_kept_norm_leverage,
    )


def held_out_loss(
    head: Unembedding, states: Float[Tensor, "n width"], targets: Int[Tensor, " n"]
) -> float:
    """Mean cross-entropy in nats."""
    losses = [
        torch.nn.functional.cross_entropy(head.logits(some), wanted, reduction="sum").double()
        for some, wanted in zip(states.split(1024), targets.split(1024), strict=True)
    ]
    return float(sum(losses)) / len(targets)


def last_states(learner: Learner, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The last block's states [n, d] and those behind the final norm."""
    body = body_of(learner.model)
    seen = []
    norm = final_norm_of(body)
    assert norm is not None
    hook = norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    learner.eval()
    try:
        states = body(ids).last_hidden_state
    finally:
        hook.remove()
        learner.train()
    return seen[0].flatten(0, 1), states.flatten(0, 1)


def _rows(states: Tensor) -> Floats:
    return states.double().numpy()


@dataclass(frozen=True)
class Ground:
    """The windows of a cell, int [n, T]: `data` to train on, `tuning` to choose rates by,
    `held_out` to report on; and the tokens' counts in `data`, int [V].
    """

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
        return f"{self.arm}-{self.cell.vocabulary}-{self.cell.width}-{self.rate:g}-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Race:
    """A run: the job, its last loss on the tuning windows (None: not finite), tokens a step, and
    its moments in order.

    seconds_a_step: processor time, taken apart (`headscan_lab.tournament.race`); all else is the
    same, bit for bit, whenever and beside whatever it is run.
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
        return self.moments[-1].step

    @property
    def seconds(self) -> float:
        return self.steps * (self.seconds_a_step or 0.0)


class Runner:
    """A run in progress: the model, its optimiser, and the batches that are still to come."""

    def __init__(self, job: Job, plan: TournamentPlan, ground: Ground) -> None:
        self.arm = ARMS[job.arm]
        self.plan = plan
        self.done = 0
        self.counts = torch.from_numpy(ground.counts)
        model = build(
            plan.recipe(self.arm.recipe, job.cell),
            self.arm.objective,
            len(self.counts),
            tied=self.arm.tied,
        )
        self.learner = self.arm.learner(model, self.counts)
        self.optimizer = self.arm.optimiser.make(
            self.learner, rate=job.rate, betas=plan.betas, decay=plan.decay
        )
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
    with thread_limit(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def race(job: Job, plan: TournamentPlan, ground: Ground) -> Race:
    """Run one job, on one thread: its numbers depend on nothing else. A loss that is not finite
    ends it early.
    """
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
        arm=job.arm,
        vocabulary=job.cell.vocabulary,
        width=job.cell.width,
        rate=job.rate,
        seed=job.seed,
        tuning_nats=tuning if tuning is not None and np.isfinite(tuning) else None,
        tokens_a_step=plan.batch * (plan.context - 1),
        moments=moments,
    )


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


# ---- What a step of each arm costs: all arms in turn, again for every seed, so that what else a machine does falls on all alike.

# times that every arm is tried, and steps each time; the first turn only warms up
TURNS = 4
STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Processor seconds of a step of each of `arms`, of one thread."""

    arms: list[str]
    seconds_a_step: list[float]

    def of(self, arm: str) -> float:
        """An arm's."""
        return self.seconds_a_step[self.arms.index(arm)]


def pace(
    arms: Sequence[str], cell: GridCell, plan: TournamentPlan, ground: Ground, seed: int
) -> Pace:
    """Time a few steps of every arm, one arm after another and again: the median over the turns but
    the first. A timing apart because the runs themselves lie hours from each other, beside whatever
    else was done meanwhile.
    """
    with alone(seed):
        runners = [
            Runner(Job(arm=arm, cell=cell, rate=min(plan.rates), seed=seed), plan, ground)
            for arm in arms
        ]
        turns = [[_timed(runner) for runner in runners] for _ in range(TURNS)]
    return Pace(arms=list(arms), seconds_a_step=np.median(turns[1:], axis=0).tolist())


def _timed(runner: Runner) -> float:
    begun = time.process_time()
    for _ in range(STEPS):
        runner.step()
    return (time.process_time() - begun) / STEPS


# ---- Runs on several processors at once, in order; what each finds does not depend on how many there are.

Start = Callable[[Sequence[Job]], list[Callable[[], Race]]]
"""Jobs to functions that wait for their races."""


@contextmanager
def workers(processes: int, plan: TournamentPlan, grounds: Mapping[str, Ground]) -> Iterator[Start]:
    """Something that starts jobs: in processes of their own, or for one process when their race is
    asked for.
    """
    if processes == 1:
        yield lambda jobs: [partial(race, job, plan, grounds[job.cell.name]) for job in jobs]
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _take, (plan, dict(grounds)))
    try:
        yield lambda jobs: [pool.submit(_race, job).result for job in jobs]
    except BaseException:
        stop(pool)
        raise
    pool.shutdown()


def stop(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes now; left alone they would finish the runs that they have begun, for
    nobody.
    """
    running = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in running:
        # SIGTERM may have been given a handler, which a forked worker inherits and survives
        process.kill()


_given: list[tuple[TournamentPlan, dict[str, Ground]]] = []


def _take(plan: TournamentPlan, grounds: dict[str, Ground]) -> None:
    # Ctrl-C reaches all; the one that waits says what is to be said
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _given[:] = [(plan, grounds)]


def _race(job: Job) -> Race:
    plan, grounds = _given[0]
    return race(job, plan, grounds[job.cell.name])
