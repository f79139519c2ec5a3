"""What of the input is still in the representations: inversion of any slice of a model, with certificates.

- `invert`: the verb: run a slice on prompts, find the prompts again, say what is proved
- `METHODS` (`Exact`, `Joint`, `Indirect`, `Direct`): ways to find them; `GIVEN`: what may be known
- `exact`, `joint`, `descend`: the same on a slice's outputs; `Decoder`: from vectors to tokens
"""

from __future__ import annotations

from headscan.inversion.certificate import Certificate
from headscan.inversion.continuous import Descended, descend
from headscan.inversion.decoders import Decoder
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.left_to_right import exact
from headscan.inversion.method import METHODS, Method, Search
from headscan.inversion.methods import Direct, Exact, Indirect, Joint
from headscan.inversion.observation import GIVEN
from headscan.inversion.reconstruction import Descent, preset
from headscan.inversion.result import InvertResult, PromptInversion
from headscan.inversion.run import invert

__all__ = [
    "GIVEN", "METHODS", "Certificate", "Decoder", "Descended", "Descent", "Direct", "Exact", "Indirect",
    "InvertResult", "Joint", "JointSearch", "Method", "PromptInversion", "Search", "descend", "exact",
    "invert", "joint", "preset",
]  # fmt: skip
