"""Numbers read off one race: at a loss and at its end; and their means over seeds."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from headscan.run import Interval
from headscan.statistics.uncertainty import student
from headscan_lab.tournament.moment import SHAPES, Moment
from headscan_lab.tournament.race import Race


def mean_over_seeds(
    values: Iterable[float | None], *, level: float = 0.95
) -> tuple[float | None, Interval | None]:
    """Return the mean of the values that are defined, and Student's interval over seeds.

    The interval is None for a single value.

    >>> mean, interval = mean_over_seeds([1.0, 2.0, 3.0, None])
    >>> mean, [round(end, 3) for end in interval]
    (2.0, [-0.484, 4.484])
    """
    defined = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(defined):
        return None, None
    interval = student(defined, level=level) if len(defined) > 1 else None
    return float(defined.mean()), interval


def at_loss(race: Race, nats: float) -> dict[str, float | None]:
    """Return every number of a run where its held-out loss first falls to `nats`.

    Numbers are linear between moments. All are None where the loss never falls so far, or begins
    below. `tokens` are those used until then.
    """
    for earlier, later in pairwise(race.moments):
        if not earlier.nats > nats >= later.nats:
            continue
        share = (earlier.nats - nats) / (earlier.nats - later.nats)
        numbers = {name: _between(earlier, later, name, share) for name in SHAPES}
        step = _between(earlier, later, "step", share)
        assert step is not None
        numbers["tokens"] = step * race.tokens_a_step
        return numbers
    return dict.fromkeys((*SHAPES, "tokens"))


def _between(earlier: Moment, later: Moment, name: str, share: float) -> float | None:
    start = getattr(earlier, name)
    end = getattr(later, name)
    return None if start is None or end is None else start + share * (end - start)


def final_nats(race: Race) -> float | None:
    """Return the held-out loss at the end of a run; None where the run did not come to its end."""
    return None if race.tuning_nats is None else race.moments[-1].nats
