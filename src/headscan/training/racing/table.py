"""What the runs of an arm say together: means over seeds with their intervals, at equal tokens, time and loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from headscan.geometry.interval import student
from headscan.run import Interval, Row
from headscan.training.racing.moment import SHAPES, Moment
from headscan.training.racing.race import Race

__all__ = ["arm_row", "at_loss", "at_seconds", "curve_rows", "mean_over_seeds", "spent"]


def mean_over_seeds(values: Iterable[float | None], *, level: float = 0.95) -> tuple[float | None, Interval | None]:
    """The mean of what is defined, and Student's interval over seeds; none for a single one.

    >>> mean_over_seeds([1.0, 2.0, 3.0, None])[0], [round(one, 3) for one in mean_over_seeds([1.0, 2.0, 3.0])[1]]
    (2.0, [-0.484, 4.484])
    """
    found = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(found):
        return None, None
    return float(found.mean()), student(found, level=level) if len(found) > 1 else None


def at_loss(race: Race, nats: float) -> dict[str, float | None]:
    """Every number of a run where its held-out loss first falls to `nats`: linear between moments.

    All are None where it never does, or begins below. `tokens` are those read until then.
    """
    for before, after in pairwise(race.moments):
        if before.nats > nats >= after.nats:
            share = (before.nats - nats) / (before.nats - after.nats)
            found = {name: _between(before, after, name, share) for name in (*SHAPES, "step")}
            step = found.pop("step")
            assert step is not None
            spent = None if race.seconds_a_step is None else step * race.seconds_a_step
            return found | {"seconds": spent, "tokens": step * race.tokens_a_step}
    return dict.fromkeys((*SHAPES, "seconds", "tokens"))


def _between(before: Moment, after: Moment, name: str, share: float) -> float | None:
    one, other = getattr(before, name), getattr(after, name)
    return None if one is None or other is None else one + share * (other - one)


def at_seconds(race: Race, seconds: float) -> float | None:
    """Held-out loss after so much processor time of training; None where the run did not last so long."""
    step = seconds / race.seconds_a_step if race.seconds_a_step else -1.0
    for before, after in pairwise(race.moments):
        if before.step <= step <= after.step:
            return before.nats + (step - before.step) / (after.step - before.step) * (after.nats - before.nats)
    return None


def spent(races: Sequence[Race]) -> float:
    """Processor seconds of a whole run, the mean over seeds."""
    return float(np.mean([race.seconds for race in races])) if races else 0.0


def arm_row(races: Sequence[Race], *, about: str, matched: float, seconds: float) -> Row:
    """One arm at one rate in one cell: `races` are its seeds. Every number has its NAME_interval over seeds."""
    first = races[0]
    matching = [at_loss(race, matched) for race in races]
    whole = [race for race in races if race.tuning_nats is not None]
    numbers: dict[str, list[float | None]] = {
        "heldout_nats": [race.moments[-1].nats for race in whole],
        "heldout_nats_at_equal_seconds": [at_seconds(race, seconds) for race in races],
        "seconds_a_step": [race.seconds_a_step for race in races],
        "tokens_to_matched_loss": [found["tokens"] for found in matching],
        "seconds_to_matched_loss": [found["seconds"] for found in matching],
    }
    for name in SHAPES:
        inside = f"{name}_at_matched_loss" if not name.startswith("kept") else name
        numbers[inside] = [found[name] for found in matching]
    cells: dict[str, object] = {
        "arm": first.arm, "about": about, "vocabulary": first.vocabulary, "width": first.width, "rate": first.rate,
        "seeds": len(races), "matched_loss": matched, "seeds_that_reach_it": sum(f["tokens"] is not None for f in matching),
    }  # fmt: skip
    for name, values in numbers.items():
        cells[name], cells[f"{name}_interval"] = mean_over_seeds(values)
    return Row(cells)


def curve_rows(races: Sequence[Race], levels: Sequence[float]) -> list[Row]:
    """The shape of an arm against its held-out loss: one row a level that any seed reaches."""
    rows = []
    for level in levels:
        found = [at_loss(race, level) for race in races]
        if all(each["tokens"] is None for each in found):
            continue
        cells: dict[str, object] = {
            "arm": races[0].arm, "rate": races[0].rate, "nats": level,
            "seeds": sum(each["tokens"] is not None for each in found),
        }  # fmt: skip
        for name in ("tokens", *SHAPES):
            cells[name], cells[f"{name}_interval"] = mean_over_seeds([each[name] for each in found])
        rows.append(Row(cells))
    return rows
