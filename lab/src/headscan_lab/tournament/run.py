"""The verb `headscan tournament`: it trains arms side by side and compares them."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Unpack

from headscan.run import BadInput, Run, TextRecord, verb
from headscan.run.settings import Option, RunOptions, Seed32
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
from headscan_lab.tournament.plan import SIZES, TournamentPlan, numbers_of
from headscan_lab.tournament.race import Ground, Job, Race
from headscan_lab.tournament.reading import mean_over_seeds
from headscan_lab.tournament.table import TournamentResult, arm_row, curve_rows
from headscan_lab.tournament.variants import ARMS
from headscan_lab.tournament.workers import Start, workers

HELD_OUT = 0.05  # share of the windows that are not trained on
CURVE_LEVELS = [2.0 - 0.25 * step for step in range(13)]  # nats above the matched loss


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
            "tiny (half an hour on two cores), small (a day of them) or base (a card).",
            group="Limits",
        ),
    ] = "tiny",
    seeds: Annotated[
        int,
        Option("Seeds of every arm and rate.", low=1, identity=False, group="Limits"),
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
    vocabulary: Annotated[
        int | None, Option("Tokens of the tokenizer. Default: the size's.", low=257)
    ] = None,
    width: Annotated[int | None, Option("Width of the models. Default: the size's.", low=4)] = None,
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
    tokens and at equal loss.

    Every arm is run at every rate with every seed, seed by seed, on the same windows in the same
    order; its rate is the one with the lowest mean loss on windows that are used for nothing else.
    A run is a unit: `resume` does not repeat finished runs, and goes on with more seeds; the
    numbers are those of a tournament that was never stopped.

    Raises:
        BadInput: for arms that are unknown, options out of bounds, or a text that is too short for
            the windows.
    """
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens)
    names = ARMS.match(arms)
    plan = _plan(size, steps, rates, matched_loss, vocabulary, width)
    check_text(text)
    run.identify("the plan", repr(plan))
    ground, record = _ground(text, reading, plan, run)
    jobs = [
        Job(arm=arm, rate=rate, seed=job_seed)
        for job_seed in range(seed, seed + seeds)
        for arm in names
        for rate in plan.rates
    ]
    with workers(processes or os.cpu_count() or 1, plan, ground) as start:
        races = _finished(jobs, start, run)
    return _result(run, record, plan, names, races)


def _plan(
    size: str,
    steps: int | None,
    rates: str | None,
    matched_loss: float | None,
    vocabulary: int | None,
    width: int | None,
) -> TournamentPlan:
    """Return the plan of a size, with the numbers that a user gave in place of its own."""
    plan = SIZES[size]
    step_count = steps or plan.steps
    plan = replace(
        plan,
        steps=step_count,
        warmup=min(plan.warmup, step_count // 2),
        rates=plan.rates if rates is None else tuple(numbers_of(rates, "--rates")),
        matched_loss=matched_loss or plan.matched_loss,
        vocabulary=vocabulary or plan.vocabulary,
        width=width or plan.width,
    )
    if plan.width % plan.heads:
        raise BadInput(
            f"--width must be divisible by the {plan.heads} attention heads of this size."
        )
    return plan


def _ground(
    text: TextLike, reading: Reading, plan: TournamentPlan, run: Run
) -> tuple[Ground, TextRecord]:
    """Return the windows, in tokens of a tokenizer that is fitted to the text."""
    texts = documents(text, documents=reading.documents, field=reading.field)
    tokenizer = fit_tokenizer(texts, plan.vocabulary, context=plan.context)
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
    run.identify("the content of the text", record.sha256)
    run.identify("the tokenizer", tokenization_hash(tokenizer, packed))
    if len(training.rows) < plan.batch:
        raise BadInput(
            f"The text has {len(training.rows)} windows of {plan.context} tokens to train on, "
            f"fewer than the {plan.batch} of a batch: give a longer text or a larger --max-tokens."
        )
    tuning_count = max(1, min(plan.windows // 2, len(held_out) // 3))
    report_count = max(1, min(plan.windows, len(held_out) - tuning_count))
    ground = Ground(
        data=training.rows,
        tuning=held_out.rows[-tuning_count:],
        held_out=held_out.rows[:report_count],
        counts=training.counts(len(tokenizer)).numpy(),
    )
    return ground, record


def _finished(jobs: Sequence[Job], start: Start, run: Run) -> list[Race]:
    """Return the races of jobs, in order: stored ones are read, the others are run."""
    stored = set(run.parts.names()) if run.resume else set()
    missing = [job for job in jobs if f"unit-{job.name}" not in stored]
    waiting = dict(zip([job.name for job in missing], start(missing), strict=True))
    races: list[Race] = []
    for job in jobs:
        # Progress is reported of what is run: a stored race says nothing of the time that is left.
        if job.name in waiting:
            stage = f"tournament · {job.arm} at {job.rate:g}"
            run.progress(stage, len(races), len(jobs), "runs")
        races.append(run.unit(job.name, Race, waiting.get(job.name, _never)))
    return races


def _never() -> Race:
    raise AssertionError("a stored race is read, not run")


def best_rate(races: Sequence[Race]) -> float:
    """Return the rate with the lowest mean loss on the tuning windows.

    A rate at which the run of a seed did not come to its end is left out; without any other, the
    lowest rate is returned.
    """
    means: dict[float, float] = {}
    for rate in sorted({race.rate for race in races}):
        losses = [race.tuning_nats for race in races if race.rate == rate]
        mean = None if None in losses else mean_over_seeds(losses)[0]
        if mean is not None:
            means[rate] = mean
    if not means:
        return min(race.rate for race in races)
    return min(means, key=lambda rate: means[rate])


def _reference(arm: str, arms: Sequence[str]) -> str:
    """Return the arm that an arm is compared with: the first one of the same architecture."""
    recipe = ARMS[arm].recipe
    return next(name for name in arms if ARMS[name].recipe == recipe)


def _result(
    run: Run, record: TextRecord, plan: TournamentPlan, arms: Sequence[str], races: list[Race]
) -> TournamentResult:
    """Return the result of all races: the lowest held-out loss first."""
    rates = []
    best_races = {}
    for arm in arms:
        of_arm = [race for race in races if race.arm == arm]
        best_races[arm] = [race for race in of_arm if race.rate == best_rate(of_arm)]
        for rate in plan.rates:
            at_rate = [race for race in of_arm if race.rate == rate]
            rates.append(arm_row(at_rate, matched=plan.matched_loss))
    board = []
    for arm, of_arm in best_races.items():
        reference = _reference(arm, arms)
        references = [] if reference == arm else best_races[reference]
        compared = max(1, len(arms) - 1)
        row = arm_row(of_arm, matched=plan.matched_loss, references=references, arms=compared)
        board.append(row)
    board.sort(key=lambda row: row.number("heldout_nats") or float("inf"))
    levels = [plan.matched_loss + level for level in CURVE_LEVELS]
    return TournamentResult(
        protocol=run.protocol(text=record, device="cpu", dtype="float32"),
        plan=plan,
        seeds=len({race.seed for race in races}),
        matched_loss=plan.matched_loss,
        arms=board,
        rates=rates,
        curves=[row for of_arm in best_races.values() for row in curve_rows(of_arm, levels)],
        races=races,
    )
