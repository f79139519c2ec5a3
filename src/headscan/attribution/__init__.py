"""Which input tokens a prediction rests on.

- `attribute(model, prompt, ...)`: the whole way, to a result with its page
- `METHODS`: gradient x input, occlusion, combined, integrated gradients, leave-one-out, Shapley
- `Target`, `Step`: what is explained; `Engine`, `Coalitions`: the model as a function of embeddings and of subsets
- `gradient_x_input`, `integrated_gradients`, `shapley`, `faithfulness`: the parts
"""

from __future__ import annotations

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import agreement, faithfulness
from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.methods import METHODS, Setting, measure
from headscan.attribution.result import AttributeResult
from headscan.attribution.run import attribute
from headscan.attribution.shapley import shapley
from headscan.attribution.target import Step, Target
from headscan.attribution.units import find_units

__all__ = [
    "METHODS",
    "AttributeResult",
    "Coalitions",
    "Engine",
    "Setting",
    "Step",
    "Target",
    "agreement",
    "attribute",
    "faithfulness",
    "find_units",
    "gradient_x_input",
    "integrated_gradients",
    "measure",
    "shapley",
]
