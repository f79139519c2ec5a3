"""Gradient x input: the slope of the target along the token's embedding."""

from __future__ import annotations

from dataclasses import dataclass

from headscan.attribution.gradients import gradient_x_input
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords

__all__ = ["GradientXInput"]


@METHODS.register("gradient-x-input")
@dataclass(frozen=True, kw_only=True)
class GradientXInput(AttributionMethod):
    """The slope of the target along each token's embedding: one forward and one backward pass."""

    words = MethodWords(
        title="Gradient × input",
        sentence="The slope of the target along the token's embedding.",
        formula="Σ_k (∂f/∂x_tk) x_tk; without signs, Σ_k |∂f/∂x_tk| |x_tk|",
        cost="one forward pass, and one backward pass a prediction",
        source="Shrikumar, Greenside, Kundaje 2017, Learning important features",
    )
    differentiates = True
    local = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        """See `headscan.attribution.gradient_x_input`."""
        return task.of_tokens(gradient_x_input(task.engine, task.embeds, task.target, signed=task.signed))
