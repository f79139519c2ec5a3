"""Integrated gradients: the slope averaged on the way from a baseline to the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headscan.attribution.gradients import integrated_gradients
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords
from headscan.run import Option

__all__ = ["IntegratedGradients"]


@METHODS.register("integrated-gradients")
@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(AttributionMethod):
    """The slope averaged on the way from the substitute to the prompt; scores sum to the change of the target."""

    words = MethodWords(
        title="Integrated gradients",
        sentence="The slope averaged on the straight way from the substitute to the token; the scores sum to the change.",
        formula="Σ_k (x − x′)_tk ∫₀¹ ∂f/∂x_tk (x′ + α (x − x′)) dα",
        cost="as many forward and backward passes as completeness takes",
        source="Sundararajan, Taly, Yan 2017, Axiomatic attribution for deep networks",
    )
    substitutes = True
    differentiates = True

    steps: Annotated[
        int | None, Option("Nodes of integrated gradients. Default: as many as completeness to 0.2 % takes.", low=1)
    ] = None

    def explain(self, task: AttributionTask) -> AttributionMap:
        """See `headscan.attribution.integrated_gradients`."""
        found = integrated_gradients(
            task.engine, task.embeds, task.filler, task.target, steps=self.steps, rows=task.plan(grad=True).rows,
            signed=task.signed,
        )  # fmt: skip
        return task.of_tokens(found.scores, found.completeness)
