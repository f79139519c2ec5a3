"""The input tokens that a prediction depends on.

`attribute(model, prompt, ...)` gives a result with its page, by the methods in `METHODS`.
`AttributionTarget` is what is explained; `Engine` and `Coalitions` are the model as a function of
embeddings and of subsets of the prompt.
"""

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import faithfulness
from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.method import (
    METHODS,
    AttributionMap,
    AttributionMethod,
    AttributionTask,
    Combined,
    GradientXInput,
    IntegratedGradients,
    MethodWords,
    Occlusion,
)
from headscan.attribution.result import AttributeResult
from headscan.attribution.run import attribute
from headscan.attribution.target import AttributionTarget, TargetStep
from headscan.attribution.units import find_units

__all__ = [
    "METHODS",
    "AttributeResult",
    "AttributionMap",
    "AttributionMethod",
    "AttributionTarget",
    "AttributionTask",
    "Coalitions",
    "Combined",
    "Engine",
    "GradientXInput",
    "IntegratedGradients",
    "MethodWords",
    "Occlusion",
    "TargetStep",
    "attribute",
    "faithfulness",
    "find_units",
    "gradient_x_input",
    "integrated_gradients",
]


def __dir__() -> list[str]:
    return __all__
