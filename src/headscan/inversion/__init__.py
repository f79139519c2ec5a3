"""What of the input is still in the representations: inversion of any slice of a model, with certificates.

- `invert`: the façade: run a slice on prompts, find the prompts again, say what is proved
- `exact`, `joint`, `descend`: the methods; `Decoder`: from vectors to tokens
- `privacy`: what a leaked hidden state gives away
- `given`: next-token distributions, pooled embeddings, gradients; `leaked_gradient`: which tokens a training step shows
"""

from __future__ import annotations

from headscan.inversion.decoders import Decoder
from headscan.inversion.descent import Descent, descend, preset
from headscan.inversion.exact import Search, exact
from headscan.inversion.gradient_report import GradientResult, leaked_gradient
from headscan.inversion.inverting import invert
from headscan.inversion.joint import JointSearch, joint
from headscan.inversion.privacy_report import PrivacyResult, privacy
from headscan.inversion.result import InvertResult

__all__ = [
    "Decoder",
    "Descent",
    "GradientResult",
    "InvertResult",
    "JointSearch",
    "PrivacyResult",
    "Search",
    "descend",
    "exact",
    "invert",
    "joint",
    "leaked_gradient",
    "preset",
    "privacy",
]
