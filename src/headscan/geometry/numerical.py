"""The derivative of a measure that does not say it, by differences: for measures of plug-ins."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.measure import Measure
from headscan.geometry.moments import Floats, Gradient, Moments
from headscan.statistics import Cloud, Sums

__all__ = ["numerical"]

COUNT = 1e9  # vectors of the cloud that stands for the limit
STEP = 1e-5


def numerical(measure: Measure, moments: Moments, frame: Tensor | None, rows: Tensor) -> Gradient | str:
    """The gradient by central differences, or why there is none.

    By the vectors and lengths in any case. By the second moment only where all directions are followed, for measures
    that do not change with a rotation of the vectors: whether this one is such a measure is then tested by weighing
    windows of the pilot `rows` [windows, T, d] a little more. Cost O(d) evaluations.
    """
    if measure.words.spectral and frame is None:
        return "it needs the second moment, and at this width its derivative must be given with it (`gradient`)"
    turn = np.eye(len(moments.mean)) if frame is None else frame.numpy()
    unit, mean = turn.T @ moments.unit, turn.T @ moments.mean
    point = np.concatenate([unit, mean, [moments.zeros, moments.norm, moments.square]])
    energies = moments.energies

    def at(point: Floats, energies: Floats) -> float:
        value = measure.function(_cloud(point, energies))
        return float("nan") if value is None else float(value)

    slopes = _slopes(lambda p: at(p, energies), point)
    width = len(moments.mean)
    gradient = Gradient(turn @ slopes[:width], turn @ slopes[width : 2 * width], *slopes[2 * width :].tolist())
    if measure.words.spectral:
        gradient = dataclasses.replace(gradient, energies=_slopes(lambda e: at(point, e), energies))
    if not all(np.isfinite(part).all() for part in (slopes, gradient.energies) if part is not None):
        return "its derivative is not finite there"
    return gradient if frame is None else _tested(measure, gradient, turn, rows)


def _slopes(function, point: Floats) -> Floats:  # type: ignore[no-untyped-def]
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
    cloud = Cloud(
        count=int(COUNT), zeros=int(COUNT * point[-3]), unit_sum=COUNT * point[:width],
        vector_sum=COUNT * point[width : 2 * width], norm_sum=COUNT * point[-2], square_sum=COUNT * point[-1],
        gram=COUNT * np.diag(energies) if len(energies) else None,
    )  # fmt: skip
    if len(energies):
        cloud.__dict__["_eigen"] = energies, np.eye(width)
        cloud.__dict__["energies"] = energies
    return cloud


def _tested(measure: Measure, gradient: Gradient, turn: Floats, rows: Tensor) -> Gradient | str:
    """The gradient, with what it lacks along the mean, if it then foretells what a heavier window does."""
    flat = rows.reshape(-1, rows.shape[2]).double().cpu()
    whole = Sums.of_rows(flat)
    length = max(1, len(flat) // 8)
    seen, foretold, along = [], [], []
    assert gradient.energies is not None
    mean = (whole.total / whole.count).numpy()
    weights = np.concatenate([np.asarray(gradient.linear(rows.shape[2]))])
    for start in range(0, length * 8, length):
        part = Sums.of_rows(flat[start : start + length])
        values = []
        for weight in (1e-3, -1e-3):
            moved = whole.copy()
            moved._combine(part, weight)
            values.append(measure.function(dataclasses.replace(Cloud.of_sums(moved))))
        if None in values:
            return "it is not defined on the pilot"
        seen.append((values[0] - values[1]) / 2e-3 * whole.count / part.count)  # type: ignore[operator]
        moment = Cloud.of_sums(part).second_moment
        sums = np.concatenate([part.unit, part.total, part.scalars]) / part.count
        foretold.append(float(weights @ sums + ((turn.T @ moment * turn.T) @ np.ones(len(mean))) @ gradient.energies))
        along.append(float(mean @ moment @ mean))
    errors, along_all = np.array(seen) - np.array(foretold), np.array(along)
    errors, along_all, seen_all = errors - errors.mean(), along_all - along_all.mean(), np.array(seen) - np.mean(seen)
    if np.linalg.norm(errors) <= 0.05 * np.linalg.norm(seen_all) + 1e-12:
        return gradient
    outer = float(errors @ along_all / max(float(along_all @ along_all), 1e-300))
    if np.linalg.norm(errors - outer * along_all) <= 0.05 * np.linalg.norm(seen_all):
        return dataclasses.replace(gradient, outer=outer)
    return "its derivative by the second moment is no function of the spectrum alone: give it with it (`gradient`)"
