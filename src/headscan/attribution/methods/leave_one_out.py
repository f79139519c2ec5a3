"""Leave one out: occlusion by removing the token altogether."""

from __future__ import annotations

from dataclasses import dataclass

from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords

__all__ = ["LeaveOneOut"]


@METHODS.register("leave-one-out")
@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(AttributionMethod):
    """The target with each token (or unit) less the target without it, what follows moving up."""

    words = MethodWords(
        title="Leave one out",
        sentence="The target with the token less the target without it; what follows moves up.",
        formula="f(x) − f(x without x_i)",
        cost="one row a unit",
        source="Li, Monroe, Jurafsky 2016, Understanding neural networks through representation erasure",
    )

    def explain(self, task: AttributionTask) -> AttributionMap:
        """One prompt a unit, shorter by its tokens."""
        return task.left_out(None)
