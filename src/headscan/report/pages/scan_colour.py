"""The column of a table that colours the CAT scan: its legend, its codes and its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headscan.report.kit import Line, Table, palette
from headscan.report.kit.words import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headscan.scanner.colouring import Colouring
    from headscan.states.value_columns import Value
    from headscan.statistics.uncertainty import Floats

MOST_CATEGORIES = 10
"""The most frequent values have colours of their own; all others share one."""

GREY = -1
NO_VALUE = "no value"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ColumnColours:
    """A column as a page shows it.

    Attributes:
        column: its name.
        data: what the page's script draws: the legend with a code for each dot, or the ends of a
            scale with a share of it for each dot.
        values: the text of each dot's value, by cloud.
        table: the values and their dots.
    """

    column: str
    data: Mapping[str, object]
    values: Sequence[Sequence[str]]
    table: Table


def column_colours(colourings: Mapping[str, Colouring]) -> ColumnColours:
    """Return the colours of the clouds of several sources by one column."""
    all_colourings = list(colourings.values())
    column = all_colourings[0].column
    kinds = {colouring.kind for colouring in all_colourings}
    values = [list(map(_text, colouring.values)) for colouring in all_colourings]
    names = list(colourings)
    if kinds == {"number"} or kinds == {"date"}:
        data, table = _scale(column, all_colourings, names)
    else:
        data, table = _legend(column, values, names)
    return ColumnColours(column, {"name": column, **data}, values, table)


def _text(value: Value) -> str:
    return NO_VALUE if value is None else str(value)


def _legend(
    column: str, values: Sequence[Sequence[str]], names: Sequence[str]
) -> tuple[dict[str, object], Table]:
    """Return the categories, most frequent first, with a code for each dot; and their table."""
    counts = Counter(text for texts in values for text in texts)
    missing = counts.pop(NO_VALUE, 0)
    shown = [text for text, count in counts.most_common(MOST_CATEGORIES) if count > 1]
    others = len(counts) - len(shown)
    entries = [{"label": text, "count": counts[text], "colour": i} for i, text in enumerate(shown)]
    codes = {text: code for code, text in enumerate(shown)}
    if others:
        label = f"{others:,} {'other ' if shown else ''}value{'s' if others > 1 else ''}"
        count = sum(counts.values()) - sum(counts[text] for text in shown)
        codes |= dict.fromkeys(counts.keys() - codes.keys(), len(entries))
        entries.append({"label": label, "count": count, "colour": GREY})
    if missing:
        codes[NO_VALUE] = len(entries)
        entries.append({"label": NO_VALUE, "count": missing, "colour": GREY})
    codes_of_clouds = [[codes[text] for text in texts] for texts in values]
    lines = []
    for code, entry in enumerate(entries):
        cells: list[int | str] = []
        for cloud in codes_of_clouds:
            count = cloud.count(code)
            cells += [count, f"{100 * count / max(len(cloud), 1):.0f} %"]
        lines.append(Line(str(entry["label"]), cells))
    columns = [column]
    for name in names:
        of = f", {name}" if len(names) > 1 else ""
        columns += [f"sampled vectors{of}", f"share{of}"]
    data = {
        "legend": entries,
        "codes": codes_of_clouds,
        "palette": palette.MODELS,
    }
    return data, Table(columns, lines, title=f"Sampled vectors by {column}", where="page")


def _scale(
    column: str, colourings: Sequence[Colouring], names: Sequence[str]
) -> tuple[dict[str, object], Table]:
    """Return the ends of a scale of numbers or dates, and the share of it of each dot."""
    values = [value for colouring in colourings for value in colouring.values]
    joined = _numbers(values)
    order = _finite_order(joined)
    ends = [NO_VALUE, NO_VALUE]
    low = high = 0.0
    if len(order):
        ends = [_end(values[order[0]]), _end(values[order[-1]])]
        low = joined[order[0]]
        high = joined[order[-1]]
    width = high - low if high > low else 1.0

    shares = []
    lines = []
    for name, colouring in zip(names, colourings, strict=True):
        numbers = _numbers(colouring.values)
        scaled = (numbers - low) / width
        shares.append([None if np.isnan(share) else round(share, 4) for share in scaled.tolist()])
        order = _finite_order(numbers)
        quantiles = [NO_VALUE] * 3
        if len(order):
            places = (0, (len(order) - 1) // 2, -1)
            quantiles = [_end(colouring.values[order[place]]) for place in places]
        lines.append(Line(name, [*quantiles, len(numbers) - len(order)]))
    columns = ["source", "lowest", "middle", "highest", "sampled vectors without a value"]
    table = Table(columns, lines, title=f"Sampled vectors by {column}", where="page")
    return {"ends": ends, "shares": shares}, table


def _numbers(values: Sequence[Value]) -> Floats:
    """Return numbers, or the seconds of dates; NaN where a value is missing."""
    return np.array([_number(value) for value in values])


def _finite_order(numbers: Floats) -> npt.NDArray[np.int64]:
    """Return the places of the finite numbers, from the lowest to the highest."""
    finite = np.flatnonzero(np.isfinite(numbers))
    return finite[np.argsort(numbers[finite], kind="stable")]


def _number(value: Value) -> float:
    """Return a number, or the seconds of a date."""
    if value is None:
        return float("nan")
    if not isinstance(value, str):
        return float(value)
    moment = datetime.fromisoformat(value)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH).total_seconds()


def _end(value: Value) -> str:
    """Return an end of a scale as text; a date at midnight without its time."""
    if isinstance(value, str):
        return value.removesuffix("T00:00:00")
    assert value is not None
    return number(float(value))
