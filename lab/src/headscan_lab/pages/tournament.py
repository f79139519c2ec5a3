"""The page of a tournament: the leaderboard with its sentences, and the cone against the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headscan.report.kit import Cell, Figure, Head, Line, Section, Table, Term, page, section
from headscan.report.kit.figures import lines
from headscan.report.kit.words import number

if TYPE_CHECKING:
    from headscan.run import Row
    from headscan_lab.tournament.table import TournamentResult


BOARD = (
    Term(
        "held-out nats",
        "Held-out loss a token after the last step: all arms have read as many tokens.",
        name="heldout_nats",
        column="nats",
        places=3,
    ),
    Term(
        "at equal time",
        "Held-out loss after the processor time of the quickest arm's whole run.",
        places=3,
        name="heldout_nats_at_equal_seconds",
        where="page",
    ),
    Term(
        "tokens to it",
        "Tokens read until the held-out loss is first the matched one.",
        name="tokens_to_matched_loss",
        column="tokens\nto it",
    ),
    Term("ms a step", "Processor time of a step.", unit="ms", name="seconds_a_step", where="page"),
    Term(
        "cosine",
        "Average cosine of the last block's states where the loss is the matched one.",
        places=3,
        name="average_cosine_at_matched_loss",
        group="at the matched loss",
        column="cosine",
    ),
    Term(
        "without ones",
        "The same, each state less the mean of its own coordinates: a LayerNorm deletes that "
        "direction.",
        places=3,
        name="average_cosine_without_ones_at_matched_loss",
        group="at the matched loss",
        column="without\nones",
    ),
    Term(
        "without mean",
        "The same, less the mean state of other windows.",
        places=3,
        group="at the matched loss",
        name="average_cosine_without_mean_at_matched_loss",
        where="page",
    ),
    Term(
        "rank",
        "Effective rank of the last block's states.",
        places=1,
        name="effective_rank_at_matched_loss",
        group="at the matched loss",
        where="page",
    ),
    Term(
        "rank without ones",
        "The same without the direction of ones.",
        places=1,
        group="at the matched loss",
        name="effective_rank_without_ones_at_matched_loss",
        column="rank\nw/o ones",
    ),
    Term(
        "rank without mean",
        "The same, less the mean state of other windows.",
        places=1,
        group="at the matched loss",
        name="effective_rank_without_mean_at_matched_loss",
        where="page",
    ),
)
KEPT = (
    Term(
        "kept",
        "Share of the norm of the logits' gradient that lies in the head's column space.",
        places=3,
        name="kept_norm",
    ),
    Term(
        "null, leverages",
        "What a gradient with the same sizes of entries and random signs would keep.",
        places=3,
        name="kept_norm_null",
    ),
    Term("null, random head", "√(d/V).", places=3, name="kept_norm_random"),
    Term(
        "best",
        "What the d directions that are best for these very gradients would keep.",
        places=3,
        where="page",
        name="kept_norm_best",
    ),
    Term(
        "kept, batch",
        "Of the mean gradient of the same tokens.",
        places=3,
        name="kept_norm_batch",
        where="page",
    ),
    Term(
        "its null, leverages",
        "As before, of that mean.",
        places=3,
        name="kept_norm_batch_null",
        where="page",
    ),
    Term(
        "head's mean row",
        "Its norm over the mean norm of the head's rows.",
        places=3,
        name="head_mean_at_matched_loss",
        where="page",
    ),
)


@page("tournament")
def head(result: TournamentResult) -> Head:
    """Who ran, when, how long."""
    plan = result.plan
    seeds = f"{result.seeds} seed{'s' if result.seeds > 1 else ''}"
    main = plan.cells[0]
    said = (
        f"{result.protocol.started[:10]}. {len(result.arms)} arms, {seeds}: {plan.blocks} blocks, "
        f"width {main.width}, "
    )
    said += (
        f"{main.vocabulary:,} tokens, {plan.steps:,} steps of {plan.batch} windows of "
        f"{plan.context} tokens."
    )
    return Head(["Cures side by side"], said)


@section("tournament", 10)
def leaderboard(result: TournamentResult) -> Section:
    """All arms, the lowest held-out loss first."""
    lead = (
        "Each arm at its best rate of those tried, the same for all, chosen on windows that are "
        "used for nothing else. "
    )
    lead += (
        f"Arms are compared where their held-out loss is {result.matched_loss:.2f} nats: a cone "
        "that fades as the loss "
    )
    lead += "falls would else favour whoever learns faster. Intervals are over seeds."
    return Section(
        "Leaderboard",
        lead,
        [_table(result.arms, BOARD, "Arms by held-out loss", result.matched_loss)],
    )


@section("tournament", 20)
def words(result: TournamentResult) -> Section:
    """A reader's sentence an arm."""
    lead = (
        "What an arm buys, what it costs, and where it only moves the cone. A difference is told "
        "where its interval over "
    )
    lead += (
        "paired seeds, wide enough for all arms at once, leaves no difference out; other rates "
        "and sizes can take it back."
    )
    rows = [Line(row.text("arm"), (row.text("about"), row.text("sentence"))) for row in result.arms]
    columns: list[Term | str] = ["arm", Term("what it is"), Term("what the numbers say")]
    return Section("In words", lead, [Table(columns, rows, title="What each arm buys and costs")])


