"""Gradient descent on vectors over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from headscan.inversion.method import METHODS
from headscan.inversion.methods.indirect import Indirect

__all__ = ["Direct"]


@METHODS.register("direct")
@dataclass(frozen=True, kw_only=True)
class Direct(Indirect):
    """Vectors over the vocabulary are moved by gradients; the token is the largest entry.

    As published (preset 'seed') it fails by its random start, which the gradient never touches in the null space of the
    embedding; from zero it works.

    >>> Direct(preset="seed").descent(seed=0).null_space
    True
    """

    name: ClassVar[Literal["indirect", "direct"]] = "direct"
