"""What one token's output knows of another token, and how narrow and noisy the channel may be that tells it.

Call the package for the whole way, from a model and prompts to a result with its page
(`headscan.flow("gpt-vanilla", "The sky is blue.")`), or use its parts:

- `leak`: how far output j moves when input token i changes
- `recovery`: whether token i can be told from output j alone, by trying every token of the vocabulary, with the margin
- `VARIANTS`: attention alone, the feed-forward parts alone, without residual, with and without a causal mask
- `codebook`, `distances`: the outputs of all tokens at one place, and how far apart they are
- `noise_accuracy`, `quantised_accuracy`, `shannon_width`: maximum-likelihood decoding through noise and rounding
- `width_sweep`, `threshold`: how many features are needed, from which start, by which search
- `channel`: all of these of one part; `wider`: an untrained model of the same family, so many times as wide
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from headscan.flow.capacity import noise_accuracy, quantised_accuracy, shannon_width
from headscan.flow.channel import channel
from headscan.flow.codebook import codebook, distances
from headscan.flow.leak import leak
from headscan.flow.recovery import Recovery, recovery
from headscan.flow.result import FlowResult
from headscan.flow.run import run
from headscan.flow.sources import wider
from headscan.flow.variants import VARIANTS, variant
from headscan.flow.width import Threshold, threshold, width_sweep

__all__ = [
    "VARIANTS",
    "FlowResult",
    "Recovery",
    "Threshold",
    "channel",
    "codebook",
    "distances",
    "flow",
    "leak",
    "noise_accuracy",
    "quantised_accuracy",
    "recovery",
    "run",
    "shannon_width",
    "threshold",
    "variant",
    "wider",
    "width_sweep",
]


class _Callable(ModuleType):
    """A module that is also the verb it is named after: `headscan.flow(...)` is `headscan.flow.run(...)`."""

    def __call__(self, *arguments: Any, **options: Any) -> FlowResult:
        return run(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
flow = sys.modules[__name__]
