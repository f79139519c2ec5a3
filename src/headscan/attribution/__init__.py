"""Which input tokens a prediction rests on.

- `attribute(model, prompt, ...)`: the whole way, to a result with its page
- `METHODS`: gradient x input, occlusion, combined, integrated gradients, leave-one-out, Shapley; one file each
- `AttributionTarget`, `TargetStep`: what is explained; `Engine`, `Coalitions`: the model as a function of embeddings and
  of subsets
- `gradient_x_input`, `integrated_gradients`, `shapley`, `faithfulness`: the parts
"""

from __future__ import annotations

from headscan.attribution.agreement import agreement
from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import faithfulness
from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask, MethodWords
from headscan.attribution.methods.combined import Combined
from headscan.attribution.methods.gradient_x_input import GradientXInput
from headscan.attribution.methods.integrated_gradients import IntegratedGradients
from headscan.attribution.methods.leave_one_out import LeaveOneOut
from headscan.attribution.methods.occlusion import Occlusion
from headscan.attribution.methods.shapley import Shapley, shapley
from headscan.attribution.result import AttributeResult
from headscan.attribution.run import attribute
from headscan.attribution.target import AttributionTarget, TargetStep
from headscan.attribution.units import find_units

__all__ = [
    "METHODS", "AttributeResult", "AttributionMap", "AttributionMethod", "AttributionTarget", "AttributionTask", "Coalitions",
    "Combined", "Engine", "GradientXInput", "IntegratedGradients", "LeaveOneOut", "MethodWords", "Occlusion", "Shapley",
    "TargetStep", "agreement", "attribute", "faithfulness", "find_units", "gradient_x_input", "integrated_gradients",
    "shapley",
]  # fmt: skip
