"""The derivative of a measure that does not say it, by differences: for measures of plug-ins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.measure import Measure
from headscan.geometry.moments import Floats, Gradient, Moments
from headscan.statistics import Cloud, Sums

__all__ = ["numerical"]

COUNT = 1e9  # vectors of the cloud that stands for the limit
STEP = 1e-5
PIECES, WEIGHT = 8, 1e-3


def numerical(measure: Measure, moments: Moments, frame: Tensor | None, rows: Tensor) -> Gradient | str:
    """The gradient by central differences, or why there is none.

    By the vectors and lengths in any case. By the second moment only where all directions are followed, for measures
    that do not change with a rotation of the vectors: whether this one is such a measure is then tested by weighing
    pieces of the pilot `rows` [n, d] a little more. Cost O(d) evaluations.
    """
    spectral = measure.words.spectral
    if spectral and frame is None:
        return "it needs the second moment, and at this width its derivative must be given with it (`gradient`)"
    turn = frame.numpy() if spectral and frame is not None else np.eye(len(moments.mean))
    unit, mean = turn.T @ moments.unit, turn.T @ moments.mean
    point = np.concatenate([unit, mean, [moments.zeros, moments.norm, moments.square]])
    energies = moments.energies if spectral else np.zeros(0)

    def at(point: Floats, energies: Floats) -> float:
        value = measure.function(_cloud(point, energies))
        return float("nan") if value is None else float(value)

    slopes = _slopes(lambda p: at(p, energies), point)
    width = len(moments.mean)
    gradient = Gradient(turn @ slopes[:width], turn @ slopes[width : 2 * width], *slopes[2 * width :].tolist())
    if spectral:
        gradient = dataclasses.replace(gradient, energies=_slopes(lambda e: at(point, e), energies))
    if not all(np.isfinite(part).all() for part in (slopes, gradient.energies) if part is not None):
        return "its derivative is not finite there"
    return _tested(measure, gradient, turn, rows) if spectral else gradient


def _slopes(function: Callable[[Floats], float], point: Floats) -> Floats:
    scale = STEP * max(float(np.abs(point).max()), 1e-300)
    found = np.empty(len(point))
    for i in range(len(point)):
        step = np.zeros(len(point))
        step[i] = min(scale, 0.1 * abs(point[i])) or scale
        found[i] = (function(point + step) - function(point - step)) / (2 * step[i])
    return found


def _cloud(point: Floats, energies: Floats) -> Cloud:
    """A cloud with these averages, in the frame of its own second moment."""
    width = (len(point) - 3) // 2
    mean = point[width : 2 * width]
    cloud = Cloud(
        count=int(COUNT), zeros=int(COUNT * point[-3]), unit_sum=COUNT * point[:width],
        vector_sum=COUNT * mean, norm_sum=COUNT * point[-2], square_sum=COUNT * point[-1],
        scatter=COUNT * (np.diag(energies) - np.outer(mean, mean)) if len(energies) else None,
    )  # fmt: skip
    if len(energies):
        cloud.__dict__["_eigen"] = energies, np.eye(width)
        cloud.__dict__["energies"] = energies
    return cloud


def _tested(measure: Measure, gradient: Gradient, turn: Floats, rows: Tensor) -> Gradient | str:
    """The gradient, with what it lacks across the mean, if it then foretells what a heavier piece of the pilot does."""
    flat = rows.double().cpu()
    whole = Sums.of_rows(flat)
    energies = gradient.energies
    assert energies is not None
    mean = turn.T @ (whole.total / whole.count).numpy()
    linear = gradient.linear(rows.shape[1]).numpy()
    seen, foretold, across = [], [], []
    for piece in flat.tensor_split(PIECES):
        part = Sums.of_rows(piece)
        values = [measure.function(_weighed(whole, part, weight)) for weight in (WEIGHT, -WEIGHT)]
        if values[0] is None or values[1] is None:
            return "it is not defined on the pilot"
        seen.append((values[0] - values[1]) / (2 * WEIGHT) * whole.count / part.count)
        moment = turn.T @ Cloud.of_sums(part).second_moment @ turn
        sums = torch.cat([part.unit, part.total, part.scalars]).numpy() / part.count
        foretold.append(float(linear @ sums + np.diag(moment) @ energies))
        across.append(float(mean @ moment @ mean - np.diag(moment) @ mean**2))
    known, aside = np.array(seen) - np.mean(seen), np.array(across) - np.mean(across)
    missing = known - (np.array(foretold) - np.mean(foretold))
    allowed = 0.05 * float(np.linalg.norm(known)) + 1e-12
    if float(np.linalg.norm(missing)) <= allowed:
        return gradient
    outer = float(missing @ aside / max(float(aside @ aside), 1e-300))
    if float(np.linalg.norm(missing - outer * aside)) <= allowed:
        return dataclasses.replace(gradient, outer=outer, energies=energies - outer * mean**2)
    return "its derivative by the second moment is no function of the spectrum alone: give it with it (`gradient`)"


def _weighed(whole: Sums, part: Sums, weight: float) -> Cloud:
    """The cloud in which a part counts a little more."""
    moved = whole.weighed(part, weight)
    cloud = Cloud.of_sums(moved)
    return dataclasses.replace(cloud, count=float(moved.scalars[0]), zeros=float(moved.scalars[1]))  # type: ignore[arg-type]
