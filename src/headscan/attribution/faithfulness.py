"""How far a map can be trusted: take away what it calls important, and look whether the prediction goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.method import AttributionMap, AttributionTask

__all__ = ["SHARES", "Agreement", "Faithfulness", "FaithfulnessCurve", "RandomOrders", "agreement", "faithfulness"]

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of units over which comprehensiveness and sufficiency are averaged (DeYoung et al. 2020, "ERASER")."""
POINTS = 20
RANDOM_ORDERS = 3
MOST_STEPS = 8

Numbers = npt.NDArray[np.float32 | np.float64]


@dataclass(frozen=True)
class FaithfulnessCurve:
    """The probability (of a sentence vector the cosine) as ever more units (a share of them) are replaced or put back;
    `area` is its mean height."""

    share: list[float]
    probability: list[float]
    area: float


@dataclass(frozen=True)
class RandomOrders:
    """The four numbers (areas, for the curves) when units go in a random order, averaged over three."""

    deletion: float
    insertion: float
    comprehensiveness: float
    sufficiency: float


@dataclass(frozen=True)
class Faithfulness:
    """What becomes of the predicted token's probability p, or a sentence vector's cosine, when units go by their scores.

    Attributes:
        deletion: p as ever more units are replaced; low is good.
        insertion: the same from nothing to the whole prompt; high is good.
        comprehensiveness: mean over `SHARES` of p - p(without the top share); high is good.
        sufficiency: mean of p - p(only the top share); low is good.
        random: the same for random orders.
        substitute: what stands for absent units.
        steps: how many predictions of a continuation they are averaged over (evenly spaced, at most eight).
    """

    deletion: FaithfulnessCurve
    insertion: FaithfulnessCurve
    comprehensiveness: float
    sufficiency: float
    random: RandomOrders
    substitute: str
    steps: int


@dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation of two maps over units (None where one is constant), and the share of their `top`
    largest units that they have in common; averaged over predictions."""

    methods: tuple[str, str]
    spearman: float | None
    top: int
    shared_top: float


@dataclass(frozen=True)
class _Curves:
    """Of one order of the units: the curves, and the means over `SHARES`."""

    share: Numbers
    deletion: Numbers
    insertion: Numbers
    comprehensiveness: float
    sufficiency: float


def faithfulness(task: AttributionTask, found: AttributionMap) -> Faithfulness:
    """Deletion and insertion curves, comprehensiveness and sufficiency of a map, beside those of random orders.

    All on the probability of the predicted token, or the cosine of the sentence vector; units go in the order of their
    scores, highest first (unsigned scores: largest first). An absent unit is replaced by the substitute token.

    Cost: about 2 (21 + 5) prompts an order, in shared batches.
    """
    game = task.game(task.filler)
    chosen = np.unique(np.linspace(0, len(task.target.steps) - 1, MOST_STEPS).round().astype(int))
    random = np.random.default_rng(task.seed)
    own, null = [], []
    for step in chosen.tolist():
        position = task.target.steps[step].position
        there = np.array([not task.engine.causal or unit.first <= position for unit in task.units])
        there &= _readable(task, there)
        units = np.flatnonzero(there)
        order = units[np.argsort(-found.units[step][units], kind="stable")]
        own.append(_curves(game, order, step))
        null += [_curves(game, random.permutation(units), step) for _ in range(RANDOM_ORDERS)]
    share = own[0].share if len(own) == 1 else np.linspace(0, 1, POINTS + 1)

    def curve(values: list[Numbers]) -> FaithfulnessCurve:
        mean = np.mean([np.interp(share, one.share, value) for one, value in zip(own, values, strict=True)], axis=0)
        return FaithfulnessCurve(share.tolist(), mean.tolist(), _mean_area(own, values))

    return Faithfulness(
        curve([one.deletion for one in own]),
        curve([one.insertion for one in own]),
        _mean([one.comprehensiveness for one in own]),
        _mean([one.sufficiency for one in own]),
        RandomOrders(
            _mean_area(null, [one.deletion for one in null]),
            _mean_area(null, [one.insertion for one in null]),
            _mean([one.comprehensiveness for one in null]),
            _mean([one.sufficiency for one in null]),
        ),
        task.substitute_name if task.substitute is not None else "auto",
        len(chosen),
    )


def _readable(task: AttributionTask, there: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """In a masked model, not the masks themselves: replacing one asks another question."""
    if not task.engine.masked:
        return there
    masks = set(task.target.positions)
    return np.array([not masks & set(unit.tokens) for unit in task.units])


def _curves(game: Coalitions, order: npt.NDArray[np.int64], step: int) -> _Curves:
    n = len(order)
    counts = np.unique(np.linspace(0, n, min(n, POINTS) + 1).round().astype(int))
    tops = np.array([max(1, int(np.ceil(share * n))) for share in SHARES])
    rows = np.ones((2 * len(counts) + 2 * len(tops), len(game.units)), dtype=bool)
    for k, count in enumerate(np.concatenate([counts, tops])):
        without, only = rows[2 * k], rows[2 * k + 1]
        without[order[:count]] = False
        only[order[count:]] = False
    p = game.read(rows, lambda logits: game.target.judge(logits)[:, step])
    without_top, only_top = p[0::2], p[1::2]
    return _Curves(
        counts / n,
        without_top[: len(counts)],
        only_top[: len(counts)],
        float((without_top[0] - without_top[len(counts) :]).mean()),
        float((without_top[0] - only_top[len(counts) :]).mean()),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _mean_area(found: Sequence[_Curves], curves: Sequence[Numbers]) -> float:
    """The mean height of curves by the trapezium rule, averaged over steps or orders."""
    return _mean(
        [
            float(((curve[1:] + curve[:-1]) * np.diff(one.share)).sum() / 2)
            for one, curve in zip(found, curves, strict=True)
        ]
    )


def agreement(maps: dict[str, AttributionMap]) -> list[Agreement]:
    """How far every two maps agree."""
    from scipy.stats import rankdata

    def correlation(a: Numbers, b: Numbers) -> float:
        x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
        size = np.sqrt((x * x).sum() * (y * y).sum())
        return float((x * y).sum() / size) if size else float("nan")

    found = []
    named = list(maps.items())
    for i, (one, first) in enumerate(named):
        for other, second in named[i + 1 :]:
            top = min(5, first.units.shape[1])
            rows = list(zip(first.units, second.units, strict=True))
            shared = [
                len(set(np.argsort(-np.abs(a))[:top].tolist()) & set(np.argsort(-np.abs(b))[:top].tolist())) / top
                for a, b in rows
            ]
            spearman = _mean([correlation(a, b) for a, b in rows])
            found.append(Agreement((one, other), spearman if np.isfinite(spearman) else None, top, _mean(shared)))
    return found
