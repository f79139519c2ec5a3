"""No interval of any result of the suite is upside down, misses its number, or leaves the range of
its measure.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from headscan.measures import MEASURES, PROBES
from headscan.run.run import Run

VARIANT = re.compile(r"_(without|with)_\w+$")


def entries(value: Any, table: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a document, with the name of the table that it stands in."""
    if isinstance(value, dict):
        yield table, value
        for name, item in value.items():
            yield from entries(item, name if isinstance(item, list | dict) else table)
    elif isinstance(value, list):
        for item in value:
            yield from entries(item, table)


def ends(table: str, name: str, row: dict[str, Any]) -> tuple[float | None, float | None]:
    """The range of a number: of a core measure at its tokens and width, of a probe's field."""
    base = VARIANT.sub("", name)
    if base in MEASURES and table in ("sites", "nulls"):
        tokens = row.get("tokens")
        width = row.get("width")
        all_tokens = name == base and not row.get("sinks") and tokens and width
        return MEASURES[base].ends(tokens, width) if all_tokens else MEASURES[base].range
    field = PROBES[table].words.fields.get(base) if table in PROBES else None
    return (None, None) if field is None else field.range


def wrong(document: dict[str, Any]) -> list[str]:
    """Return what is wrong with the intervals of a result's document."""
    faults = []
    for table, row in entries(document):
        for key, interval in row.items():
            if (
                not key.endswith("interval")
                or not isinstance(interval, list)
                or len(interval) != 2
                or None in interval
            ):
                continue
            name = key.removesuffix("interval").rstrip("_")
            low, high = interval
            value = row.get(name or ("difference" if "difference" in row else "value"))
            slack = 1e-9 * max(abs(low), abs(high), 1.0)
            least, most = ends(table, name, row)
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                faults.append(f"{table}.{key} is {interval}")
            if isinstance(value, int | float) and not low - slack <= value <= high + slack:
                faults.append(f"{table}.{key} {interval} misses {value}")
            if (least is not None and low < least - slack) or (
                most is not None and high > most + slack
            ):
                faults.append(f"{table}.{key} {interval} leaves [{least}, {most}]")
    return faults


def hold() -> None:
    """Every result that a run finishes in this process is looked at from now on."""
    finish = Run.finish

    def checked(self: Run, result: Any) -> Any:
        done = finish(self, result)
        faults = wrong(done.document)
        assert not faults, "; ".join(faults[:5])
        return done

    Run.finish = checked  # type: ignore[method-assign]
