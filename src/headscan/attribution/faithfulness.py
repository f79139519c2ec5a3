"""How far a map can be trusted: take away what it calls important, and look whether the prediction goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.methods import Map, Setting

__all__ = ["SHARES", "agreement", "faithfulness"]

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of units over which comprehensiveness and sufficiency are averaged (DeYoung et al. 2020, "ERASER")."""
POINTS = 20
RANDOM_ORDERS = 3
MOST_STEPS = 8


def faithfulness(setting: Setting, found: Map) -> dict[str, Any]:
    """Deletion and insertion curves, comprehensiveness and sufficiency of a map, beside those of random orders.

    All on the probability p of the predicted token; units go in the order of their scores, highest first (unsigned
    scores: largest first). An absent unit is replaced by the substitute token.

    Returns:
        deletion: {"share": [...], "probability": [...], "area": mean height}: p as ever more units are replaced; low is
            good.
        insertion: the same from nothing to the whole prompt; high is good.
        comprehensiveness: mean over `SHARES` of p - p(without the top share); high is good.
        sufficiency: mean of p - p(only the top share); low is good.
        random: the same four numbers (areas for the curves), averaged over three random orders.
        steps: how many steps of a continuation they are averaged over (evenly spaced, at most eight).

    Cost: about 2 (21 + 5) prompts an order, in shared batches.
    """
    game = setting.game(setting.filler)
    chosen = np.unique(np.linspace(0, len(setting.target.steps) - 1, MOST_STEPS).round().astype(int))
    random = np.random.default_rng(setting.seed)
    own, null = [], []
    for step in chosen.tolist():
        position = setting.target.steps[step].position
        there = np.array([not setting.engine.causal or unit.first <= position for unit in setting.units])
        there &= _readable(setting, there)
        units = np.flatnonzero(there)
        order = units[np.argsort(-found.units[step][units], kind="stable")]
        own.append(_curves(game, order, step))
        null += [_curves(game, random.permutation(units), step) for _ in range(RANDOM_ORDERS)]
    share = own[0]["share"] if len(own) == 1 else np.linspace(0, 1, POINTS + 1)
    curves = {
        key: np.mean([np.interp(share, one["share"], one[key]) for one in own], axis=0)
        for key in ("deletion", "insertion")
    }
    return {
        key: {"share": share.tolist(), "probability": curve.tolist(), "area": _mean(own, key)}
        for key, curve in curves.items()
    } | {
        "comprehensiveness": _mean(own, "comprehensiveness"),
        "sufficiency": _mean(own, "sufficiency"),
        "random": {key: _mean(null, key) for key in (*curves, "comprehensiveness", "sufficiency")},
        "substitute": setting.substitute_name if setting.substitute is not None else "auto",
        "steps": len(chosen),
    }


def _readable(setting: Setting, there: np.ndarray) -> np.ndarray:
    """In a masked model, not the masks themselves: replacing one asks another question."""
    if setting.engine.causal or setting.engine.translates:
        return there
    masks = set(setting.target.positions)
    return np.array([not masks & set(unit.tokens) for unit in setting.units])


def _curves(game: Coalitions, order: np.ndarray, step: int) -> dict[str, Any]:
    n = len(order)
    counts = np.unique(np.linspace(0, n, min(n, POINTS) + 1).round().astype(int))
    tops = np.array([max(1, int(np.ceil(share * n))) for share in SHARES])
    rows = np.ones((2 * len(counts) + 2 * len(tops), len(game.units)), dtype=bool)
    for k, count in enumerate(np.concatenate([counts, tops])):
        without, only = rows[2 * k], rows[2 * k + 1]
        without[order[:count]] = False
        only[order[count:]] = False
    p = game.read(rows, lambda logits: game.target.probability(logits)[:, step])
    without, only = p[0::2], p[1::2]
    return {
        "share": counts / n,
        "deletion": without[: len(counts)],
        "insertion": only[: len(counts)],
        "comprehensiveness": float((without[0] - without[len(counts) :]).mean()),
        "sufficiency": float((without[0] - only[len(counts) :]).mean()),
    }


def _mean(found: list[dict[str, Any]], key: str) -> float:
    """The mean of a number over steps or orders; of a curve, of its mean height (trapezium rule)."""
    return float(np.mean([one[key] if np.ndim(one[key]) == 0 else _area(one["share"], one[key]) for one in found]))


def _area(share: np.ndarray, curve: np.ndarray) -> float:
    return float(((curve[1:] + curve[:-1]) * np.diff(share)).sum() / 2)


def agreement(maps: list[Map]) -> list[dict[str, Any]]:
    """Spearman's rank correlation of every two maps over units, and the share of their five largest they have in common.

    Averaged over steps. A correlation is null where one of the maps is constant.
    """
    from scipy.stats import rankdata

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
        size = np.sqrt((x * x).sum() * (y * y).sum())
        return float((x * y).sum() / size) if size else float("nan")

    found = []
    for i, one in enumerate(maps):
        for other in maps[i + 1 :]:
            top = min(5, one.units.shape[1])
            shared = [
                len(set(np.argsort(-np.abs(a))[:top]) & set(np.argsort(-np.abs(b))[:top])) / top
                for a, b in zip(one.units, other.units, strict=True)
            ]
            ranks = [correlation(a, b) for a, b in zip(one.units, other.units, strict=True)]
            found.append(
                {
                    "methods": [one.method, other.method],
                    "spearman": float(np.mean(ranks)),
                    "top": top,
                    "shared_top": float(np.mean(shared)),
                }
            )
    return found
