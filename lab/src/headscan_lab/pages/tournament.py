"""The page of a tournament: the leaderboard with its sentences, and the cone against the loss."""

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
        group=AT_MATCHED_LOSS,
        column="cosine",
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
    cell = plan.main_cell
    seeds = f"{result.seeds} seed{'s' if result.seeds > 1 else ''}"
    sentence = (
        f"{result.protocol.started[:10]}. {len(result.arms)} arms, {seeds}: {plan.blocks} blocks, "
        f"width {cell.width}, {cell.vocabulary:,} tokens, {plan.steps:,} steps of {plan.batch} "
        f"windows of {plan.context} tokens."
    )
    return Head(["Cures side by side"], sentence)


@section("tournament", 10)
def leaderboard(result: TournamentResult) -> Section:
    """Show all arms, the lowest held-out loss first."""
    lead = (
        "Each arm at its best rate of those tried, the same for all, chosen on windows that are "
        "used for nothing else. Arms are compared where their held-out loss is "
        f"{result.matched_loss:.2f} nats: a cone that fades as the loss falls would else favour "
        "whoever learns faster. Intervals are over seeds."
    )
    table = _table(result.arms, BOARD, "Arms by held-out loss", result.matched_loss)
    return Section("Leaderboard", lead, [table])


@section("tournament", 20)
def words(result: TournamentResult) -> Section:
    """Show a sentence for each arm."""
    lead = (
        "What an arm buys, what it costs, and where it only moves the cone. A difference is told "
        "where its interval over paired seeds, wide enough for all arms at once, leaves no "
        "difference out; other rates and sizes can take it back."
    )
    rows = [Line(row.text("arm"), (row.text("about"), row.text("sentence"))) for row in result.arms]
    columns: list[Term | str] = ["arm", Term("what it is"), Term("what the numbers say")]
    return Section("In words", lead, [Table(columns, rows, title="What each arm buys and costs")])


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


@section("tournament", 60)
def elsewhere(result: TournamentResult) -> Section | None:
    """Show the arms at other vocabularies and widths."""
    if not result.others:
        return None
    lead = (
        "Each arm at the rate of the leaderboard, and where its loss is as far below that of the "
        "unigram law as the matched loss of the leaderboard is."
    )
    rows = sorted(result.others, key=lambda row: (row.text("vocabulary"), row.text("width")))
    table = _table(rows, BOARD, "In other cells", folded=True)
    return Section("Other vocabularies and widths", lead, [table])


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
    """Return a table, a row an arm; with several sizes, each row begins with its size."""
    sizes = {(row.text("vocabulary"), row.text("width")) for row in rows}
    shows_size = len(sizes) > 1 or folded
    first_columns: list[Term | str] = ["arm"]
    if shows_size:
        first_columns += ["V", "d"]
    first_columns += ["rate", "seeds"]
    table_lines = []
    for row in rows:
        cells = _first_cells(row, shows_size)
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


def _first_cells(row: Row, shows_size: bool) -> list[TableCell]:
    """Return size, rate and seeds of a row."""
    cells: list[TableCell] = []
    if shows_size:
        cells += [int(row.number("vocabulary") or 0), int(row.number("width") or 0)]
    seeds = int(row.number("seeds") or 0)
    reaching = row.number("seeds_that_reach_it")
    all_reach = reaching is None or reaching == seeds
    cells.append(f"{row.number('rate'):g}")
    cells.append(seeds if all_reach else f"{reaching:.0f} of {seeds}")
    return cells


def _cell(row: Row, column: Term) -> Cell:
    value = row.number(column.name)
    interval = row.interval(column.name)
    if value is None:
        return Cell(None, interval, "the matched loss was not passed on the way")
    if column.unit == "ms":
        value = 1000 * value
        if interval is not None:
            interval = (1000 * interval[0], 1000 * interval[1])
    if column.name == "tokens_to_matched_loss":
        value = round(value)
    return Cell(value, interval, "")
