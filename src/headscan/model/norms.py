"""What a norm does to a vector, read from the module by trying it: y = s·γ⊙(x − mean x) + β, or without the mean.

s is one number a token. With it held still a norm is linear, so that what goes in as a sum comes out as one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Norm", "near"]

ALIKE = 1e-5  # relative difference up to which two answers of a norm count as the same law: some compute in float32


def near(states: Tensor) -> int:
    """How many vectors to take at a time: on a CPU what is made of 512 stays in its cache, and no memory is asked for anew."""
    return 512 if states.device.type == "cpu" else 2**16


@dataclass(frozen=True, eq=False)
class Norm:
    """A layer norm (`centred`) or a root-mean-square norm, in float64 but for the factor of each token.

    `module` is the norm itself. `gain` [d] is γ up to a positive factor, `bias` [d] is β.

    >>> layer = nn.LayerNorm(3, eps=0.0)
    >>> layer.bias.data[:] = 7.0
    >>> norm = Norm.of(layer, 3)
    >>> norm.centred, norm.bias.tolist(), norm.linear(torch.tensor([1.0, 2.0, 3.0])).sign().tolist()
    (True, [7.0, 7.0, 7.0], [-1.0, 0.0, 1.0])
    """

    module: nn.Module
    gain: Float[Tensor, " d"]
    bias: Float[Tensor, " d"]
    centred: bool

    @classmethod
    def of(cls, module: nn.Module, width: int) -> Self | None:
        """The law of a module that takes states of this width; None where it is neither of the two."""
        own = copy.deepcopy(module).double()
        device = next((tensor.device for tensor in own.parameters()), torch.device("cpu"))
        generator = torch.Generator().manual_seed(0)
        # Entries of size 1 to 2, so that nothing is divided by what is nearly zero.
        signs = torch.where(torch.rand(2, width, generator=generator) < 0.5, -1.0, 1.0).double()
        x = (signs * (1 + torch.rand(2, width, generator=generator, dtype=torch.float64))).to(device)
        try:
            with torch.no_grad():
                plus, minus = own.forward(x[None])[0].double(), own.forward(-x[None])[0].double()
        except (TypeError, ValueError, RuntimeError, IndexError):
            return None
        bias, odd = (plus + minus) / 2, (plus - minus) / 2
        if not bool(torch.isfinite(odd).all()):
            return None
        for centred in (True, False):
            base = x - x.mean(-1, keepdim=True) if centred else x
            gain = odd[0] / base[0]
            other = gain * base[1]
            factor = (odd[1] @ other) / (other @ other).clamp_min(1e-300)
            if bool(torch.linalg.vector_norm(odd[1] - factor * other) <= ALIKE * torch.linalg.vector_norm(odd[1])):
                return cls(module, gain.cpu(), bias.mean(0).cpu(), centred)
        return None

    def linear(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """γ⊙(x − mean x) or γ⊙x, in float64."""
        x, gain = x.double(), self.gain.to(x.device)
        return (x - x.mean(-1, keepdim=True)).mul_(gain) if self.centred else gain * x

    def factors(self, x: Float[Tensor, "... d"], y: Float[Tensor, "... d"]) -> Float[Tensor, ...]:
        """s of each token, by least squares from what went in and what came out."""
        bias, width = self.bias.to(y.device), len(self.bias)
        found, size = [], near(x)
        for one, other in zip(x.reshape(-1, width).split(size), y.reshape(-1, width).split(size), strict=True):
            linear = self.linear(one)
            products = other.double() - bias
            products *= linear
            squares = linear.square_().sum(-1)
            found.append(torch.where(squares > 0, products.sum(-1) / squares, 0.0))
        return torch.cat(found).reshape(x.shape[:-1])