@section("tournament", 30)
def curves(result: TournamentResult) -> Section | None:
    """The shape against the loss."""
    if not result.curves:
        return None
    shown = {
        "average_cosine": ("cosine", "Average cosine of the last block"),
        "average_cosine_without_ones": (
            "cosine-ones",
            "Average cosine without the direction of ones",
        ),
        "effective_rank": ("rank", "Effective rank of the last block"),
        "effective_rank_without_ones": (
            "rank-ones",
            "Effective rank without the direction of ones",
        ),
    }
    figures = [_figure(result, name, measure, title) for measure, (name, title) in shown.items()]
    lead = (
        "Training goes to the right, where the loss is lower. Means over the seeds that reach a "
        "loss, and their intervals."
    )
    return Section("The shape against the loss", lead, figures)


@section("tournament", 40)
def gradient(result: TournamentResult) -> Section:
    """The logits' gradient through the head, with its nulls."""
    lead = (
        "At the matched loss: how much of the norm of the logits' gradient reaches the states "
        "through the head, beside what "
    )
    lead += (
        "a head of that shape keeps by its shape alone. Norm that is not kept is not necessarily "
        "lost learning."
    )
    shown = _figure(result, "kept", "kept_norm", "Kept norm of the logits' gradient")
    board = _table(result.arms, KEPT, "Kept norm and its nulls")
    return Section(
        "The gradient through the head", lead, [board, shown] if result.curves else [board]
    )


@section("tournament", 50)
def rates(result: TournamentResult) -> Section:
    """Every arm at every rate."""
    return Section(
        "At every rate", "", [_table(result.rates, BOARD, "Arms at every rate", folded=True)]
    )


@section("tournament", 60)
def elsewhere(result: TournamentResult) -> Section | None:
    """Other vocabularies and widths."""
    if not result.others:
        return None
    lead = (
        "Each arm at the rate of the leaderboard, and where its loss is as far below that of the "
        "unigram law as the matched "
    )
    lead += "loss of the leaderboard is."
    rows = sorted(result.others, key=lambda row: (row.text("vocabulary"), row.text("width")))
    return Section(
        "Other vocabularies and widths", lead, [_table(rows, BOARD, "In other cells", folded=True)]
    )


def _figure(result: TournamentResult, name: str, measure: str, title: str) -> Figure:
    """A measure against the held-out loss, a line an arm; training goes right."""
    series = {}
    for arm in result.arms:
        found = [
            row
            for row in result.curves
            if row["arm"] == arm["arm"] and row.number(measure) is not None
        ]
        series[arm.text("arm")] = (
            [row.number("nats") for row in found],
            [row.number(measure) for row in found],
            [row.interval(measure) for row in found],
        )
    figure = lines(series, "held-out loss, nats a token", title, by_depth=True)
    figure.update_xaxes(autorange="reversed")
    return Figure(
        name,
        figure,
        f"{title} against held-out loss, a line an arm",
        f"{title}; training goes right.",
    )


def _table(
    rows: Sequence[Row],
    columns: Sequence[Term],
    title: str,
    matched: float | None = None,
    *,
    folded: bool = False,
) -> Table:
    several = len({(row.text("vocabulary"), row.text("width")) for row in rows}) > 1 or folded
    before: list[Term | str] = [
        "arm",
        *(["V"] if several else []),
        *(["d"] if several else []),
        "rate",
        "seeds",
    ]
    shown = []
    for row in rows:
        known: list[Cell | str | float | int | None] = []
        known += (
            [int(row.number("vocabulary") or 0), int(row.number("width") or 0)] if several else []
        )
        seeds = int(row.number("seeds") or 0)
        reach = row.number("seeds_that_reach_it")
        known += [
            f"{row.number('rate'):g}",
            seeds if reach in (None, seeds) else f"{reach:.0f} of {seeds}",
        ]
        shown.append(Line(row.text("arm"), [*known, *(_cell(row, column) for column in columns)]))
    caption = (
        f"The matched loss is {number(matched, places=2)} nats." if matched is not None else ""
    )
    return Table(
        [*before, *columns], shown, title, caption, folded, where="page" if folded else "everywhere"
    )


def _cell(row: Row, column: Term) -> Cell:
    value = row.number(column.name)
    spread = row.interval(column.name)
    if column.unit == "ms":
        value = None if value is None else 1000 * value
        spread = None if spread is None else (1000 * spread[0], 1000 * spread[1])
    if column.name == "tokens_to_matched_loss" and value is not None:
        value = round(value)
    return Cell(
        value, spread, "" if value is not None else "the matched loss was not passed on the way"
    )
