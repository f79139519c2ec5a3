"""The faithfulness of a map: whether the prediction goes when its highest tokens are replaced."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.method import AttributionMap, AttributionTask
from headscan.run import Interval
from headscan.statistics.uncertainty import Bounds, Floats, StandardError, difference_ends

POINTS = 20
"""Points of a curve, beside its first."""
MOST_PREDICTIONS = 8
FEWEST_PREDICTIONS = 4
"""Predictions of which an interval is made."""
RANDOM_ORDERS = 3
"""Random orders of each prediction."""
RANDOM_ORDERS_OF_FEW = 19
"""Random orders of each of few predictions, whose intervals are over orders."""
NO_INTERVAL = (
    "Too few predictions were explained for an interval over predictions: explain four or more of "
    "a continuation (--continuation, --generate). The intervals of random orders are over orders."
)
PROBABILITY_BOUNDS: Bounds = (0.0, 1.0)
COSINE_BOUNDS: Bounds = (-1.0, 1.0)

Numbers = npt.NDArray[np.float32 | np.float64]


@dataclass(frozen=True)
class FaithfulnessCurve:
    """The probability as ever more units are replaced or put back; of a sentence vector the cosine.

    Attributes:
        share: of the units.
        area: the curve's mean height.
        area_interval: over predictions.
    """

    share: list[float]
    probability: list[float]
    area: float
    area_interval: Interval | None = None


@dataclass(frozen=True)
class RandomOrders:
    """The areas when units go in a random order.

    They are averaged over three orders a prediction, 19 of fewer than four predictions. Intervals
    are of what all random orders would give, over predictions, or over orders where there are fewer
    than four predictions.

    Attributes:
        deletion_curve, insertion_curve: the mean heights, at the shares of the map's own curves.
    """

    deletion: float
    insertion: float
    deletion_interval: Interval | None = None
    insertion_interval: Interval | None = None
    deletion_curve: list[float] = field(default_factory=list)
    insertion_curve: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Faithfulness:
    """The predicted token's probability p as units are replaced in the order of their scores.

    Of a sentence vector it is the cosine. Intervals (95 %) are over predictions, from four on: what
    endless text like the continuation would give.

    Attributes:
        deletion: p as ever more units are replaced; low is good.
        insertion: p from nothing to the whole prompt; high is good.
        substitute: what stands for absent units.
        steps: predictions of a continuation that are averaged over (evenly spaced, at most eight).
        gain: how much lower the deletion area is than that of random orders, of the same
            predictions.
        insertion_gain: how much higher the insertion area is.
        no_interval: why there is none.
    """

    deletion: FaithfulnessCurve
    insertion: FaithfulnessCurve
    random: RandomOrders
    substitute: str
    steps: int
    gain: float | None = None
    gain_interval: Interval | None = None
    insertion_gain: float | None = None
    insertion_gain_interval: Interval | None = None
    no_interval: str | None = None


class MeasuredOrder(NamedTuple):
    """The heights of both curves when units go in one order."""

    share: Numbers
    deletion: Numbers
    insertion: Numbers

    @property
    def areas(self) -> list[float]:
        """The areas below the two curves."""
        return [float(np.trapezoid(curve, self.share)) for curve in (self.deletion, self.insertion)]


def measured_orders(
    task: AttributionTask, scores: AttributionMap, steps: Sequence[int]
) -> tuple[list[MeasuredOrder], list[list[MeasuredOrder]]]:
    """Return each prediction's curves in the order of scores, and in random orders."""
    game = task.game(task.filler)
    random = np.random.default_rng(task.seed)
    random_count = RANDOM_ORDERS if len(steps) >= FEWEST_PREDICTIONS else RANDOM_ORDERS_OF_FEW
    orders_by_score = []
    random_orders = []
    for step in steps:
        units = _replaceable_units(task, step)
        by_score = units[np.argsort(-scores.units[step][units], kind="stable")]
        orders_by_score.append(_measured(game, by_score, step))
        random_orders.append(
            [_measured(game, random.permutation(units), step) for _ in range(random_count)]
        )
    return orders_by_score, random_orders


def _replaceable_units(task: AttributionTask, step: int) -> npt.NDArray[np.int64]:
    """Return the units that a prediction sees, but for masks of a masked model.

    Replacing a mask asks another question.
    """
    position = task.target.steps[step].position
    masks = set(task.target.positions) if task.engine.masked else set()
    is_replaceable = [
        not masks & set(unit.tokens) and (not task.engine.causal or unit.tokens[0] <= position)
        for unit in task.units
    ]
    return np.flatnonzero(is_replaceable)


def _measured(game: Coalitions, order: npt.NDArray[np.int64], step: int) -> MeasuredOrder:
    """Return the curves of one prediction when units go in an order."""
    count = len(order)
    points = np.linspace(0, count, min(count, POINTS) + 1)
    replaced_counts = np.unique(points.round().astype(int))
    # The rows of the two curves take turns.
    present = np.ones((2 * len(replaced_counts), len(game.units)), dtype=bool)
    for index, replaced in enumerate(replaced_counts):
        present[2 * index, order[:replaced]] = False
        present[2 * index + 1, order[replaced:]] = False
    heights = game.read(present, lambda logits: game.target.judge(logits)[:, step])
    return MeasuredOrder(replaced_counts / count, heights[0::2], heights[1::2])


