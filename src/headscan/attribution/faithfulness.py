"""How far a map can be trusted: take away what it calls important, and look whether the prediction
goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headscan.attribution.method import AttributionMap, AttributionTask, Coalitions
from headscan.run import Interval
from headscan.statistics.uncertainty import Bounds, Floats, StandardError, difference_ends

POINTS = 20
MOST_STEPS = 8
FEWEST = 4  # predictions of which an interval is made
# of a prediction; of few predictions, whose intervals are over orders
RANDOM_ORDERS = 3
ALONE = 19
ONE = (
    "Too few predictions were explained for an interval over predictions: explain four or more of "
    "a continuation (--continuation, --generate). The intervals of random orders are over orders."
)

Numbers = npt.NDArray[np.float32 | np.float64]


@dataclass(frozen=True)
class FaithfulnessCurve:
    """The probability (of a sentence vector the cosine) as ever more units (a share of them) are
    replaced or put back; `area` is its mean height, `area_interval` over predictions.
    """

    share: list[float]
    probability: list[float]
    area: float
    area_interval: Interval | None = None


@dataclass(frozen=True)
class RandomOrders:
    """The areas when units go in a random order, averaged over three a prediction, 19 of fewer than
    four predictions.

    Intervals: of what all random orders would give, over predictions, or over orders where there
        are fewer than four.
    """

    deletion: float
    insertion: float
    deletion_interval: Interval | None = None
    insertion_interval: Interval | None = None


@dataclass(frozen=True)
class Faithfulness:
    """The predicted token's probability p, or a sentence vector's cosine, as units are replaced in
    the order of scores.

    Intervals (95 %) are over predictions, from four on: what endless text like the continuation
    would give.
    """

    deletion: FaithfulnessCurve  # p as ever more units are replaced; low is good
    insertion: FaithfulnessCurve  # p from nothing to the whole prompt; high is good
    random: RandomOrders
    substitute: str  # what stands for absent units
    steps: (
        int  # predictions of a continuation that are averaged over (evenly spaced, at most eight)
    )
    gain: float | None = (
        # how much lower the deletion area is than that of random orders, of the same predictions
        None
    )
    gain_interval: Interval | None = None
    insertion_gain: float | None = None  # how much higher the insertion area is
    insertion_gain_interval: Interval | None = None
    no_interval: str | None = None  # why there is none


class MeasuredOrder(NamedTuple):
    """The heights of both curves when units go in one order."""

    share: Numbers
    deletion: Numbers
    insertion: Numbers

    @property
    def areas(self) -> list[float]:
        return [float(np.trapezoid(curve, self.share)) for curve in (self.deletion, self.insertion)]


def measured_orders(
    task: AttributionTask, scores: AttributionMap, steps: Sequence[int]
) -> tuple[list[MeasuredOrder], list[list[MeasuredOrder]]]:
    """For each of these predictions, the units in the order of their scores, and in random orders."""
    game = task.game(task.filler)
    random = np.random.default_rng(task.seed)
    # In a masked model the masks themselves stay: replacing one asks another question.
    masks = set(task.target.positions) if task.engine.masked else set()
    free = np.array([not masks & set(unit.tokens) for unit in task.units])
    own = []
    null = []
    for step in steps:
        position = task.target.steps[step].position
        there = np.array(
            [not task.engine.causal or unit.tokens[0] <= position for unit in task.units]
        )
        units = np.flatnonzero(there & free)
        order = units[np.argsort(-scores.units[step][units], kind="stable")]
        own.append(_measured(game, order, step))
        null.append(
            [
                _measured(game, random.permutation(units), step)
                for _ in range(RANDOM_ORDERS if len(steps) >= FEWEST else ALONE)
            ]
        )
    return own, null


def faithfulness(task: AttributionTask, scores: AttributionMap) -> Faithfulness:
    """Deletion and insertion curves of a map, beside those of random orders.

    Both on the probability of the predicted token, or the cosine of the sentence vector; units go
    in the order of their scores, highest first (unsigned scores: largest first). An absent unit is
    replaced by the substitute token.

    Cost: about 42 prompts an order, in shared batches.
    """
    chosen = np.unique(
        np.linspace(0, len(task.target.steps) - 1, MOST_STEPS).round().astype(int)
    ).tolist()
    own, null = measured_orders(task, scores, chosen)
    share = own[0].share if len(own) == 1 else np.linspace(0, 1, POINTS + 1)
    areas = np.array([order.areas for order in own])  # [S, 2]
    random = np.array([[order.areas for order in orders] for orders in null])  # [S, orders, 2]
    enough = len(chosen) >= FEWEST
    # [S, orders]
    gains = random[:, :, 0] - areas[:, :1]
    inserted = areas[:, 1:] - random[:, :, 1]
    ends = (0.0, 1.0) if task.target.judged == "probability" else (-1.0, 1.0)
    apart = difference_ends(ends, ends)

    def beyond(values: Floats, ends: Bounds = apart) -> Interval | None:
        return over_predictions(values.mean(1), ends) if enough else _over_orders(values, ends)

    def curve(which: int, curves: Sequence[Numbers]) -> FaithfulnessCurve:
        heights = np.mean(
            [np.interp(share, order.share, y) for order, y in zip(own, curves, strict=True)], axis=0
        )
        column = areas[:, which]
        return FaithfulnessCurve(
            share.tolist(), heights.tolist(), float(column.mean()), over_predictions(column, ends)
        )

    without = random[:, :, 0]
    within = random[:, :, 1]
    return Faithfulness(
        deletion=curve(0, [order.deletion for order in own]),
        insertion=curve(1, [order.insertion for order in own]),
        random=RandomOrders(
            float(without.mean()), float(within.mean()), beyond(without, ends), beyond(within, ends)
        ),
        substitute=task.substitute_name if task.substitute is not None else "auto",
        steps=len(chosen),
        gain=float(gains.mean()),
        gain_interval=beyond(gains),
        insertion_gain=float(inserted.mean()),
        insertion_gain_interval=beyond(inserted),
        no_interval=None if enough else ONE,
    )


def over_predictions(values: Floats, ends: Bounds = (None, None)) -> Interval | None:
    """Student's 95 % interval of the mean of a number over predictions [S], taken as independent;
    None below four.

    How often it covers is measured in benchmarks/faithfulness_intervals_cover.py.

    >>> low, high = over_predictions(np.array([1.0, 2.0, 3.0, 6.0]))
    >>> round(low, 2), round(high, 2)
    (-0.44, 6.44)
    """
    many = len(values)
    return (
        _student(values, values.std(ddof=1) / many**0.5, many - 1, ends) if many >= FEWEST else None
    )


def _over_orders(values: Floats, ends: Bounds) -> Interval:
    """The 95 % interval of the mean over all orders, from some of each prediction [S, orders], the
    predictions fixed.
    """
    predictions, orders = values.shape
    error = (values.var(1, ddof=1).sum() / orders) ** 0.5 / predictions
    return _student(values, error, predictions * (orders - 1), ends)


def _student(values: Floats, error: float, freedom: int, ends: Bounds) -> Interval:
    return StandardError(float(error), freedom, len(values)).interval(
        float(values.mean()), bounds=ends
    )


def _measured(game: Coalitions, order: npt.NDArray[np.int64], step: int) -> MeasuredOrder:
    n = len(order)
    counts = np.unique(np.linspace(0, n, min(n, POINTS) + 1).round().astype(int))
    rows = np.ones((2 * len(counts), len(game.units)), dtype=bool)
    for k, count in enumerate(counts):
        rows[2 * k, order[:count]] = False
        rows[2 * k + 1, order[count:]] = False
    p = game.read(rows, lambda logits: game.target.judge(logits)[:, step])
    return MeasuredOrder(counts / n, p[0::2], p[1::2])
