"""What a measure is: a pure function of a cloud of vectors, with everything a reader must know beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Bounds, MeasureWords
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise
from headscan.run import Registry
from headscan.statistics import Cloud, Vectors

__all__ = ["MEASURES", "Measure", "measure"]

Reference = Callable[[npt.NDArray[np.float64]], float | None]
GradientOf = Callable[[Moments], Gradient | None]
Bias = Callable[[Cloud, Noise], float | None]


@dataclass(frozen=True)
class Measure:
    """A named number that describes the shape of a cloud of vectors, with its words.

    `reference` is a slow, obvious function of the rows [n, d] that gives the same; the tests hold the measure to it.
    `gradient` is its derivative, from which intervals are made (found by differences where it is not given); `bias` says
    how far the value of a text with such noise lies from that of endless text, on average.
    """

    name: str
    function: Callable[[Cloud], float | None]
    words: MeasureWords
    reference: Reference | None = None
    gradient: GradientOf | None = None
    bias: Bias | None = None

    def __call__(self, points: Vectors) -> float | None:
        """The measure of a `Cloud`, or of the rows of a matrix [n, d]; None where it is not defined."""
        return self.function(Cloud.of(points))

    @property
    def range(self) -> Bounds:
        """Least and greatest value."""
        return self.words.range


MEASURES: Registry[Measure] = Registry("measure", "headscan.geometry.measures")
"""Every measure of a cloud by its name: the files of headscan/geometry/measures, and those of plug-ins."""


def measure(
    words: MeasureWords, *, reference: Reference | None = None, gradient: GradientOf | None = None,
    bias: Bias | None = None,
) -> Callable[[Callable[[Cloud], float | None]], Callable[[Vectors], float | None]]:  # fmt: skip
    """Register a function of a `Cloud` as a measure under its own name: scan, table, page, docs and tests have it then.

    The function that comes back takes a `Cloud` or the rows of any matrix [n, d] (list, numpy array, tensor).
    """

    def register(function: Callable[[Cloud], float | None]) -> Callable[[Vectors], float | None]:
        made = MEASURES.add(function.__name__, Measure(function.__name__, function, words, reference, gradient, bias))

        @wraps(function)
        def measured(points: Vectors) -> float | None:
            return made(points)

        return measured

    return register
