"""The verb `headscan tournament`: it trains arms side by side and compares them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, Unpack

from headscan.run import BadInput, Run, TextRecord, verb
from headscan.run.settings import (
    Option,
    RunOptions,
    Seed32,
)
from headscan.text import Windows, documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    TextLike,
    check_text,
)
from headscan.training.data import PackedText, tokenization_hash
from headscan.training.recipes import fit_tokenizer
from headscan_lab.tournament.outcome import Outcome, best_rate
from headscan_lab.tournament.plan import SIZES, GridCell, TournamentPlan, cells_of, numbers_of
from headscan_lab.tournament.race import Ground, Job, Pace, Race, pace
from headscan_lab.tournament.table import TournamentResult
from headscan_lab.tournament.variants import ARMS
from headscan_lab.tournament.workers import Start, workers

HELD_OUT = 0.05  # share of the windows that are not trained on


@verb("tournament", continues=True)
def tournament(
    run: Run,
    text: Annotated[TextLike, TEXT],
    *,
    arms: Annotated[
        str, Option("Arms by comma-separated globs, as in 'ce,ce+unigram,headless' or 'ce*'.")
    ] = "*",
    size: Annotated[
        Literal["tiny", "small", "base"],
        Option(
            "tiny (an hour on two cores), small (a day of them) or base (a card).", group="Limits"
        ),
    ] = "tiny",
    seeds: Annotated[
        int,
        Option(
            "Seeds of every arm and rate in the first cell.", low=1, identity=False, group="Limits"
        ),
    ] = 5,
    matched_loss: Annotated[
        float | None,
        Option("Held-out nats at which arms are compared. Default: the size's.", above=0),
    ] = None,
    steps: Annotated[
        int | None, Option("Steps of a run. Default: the size's.", low=2, group="Limits")
    ] = None,
    rates: Annotated[
        str | None,
        Option(
            "Learning rates that every arm is tried at. Default: the size's.", metavar="R,R,..."
        ),
    ] = None,
    cells: Annotated[
        str | None,
        Option(
            "Vocabularies and widths; the first is the leaderboard's. Default: the size's.",
            metavar="V/D,V/D,...",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        Option(
            "Runs at once, one thread each; no number depends on it. Default: one a core.",
            low=1,
            identity=False,
            group="Advanced",
        ),
    ] = None,
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    seed: Seed32 = 0,
    **_run_options: Unpack[RunOptions],
) -> TournamentResult:
    """Train arms of `headscan_lab.tournament.variants.ARMS` side by side, and compare them at equal
    tokens, time and loss.

    Every arm is run at every rate with every seed, seed by seed, on the same windows in the same
    order; its rate is the one with the lowest mean loss on windows that are used for nothing else.
    In further cells (another vocabulary, another width) it is run at that rate. A run is a unit:
    `resume` does not repeat finished runs, and goes on with more seeds; the numbers, but for the
    seconds, are those of a tournament that was never stopped.

    Raises:
        BadInput: for arms that are unknown, options out of bounds, or a text that is too short for
            the windows.
    """
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens)
    names = ARMS.match(arms)
    plan = _plan(size, steps, rates, cells, matched_loss)
    check_text(text)
    run.identify("the plan", repr(plan))
    grounds: dict[str, Ground] = {}
    records: list[TextRecord] = []
    for cell in plan.cells:
        ground, record = _ground(text, reading, plan, cell, run)
        grounds[cell.name] = ground
        records.append(record)

    all_seeds = range(seed, seed + seeds)
    other_seeds = all_seeds[: plan.others]
    main_jobs = len(names) * seeds * len(plan.rates)
    other_jobs = len(names) * len(other_seeds) * len(plan.other_cells)
    counter = _Counter(main_jobs + other_jobs)
    main_races: list[Race] = []
    other_races: list[Race] = []
    with workers(processes or os.cpu_count() or 1, plan, grounds) as start:
        for one_seed in all_seeds:
            jobs = [
                Job(arm=arm, cell=plan.main_cell, rate=rate, seed=one_seed)
                for arm in names
                for rate in plan.rates
            ]
            main_races += _finished(jobs, start, run, counter)
        best_rates = {arm: best_rate([r for r in main_races if r.arm == arm]) for arm in names}
        for cell in plan.other_cells:
            jobs = [
                Job(arm=arm, cell=cell, rate=best_rates[arm], seed=one_seed)
                for arm in names
                for one_seed in other_seeds
            ]
            other_races += _finished(jobs, start, run, counter)

    main_races = _timed(main_races, names, plan, grounds, run)
    other_races = _timed(other_races, names, plan, grounds, run)
    outcome = Outcome(names, plan, grounds, main_races, other_races, best_rates)
    return _result(outcome, run, records[0])


def _plan(
    size: str, steps: int | None, rates: str | None, cells: str | None, matched_loss: float | None
) -> TournamentPlan:
    """Return the plan of a size, with the numbers that a user gave in place of its own."""
    plan = SIZES[size]
    step_count = steps or plan.steps
    plan = replace(
        plan,
        steps=step_count,
        warmup=min(plan.warmup, step_count // 2),
        rates=plan.rates if rates is None else tuple(numbers_of(rates, "--rates")),
        cells=plan.cells if cells is None else cells_of(cells),
        matched_loss=matched_loss or plan.matched_loss,
    )
    if any(cell.width % plan.heads for cell in plan.cells):
        raise BadInput(
            f"--cells: the widths must be divisible by the {plan.heads} attention heads of this "
            "size."
        )
    return plan


def _ground(
    text: TextLike, reading: Reading, plan: TournamentPlan, cell: GridCell, run: Run
) -> tuple[Ground, TextRecord]:
    """Return a cell's windows, in tokens of a tokenizer that is fitted to the text."""
    texts = documents(text, documents=reading.documents, field=reading.field)
    tokenizer = fit_tokenizer(texts, cell.vocabulary, context=plan.context)
    windows = Windows(
        text,
        tokenizer,
        plan.context,
        documents=reading.documents,
        field=reading.field,
        max_tokens=reading.max_tokens,
    )
    packed = PackedText.of(windows)
    training, held_out = packed.split(HELD_OUT)
    record = windows.record()
    run.identify(f"the text of cell {cell.name}", record.sha256)
    run.identify(f"the tokenizer of cell {cell.name}", tokenization_hash(tokenizer, packed))
    tuning_count = max(1, min(plan.windows // 2, len(held_out) // 3))
    report_count = max(1, min(plan.windows, len(held_out) - tuning_count))
    ground = Ground(
        data=training.rows,
        tuning=held_out.rows[-tuning_count:],
        held_out=held_out.rows[:report_count],
        counts=training.counts(len(tokenizer)).numpy(),
    )
    return ground, record


@dataclass
class _Counter:
    """How many races there are in all, and how many are finished."""

    races: int
    done: int = 0


def _finished(jobs: Sequence[Job], start: Start, run: Run, counter: _Counter) -> list[Race]:
    """Return the races of jobs, in order: stored ones are read, the others are run."""
    stored = set(run.parts.names()) if run.resume else set()
    missing = [job for job in jobs if f"unit-{job.name}" not in stored]
    waiting = dict(zip([job.name for job in missing], start(missing), strict=True))
    races = []
    for job in jobs:
        # Progress is reported of what is run: a stored race says nothing of the time that is left.
        if job.name in waiting:
            stage = f"tournament · {job.arm} at {job.rate:g}"
            run.progress(stage, counter.done, counter.races, "runs")
        races.append(run.unit(job.name, Race, waiting.get(job.name, _never)))
        counter.done += 1
    return races


def _never() -> Race:
    raise AssertionError("a stored race is read, not run")


def _timed(
    races: Sequence[Race],
    names: Sequence[str],
    plan: TournamentPlan,
    grounds: dict[str, Ground],
    run: Run,
) -> list[Race]:
    """Return the races with the seconds of a step.

    Every seed of a cell has its own timing, over all arms.
    """
    timings: dict[tuple[GridCell, int], Pace] = {}
    timed = []
    for race in races:
        cell = race.cell
        seed = race.seed
        if (cell, seed) not in timings:
            name = f"pace-{cell.vocabulary}-{cell.width}-{seed}"
            measure = partial(pace, names, cell, plan, grounds[cell.name], seed)
            timings[cell, seed] = run.unit(name, Pace, measure)
        timed.append(replace(race, seconds_a_step=timings[cell, seed].of(race.arm)))
    return timed


def _result(outcome: Outcome, run: Run, record: TextRecord) -> TournamentResult:
    differences = outcome.differences()
    return TournamentResult(
        protocol=run.protocol(text=record, device="cpu", dtype="float32"),
        plan=outcome.plan,
        seeds=len({race.seed for race in outcome.main_races}),
        matched_loss=outcome.plan.matched_loss,
        equal_seconds=outcome.equal_seconds,
        arms=outcome.leaderboard(differences),
        rates=outcome.rows_by_rate(),
        others=outcome.rows_of_other_cells(),
        curves=outcome.curves(),
        differences=differences,
        races=[*outcome.main_races, *outcome.other_races],
    )
