"""Inversion of any slice of a model: the input that is still in the representations, with
certificates.

- `invert`: the verb: run a slice on prompts, find the prompts again, say what is proved
- `METHODS` (`Exact`, `Joint`, `Indirect`, `Direct`): ways to find them; `OBSERVATIONS`: what may be
  known
- `exact`, `joint`, `descend`: the same on a slice's outputs; `Decoder`: from vectors to tokens
"""

from headscan.inversion.continuous import Decoder, Descended, Descent, descend, preset
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.left_to_right import Search, exact
from headscan.inversion.methods import METHODS, Direct, Exact, Indirect, Joint, Method
from headscan.inversion.observation import OBSERVATIONS
from headscan.inversion.reconstruction import Certificate
from headscan.inversion.result import InvertResult, PromptInversion
from headscan.inversion.run import invert

__all__ = [
    "METHODS",
    "OBSERVATIONS",
    "Certificate",
    "Decoder",
    "Descended",
    "Descent",
    "Direct",
    "Exact",
    "Indirect",
    "InvertResult",
    "Joint",
    "JointSearch",
    "Method",
    "PromptInversion",
    "Search",
    "descend",
    "exact",
    "invert",
    "joint",
    "preset",
]


def __dir__() -> list[str]:
    return __all__
