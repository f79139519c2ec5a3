"""Combined: the mean of gradient x input and occlusion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords
from headscan.attribution.methods.gradient_x_input import GradientXInput
from headscan.attribution.methods.occlusion import Occlusion

__all__ = ["Combined"]


@METHODS.register("combined")
@dataclass(frozen=True, kw_only=True)
class Combined(AttributionMethod):
    """The mean of gradient x input and occlusion, each divided by its largest."""

    words = MethodWords(
        title="Gradient × input and occlusion",
        sentence="The mean of gradient × input and occlusion, each divided by its largest size in the prediction.",
        formula="½ (g / max|g| + o / max|o|)",
        cost="both",
        source="Badger, Language Modeling and Discrete Encodings",
    )
    substitutes = True
    differentiates = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        """Both maps, averaged."""
        one, other = GradientXInput().explain(task), Occlusion().explain(task)
        return AttributionMap(
            (_normalised(one.tokens) + _normalised(other.tokens)) / 2,
            (_normalised(one.units) + _normalised(other.units)) / 2,
        )


def _normalised(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    largest = np.abs(scores).max(-1, keepdims=True)
    found: npt.NDArray[np.float64] = np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0)
    return found