def faithfulness(task: AttributionTask, scores: AttributionMap) -> Faithfulness:
    """Return the deletion and insertion curves of a map, beside those of random orders.

    Both are of the probability of the predicted token, or the cosine of the sentence vector; units
    go in the order of their scores, highest first (unsigned scores: largest first). An absent unit
    is replaced by the substitute token.

    Cost: about 42 prompts an order, in shared batches.
    """
    steps = _evenly_spaced(len(task.target.steps))
    orders, random_orders = measured_orders(task, scores, steps)
    areas = np.array([order.areas for order in orders])  # [S, 2]
    random_areas = np.array([[order.areas for order in group] for group in random_orders])
    deletion = areas[:, 0]
    insertion = areas[:, 1]
    random_deletion = random_areas[:, :, 0]  # [S, orders]
    random_insertion = random_areas[:, :, 1]
    gains = random_deletion - deletion[:, None]
    insertion_gains = insertion[:, None] - random_insertion

    bounds = PROBABILITY_BOUNDS if task.target.judged == "probability" else COSINE_BOUNDS
    gain_bounds = difference_ends(bounds, bounds)
    share = orders[0].share if len(orders) == 1 else np.linspace(0, 1, POINTS + 1)
    deletion_heights, insertion_heights = _heights(share, orders)
    every_random_order = [order for group in random_orders for order in group]
    random_deletion_heights, random_insertion_heights = _heights(share, every_random_order)
    return Faithfulness(
        deletion=_curve(share, deletion_heights, deletion, bounds),
        insertion=_curve(share, insertion_heights, insertion, bounds),
        random=RandomOrders(
            deletion=float(random_deletion.mean()),
            insertion=float(random_insertion.mean()),
            deletion_interval=_interval(random_deletion, bounds),
            insertion_interval=_interval(random_insertion, bounds),
            deletion_curve=np.mean(random_deletion_heights, axis=0).tolist(),
            insertion_curve=np.mean(random_insertion_heights, axis=0).tolist(),
        ),
        substitute="auto" if task.substitute is None else task.substitute_name,
        steps=len(steps),
        gain=float(gains.mean()),
        gain_interval=_interval(gains, gain_bounds),
        insertion_gain=float(insertion_gains.mean()),
        insertion_gain_interval=_interval(insertion_gains, gain_bounds),
        no_interval=None if len(steps) >= FEWEST_PREDICTIONS else NO_INTERVAL,
    )


def _heights(
    share: Numbers, orders: Sequence[MeasuredOrder]
) -> tuple[list[Numbers], list[Numbers]]:
    """Return the heights of both curves of each order at the shares."""
    deletion: list[Numbers] = []
    insertion: list[Numbers] = []
    for order in orders:
        deletion.append(np.interp(share, order.share, order.deletion))
        insertion.append(np.interp(share, order.share, order.insertion))
    return deletion, insertion


def _evenly_spaced(predictions: int) -> list[int]:
    """Return at most eight of the predictions."""
    indices = np.linspace(0, predictions - 1, MOST_PREDICTIONS).round().astype(int)
    steps: list[int] = np.unique(indices).tolist()
    return steps


def _curve(
    share: Numbers, heights: Sequence[Numbers], areas: Floats, bounds: Bounds
) -> FaithfulnessCurve:
    """Return the mean of the curves of several predictions."""
    return FaithfulnessCurve(
        share=share.tolist(),
        probability=np.mean(heights, axis=0).tolist(),
        area=float(areas.mean()),
        area_interval=over_predictions(areas, bounds),
    )


def _interval(values: Floats, bounds: Bounds) -> Interval | None:
    """Return the interval of the mean of values [S, orders], over predictions or over orders."""
    if len(values) >= FEWEST_PREDICTIONS:
        return over_predictions(values.mean(1), bounds)
    return _over_orders(values, bounds)


def over_predictions(values: Floats, bounds: Bounds = (None, None)) -> Interval | None:
    """Return Student's 95 % interval of the mean of a number over predictions [S].

    They are taken as independent. None: there are fewer than four. How often it covers is measured
    in benchmarks/faithfulness_intervals_cover.py.

    >>> low, high = over_predictions(np.array([1.0, 2.0, 3.0, 6.0]))
    >>> round(low, 2), round(high, 2)
    (-0.44, 6.44)
    """
    count = len(values)
    if count < FEWEST_PREDICTIONS:
        return None
    return _student(values, values.std(ddof=1) / count**0.5, count - 1, bounds)


def _over_orders(values: Floats, bounds: Bounds) -> Interval:
    """Return the 95 % interval of the mean over all orders, the predictions fixed.

    The values [S, orders] are of some orders of each prediction.
    """
    predictions, orders = values.shape
    error = (values.var(1, ddof=1).sum() / orders) ** 0.5 / predictions
    return _student(values, error, predictions * (orders - 1), bounds)


def _student(values: Floats, error: float, freedom: int, bounds: Bounds) -> Interval:
    standard_error = StandardError(float(error), freedom, len(values))
    return standard_error.interval(float(values.mean()), bounds=bounds)
