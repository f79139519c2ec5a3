"""Noise where the head hardly reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens
from headscan.run import BadInput

__all__ = ["HeadNull"]

FLOOR = 1e-3


@DEFENCES.register("head-null")
@dataclass(frozen=True, kw_only=True)
class HeadNull(Defence):
    """Noise along the directions that the head hardly reads, in each in inverse proportion to how strongly it does.

    A head of more tokens than features has no null space: what comes near one are the directions in which its centred weight
    has its smallest singular values. Noise is larger there by as much as the singular value is smaller (at most √1000 times), so
    that every direction's noise moves the logits alike. The gain of a norm before the head is left out of account.
    """

    name: ClassVar[str] = "head-null"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The head's singular directions, and the noise along each."""
        head = lens.traits.linear_head
        if head is None or head.weight.shape[1] != states.shape[1]:
            raise BadInput(
                f"The defence head-null needs states of the width that the linear head of '{lens.name}' reads: choose blocks "
                "with --sites."
            )
        weight = head.weight.detach().double()
        centred = weight - weight.mean(0)
        values, directions = torch.linalg.eigh(centred.T @ centred)
        values = values / values.max()
        scale = (values + FLOOR).rsqrt()
        scale, turned = (scale / scale.square().mean().sqrt()).to(states), directions.to(states)
        return Fitted(lambda x: x.float() @ turned / scale, lambda y: (y * scale) @ turned.T)
