"""Occlusion: what the target loses when a token is replaced by a substitute."""

from __future__ import annotations

from dataclasses import dataclass

from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords

__all__ = ["Occlusion"]


@METHODS.register("occlusion")
@dataclass(frozen=True, kw_only=True)
class Occlusion(AttributionMethod):
    """The target with each token (or unit) less the target with a substitute in its place."""

    words = MethodWords(
        title="Occlusion",
        sentence="The target with the token less the target with a substitute in its place.",
        formula="f(x) − f(x with x_i replaced); of all logits, their L1 distance",
        cost="one row a unit, batched behind the shared prefix",
        source="Zeiler, Fergus 2014, Visualizing and understanding convolutional networks",
    )
    substitutes = True

    def explain(self, task: AttributionTask) -> AttributionMap:
        """One prompt a unit, with the substitute in its place."""
        return task.left_out(task.substitute)
