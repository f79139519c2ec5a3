"""From a text to a leaderboard of cures: `headscan tournament`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from headscan.run import BadInput, Run, TextRecord, verb
from headscan.run.settings import CommandLine, Option, Out, Overwrite, Progressing, Resume, Seed32
from headscan.run.verbs import Given
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
from headscan.training.data import PackedText
from headscan.training.recipes import fit_tokenizer
from headscan_lab.tournament import table
from headscan_lab.tournament.race import Ground, Job, Pace, Race, Start, pace, workers
from headscan_lab.tournament.table import ArmDifference, TournamentResult
from headscan_lab.tournament.variants import (
    ARMS,
    SIZES,
    GridCell,
    TournamentPlan,
    cells_of,
    numbers_of,
)

# ---- What `tournament` can be asked.


@dataclass(frozen=True, kw_only=True)
class Tournament(Reading):
    """Which arms, how large, how often. What was run stays: `resume` goes on after Ctrl-C, or with
    more seeds.
    """

    text: TextLike
    arms: str
    size: Literal["tiny", "small", "base"]
    seeds: int
    matched_loss: float | None
    steps: int | None
    rates: str | None
    cells: str | None
    processes: int | None
    seed: int

    def check(self) -> None:
        super().check()
        _ = self.names
        plan = self.plan
        if any(cell.width % plan.heads for cell in plan.cells):
            raise BadInput(
                f"--cells: the widths must be divisible by the {plan.heads} attention heads of "
                "this size."
            )

    @property
    def names(self) -> list[str]:
        return ARMS.match(self.arms)

    @property
    def plan(self) -> TournamentPlan:
        """The size's numbers, with what was asked for in their place."""
        plan = SIZES[self.size]
        return replace(
            plan,
            steps=self.steps or plan.steps,
            warmup=min(plan.warmup, (self.steps or plan.steps) // 2),
            rates=plan.rates if self.rates is None else tuple(numbers_of(self.rates, "--rates")),
            cells=plan.cells if self.cells is None else cells_of(self.cells),
            matched_loss=self.matched_loss or plan.matched_loss,
        )

    @property
    def workers(self) -> int:
        return self.processes or os.cpu_count() or 1


LEVELS = [2.0 - 0.25 * k for k in range(13)]  # of the curves, nats above the matched loss
HELD_OUT = 0.05


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
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed32 = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> TournamentResult:
    """Train arms of `headscan.training.ARMS` side by side, and compare them at equal tokens, time
    and loss.

    Every arm is run at every rate with every seed, seed by seed, on the same windows in the same
    order; its rate is the one with the lowest mean loss on windows that are used for nothing else.
    In further cells (another vocabulary, another width) it is run at that rate. A run is a unit:
    what was finished is not done again on `resume`, and the numbers, but for the seconds, are those
    of a tournament that was never stopped.

    Raises BadInput for arms that are unknown, options out of bounds, or a text that is too short
    for the windows wanted.
    """
    asked = Given(locals())
    settings = asked.chosen(Tournament)
    check_text(settings.text)
    plan = settings.plan
    names = settings.names
    run.identify("the plan", repr(plan))
    grounds: dict[str, Ground] = {}
    record: TextRecord | None = None
    for cell in plan.cells:
        grounds[cell.name], found = _ground(settings, plan, cell, run)
        record = record or found

    races: list[Race] = []
    all_seeds = range(settings.seed, settings.seed + settings.seeds)
    ahead = _Ahead(
        len(names)
        * (
            settings.seeds * len(plan.rates)
            + min(plan.others, settings.seeds) * len(plan.cells[1:])
        )
    )
    with workers(settings.workers, plan, grounds) as start:
        for seed in all_seeds:
            jobs = [
                Job(arm=arm, cell=plan.cells[0], rate=rate, seed=seed)
                for arm in names
                for rate in plan.rates
            ]
            races += _finish(jobs, start, run, ahead)
        chosen = {arm: _best_rate([race for race in races if race.arm == arm]) for arm in names}
        aside: list[Race] = []
        for cell in plan.cells[1:]:
            jobs = [
                Job(arm=a, cell=cell, rate=chosen[a], seed=seed)
                for a in names
                for seed in all_seeds[: plan.others]
            ]
            aside += _finish(jobs, start, run, ahead)
    races, aside = (_paced(each, names, plan, grounds, run) for each in (races, aside))
    return _result(settings, run, plan, grounds, races, aside, chosen, record)


def _ground(
    settings: Tournament, plan: TournamentPlan, cell: GridCell, run: Run
) -> tuple[Ground, TextRecord]:
    texts = documents(settings.text, documents=settings.documents, field=settings.field)
    words = fit_tokenizer(texts, cell.vocabulary, context=plan.context)
    windows = Windows(
        settings.text,
        words,
        plan.context,
        documents=settings.documents,
        field=settings.field,
        max_tokens=settings.max_tokens,
    )
    data, kept = PackedText.of(windows).split(HELD_OUT)
    record = windows.record()
    run.identify("the content of the text", record.sha256)
    tuning = max(1, min(plan.windows // 2, len(kept) // 3))
    held_out = kept.rows[: max(1, min(plan.windows, len(kept) - tuning))]
    return Ground(data.rows, kept.rows[-tuning:], held_out, data.counts(len(words)).numpy()), record


@dataclass
class _Ahead:
    """How many runs there are in all, and how many are behind."""

    runs: int
    done: int = 0


def _finish(jobs: Sequence[Job], start: Start, run: Run, ahead: _Ahead) -> list[Race]:
    """Their races, in order: stored ones are read, the others run."""
    stored = set(run.parts.names()) if run.resume else set()
    missing = [job for job in jobs if f"unit-{job.name}" not in stored]
    waiting = dict(zip([job.name for job in missing], start(missing), strict=True))
    found = []
    for job in jobs:
        if job.name in waiting:  # what is only read says nothing of the time that is left
            run.progress(f"tournament · {job.arm} at {job.rate:g}", ahead.done, ahead.runs, "runs")
        found.append(run.unit(job.name, Race, waiting.get(job.name, _never)))
        ahead.done += 1
    return found


def _paced(
    races: Sequence[Race],
    names: Sequence[str],
    plan: TournamentPlan,
    grounds: dict[str, Ground],
    run: Run,
) -> list[Race]:
    """The races with what a step of theirs costs: every seed of a cell has a round of its own, over
    all arms.
    """

    def of(race: Race) -> Pace:
        cell = GridCell(vocabulary=race.vocabulary, width=race.width)
        name = f"pace-{cell.vocabulary}-{cell.width}-{race.seed}"
        return run.unit(name, Pace, lambda: pace(names, cell, plan, grounds[cell.name], race.seed))

    known = {
        key: of(one) for key, one in {(r.vocabulary, r.width, r.seed): r for r in races}.items()
    }
    return [
        replace(r, seconds_a_step=known[r.vocabulary, r.width, r.seed].of(r.arm)) for r in races
    ]


def _never() -> Race:
    raise AssertionError("a stored race is read, not run")


def _best_rate(races: Sequence[Race]) -> float:
    """The rate of the lowest mean loss on the tuning windows; one at which a seed came to no end is
    not taken.
    """
    means: dict[float, float] = {}
    for rate in sorted({race.rate for race in races}):
        losses = [race.tuning_nats for race in races if race.rate == rate]
        mean = None if None in losses else table.mean_over_seeds(losses)[0]
        if mean is not None:
            means[rate] = mean
    return min(means, key=lambda rate: means[rate]) if means else min(race.rate for race in races)


def _result(
    settings: Tournament,
    run: Run,
    plan: TournamentPlan,
    grounds: dict[str, Ground],
    races: list[Race],
    aside: list[Race],
    chosen: dict[str, float],
    record: TextRecord | None,
) -> TournamentResult:
    names = settings.names
    main = plan.cells[0]
    gain = grounds[main.name].unigram_nats - plan.matched_loss
    own = {
        arm: [race for race in races if race.arm == arm and race.rate == chosen[arm]]
        for arm in names
    }
    seconds = min(table.spent(own[arm]) for arm in names)
    differences: list[ArmDifference] = []
    others = []
    for arm in names:
        first = next(name for name in names if ARMS[name].recipe == ARMS[arm].recipe)
        several = max(1, len(names) - 1)
        if first != arm:
            differences += table.compare(
                own[arm], own[first], where="own rates", matched=plan.matched_loss, arms=several
            )
            for rate in plan.rates:
                pair = [
                    [race for race in races if race.arm == name and race.rate == rate]
                    for name in (arm, first)
                ]
                differences += table.compare(
                    *pair, where=f"rate {rate:g}", matched=plan.matched_loss, arms=several
                )
        for cell in plan.cells[1:]:
            there = [
                race
                for race in aside
                if (race.vocabulary, race.width) == (cell.vocabulary, cell.width)
            ]
            pair = [[race for race in there if race.arm == name] for name in (arm, first)]
            matched = grounds[cell.name].unigram_nats - gain
            if pair[0]:
                others.append(
                    table.arm_row(
                        pair[0],
                        about=ARMS[arm].about,
                        matched=matched,
                        seconds=table.spent(pair[0]),
                    )
                )
            if pair[0] and pair[1] and first != arm:
                differences += table.compare(*pair, where=cell.name, matched=matched, arms=several)
    rows = []
    for arm in names:
        row = table.arm_row(
            own[arm], about=ARMS[arm].about, matched=plan.matched_loss, seconds=seconds
        )
        told = [each for each in differences if each.arm == arm]
        alone = "The others of its architecture are compared with it."
        rows.append(
            row | {"sentence": table.sentence_of(told, plan.matched_loss) if told else alone}
        )
    rows.sort(key=lambda row: row.number("heldout_nats") or float("inf"))
    rates = [
        table.arm_row(found, about=ARMS[arm].about, matched=plan.matched_loss, seconds=seconds)
        for arm in names
        for rate in plan.rates
        if (found := [race for race in races if race.arm == arm and race.rate == rate])
    ]
    levels = [plan.matched_loss + above for above in LEVELS]
    return TournamentResult(
        protocol=run.protocol(text=record, device="cpu", dtype="float32"),
        plan=plan,
        seeds=len({r.seed for r in races}),
        matched_loss=plan.matched_loss,
        equal_seconds=seconds,
        arms=rows,
        rates=rates,
        others=others,
        curves=[row for arm in names for row in table.curve_rows(own[arm], levels)],
        differences=differences,
        races=[*races, *aside],
    )
