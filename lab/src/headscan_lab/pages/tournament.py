"""The page of a tournament: the leaderboard, and the cone against the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from headscan.report.kit import Cell, Figure, Head, Line, Section, Table, Term, page, section
from headscan.report.kit.figures import lines
from headscan.report.kit.words import number

if TYPE_CHECKING:
    from headscan.run import Row
    from headscan_lab.tournament.table import TournamentResult


TableCell: TypeAlias = Cell | str | float | int | None
AT_MATCHED_LOSS = "at the matched loss"
BOARD = (
    Term(
        "held-out nats",
        "Held-out loss a token after the last step: all arms have read as many tokens.",
        name="heldout_nats",
        column="nats",
        places=3,
    ),
    Term(
        "less reference",
        "The same less that of the reference, the first arm of its architecture, by paired seeds; "
        "the intervals of all arms hold together.",
        places=3,
        name="heldout_nats_less_reference",
        where="page",
    ),
    Term(
        "tokens to it",
        "Tokens read until the held-out loss is first the matched one.",
        name="tokens_to_matched_loss",
        column="tokens\nto it",
    ),
    Term(
        "cosine",
        "Average cosine of the last block's states where the loss is the matched one.",
        places=3,
        name="average_cosine_at_matched_loss",
        group=AT_MATCHED_LOSS,
        column="cosine",
    ),
    Term(
        "cosine less reference",
        "The same less that of the reference, by paired seeds.",
        places=3,
        name="average_cosine_less_reference",
        group=AT_MATCHED_LOSS,
        column="less\nreference",
    ),
    Term(
        "without ones",
        "The same, each state less the mean of its own coordinates: a LayerNorm deletes that "
        "direction.",
        places=3,
        name="average_cosine_without_ones_at_matched_loss",
        group=AT_MATCHED_LOSS,
        column="without\nones",
    ),
    Term(
        "without mean",
        "The same, less the mean state of other windows.",
        places=3,
        group=AT_MATCHED_LOSS,
        name="average_cosine_without_mean_at_matched_loss",
        where="page",
    ),
    Term(
        "rank",
        "Effective rank of the last block's states.",
        places=1,
        name="effective_rank_at_matched_loss",
        group=AT_MATCHED_LOSS,
        where="page",
    ),
    Term(
        "rank without ones",
        "The same without the direction of ones.",
        places=1,
        group=AT_MATCHED_LOSS,
        name="effective_rank_without_ones_at_matched_loss",
        column="rank\nw/o ones",
    ),
    Term(
        "rank without mean",
        "The same, less the mean state of other windows.",
        places=1,
        group=AT_MATCHED_LOSS,
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
    """Return what was run, when, and for how long."""
    plan = result.plan
    seeds = f"{result.seeds} seed{'s' if result.seeds > 1 else ''}"
    sentence = (
        f"{result.protocol.started[:10]}. {len(result.arms)} arms, {seeds}: {plan.blocks} blocks, "
        f"width {plan.width}, {plan.vocabulary:,} tokens, {plan.steps:,} steps of {plan.batch} "
        f"windows of {plan.context} tokens."
    )
    return Head(["Ways of training side by side"], sentence)


@section("tournament", 10)
def leaderboard(result: TournamentResult) -> Section:
    """Show all arms, the lowest held-out loss first."""
    lead = (
        "Each arm at its best rate of those tried, the same for all, chosen on windows that are "
        "used for nothing else. Arms are compared where their held-out loss is "
        f"{result.matched_loss:.2f} nats, because the cone weakens as the loss falls. "
        "Intervals are over seeds."
    )
    table = _table(result.arms, BOARD, "Arms by held-out loss", result.matched_loss)
    return Section("Leaderboard", lead, [table])


@section("tournament", 30)
def curves(result: TournamentResult) -> Section | None:
    """Show the shape against the loss, where an arm passes two levels at least."""
    if not _has_lines(result):
        return None
    figures = [
        _figure(result, "cosine", "average_cosine", "Average cosine of the last block"),
        _figure(
            result,
            "cosine-ones",
            "average_cosine_without_ones",
            "Average cosine without the direction of ones",
        ),
        _figure(result, "rank", "effective_rank", "Effective rank of the last block"),
        _figure(
            result,
            "rank-ones",
            "effective_rank_without_ones",
            "Effective rank without the direction of ones",
        ),
    ]
    lead = (
        "Training goes to the right, where the loss is lower. Means over the seeds that reach a "
        "loss, and their intervals."
    )
    return Section("The shape against the loss", lead, figures)


@section("tournament", 40)
def gradient(result: TournamentResult) -> Section:
    """Show the logits' gradient through the head, with its nulls."""
    lead = (
        "At the matched loss: how much of the norm of the logits' gradient reaches the states "
        "through the head, beside what a head of that shape keeps by its shape alone. Norm that "
        "is not kept is not necessarily lost learning."
    )
    parts: list[Table | Figure] = [_table(result.arms, KEPT, "Kept norm and its nulls")]
    if _has_lines(result):
        parts.append(_figure(result, "kept", "kept_norm", "Kept norm of the logits' gradient"))
    return Section("The gradient through the head", lead, parts)


@section("tournament", 50)
def rates(result: TournamentResult) -> Section:
    """Show every arm at every rate."""
    table = _table(result.rates, BOARD, "Arms at every rate", folded=True)
    return Section("At every rate", "", [table])


def _has_lines(result: TournamentResult) -> bool:
    """Tell whether an arm passes two levels of the loss: a single level gives no line."""
    return any(levels > 1 for levels in Counter(row["arm"] for row in result.curves).values())


def _figure(result: TournamentResult, name: str, measure: str, title: str) -> Figure:
    """Return a measure against the held-out loss, a line an arm; training goes right."""
    series = {}
    for arm in result.arms:
        rows = [
            row
            for row in result.curves
            if row["arm"] == arm["arm"] and row.number(measure) is not None
        ]
        series[arm.text("arm")] = (
            [row.number("nats") for row in rows],
            [row.number(measure) for row in rows],
            [row.interval(measure) for row in rows],
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
    """Return a table, a row an arm."""
    first_columns: list[Term | str] = ["arm", "rate", "seeds"]
    table_lines = []
    for row in rows:
        cells = _first_cells(row)
        cells += [_cell(row, column) for column in columns]
        table_lines.append(Line(row.text("arm"), cells))
    caption = ""
    if matched is not None:
        caption = f"The matched loss is {number(matched, places=2)} nats."
    return Table(
        [*first_columns, *columns],
        table_lines,
        title,
        caption,
        folded,
        where="page" if folded else "everywhere",
    )


def _first_cells(row: Row) -> list[TableCell]:
    """Return rate and seeds of a row."""
    seeds = int(row.number("seeds") or 0)
    reaching = row.number("seeds_that_reach_it")
    all_reach = reaching is None or reaching == seeds
    return [f"{row.number('rate'):g}", seeds if all_reach else f"{reaching:.0f} of {seeds}"]


def _cell(row: Row, column: Term) -> Cell:
    value = row.number(column.name)
    interval = row.interval(column.name)
    if value is None:
        return Cell(None, interval, "the matched loss was not passed on the way")
    if column.name == "tokens_to_matched_loss":
        value = round(value)
    return Cell(value, interval, "")
