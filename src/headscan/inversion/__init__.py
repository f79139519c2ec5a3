"""What of the input is still in the representations: inversion of any slice of a model, with certificates.

- `invert`: the verb: run a slice on prompts, find the prompts again, say what is proved
- `METHODS` (`Exact`, `Joint`, `Indirect`, `Direct`): ways to find them; `GIVEN`: what may be known
- `exact`, `joint`, `descend`: the same on a slice's outputs; `Decoder`: from vectors to tokens
"""

from __future__ import annotations

from headscan.inversion.certificate import Certificate
from headscan.inversion.decoders import Decoder
from headscan.inversion.descent import Descended, descend
from headscan.inversion.exchange import JointSearch, joint
from headscan.inversion.given import GIVEN
from headscan.inversion.inverting import invert
from headscan.inversion.left_to_right import Search, exact
from headscan.inversion.method import METHODS, Method
from headscan.inversion.methods.direct import Direct
from headscan.inversion.methods.exact import Exact
from headscan.inversion.methods.indirect import Indirect
from headscan.inversion.methods.joint import Joint
from headscan.inversion.presets import Descent, preset
from headscan.inversion.result import InvertResult, PromptInversion

__all__ = [
    "GIVEN", "METHODS", "Certificate", "Decoder", "Descended", "Descent", "Direct", "Exact", "Indirect",
    "InvertResult", "Joint", "JointSearch", "Method", "PromptInversion", "Search", "descend", "exact",
    "invert", "joint", "preset",
]  # fmt: skip
