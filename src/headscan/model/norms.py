"""Norms, read from their modules by trying them."""

import copy
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

SAME_LAW = 1e-5
"""The relative difference up to which two outputs follow one law: some norms compute in float32."""

SMALLEST_NUMBER = 1e-300
ROWS_IN_CPU_CACHE = 512


def rows_at_once(states: Tensor) -> int:
    """Return how many vectors to take at a time: intermediate results should stay in the cache."""
    return ROWS_IN_CPU_CACHE if states.device.type == "cpu" else 2**16


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm: y = s·γ⊙(x − mean x) + β (`centred`), or the same without the mean.

    s is one number a token; with s fixed a norm is linear.

    Attributes:
        gain: γ up to a positive factor, in float64.
        bias: β, in float64.

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
        """Return the law of a module that takes states of this width; None where it is no norm.

        Two states x are tried, and -x: half the sum of the two outputs is β, half their difference
        is the linear part.
        """
        copied = copy.deepcopy(module).double()
        device = next((tensor.device for tensor in copied.parameters()), torch.device("cpu"))
        x = _trial_states(width).to(device)
        try:
            with torch.no_grad():
                plus = copied.forward(x[None])[0].double()
                minus = copied.forward(-x[None])[0].double()
        except (TypeError, ValueError, RuntimeError, IndexError):
            return None
        bias = (plus + minus) / 2
        odd = (plus - minus) / 2
        if not bool(torch.isfinite(odd).all()):
            return None
        for centred in (True, False):
            base = x - x.mean(-1, keepdim=True) if centred else x
            gain = odd[0] / base[0]
            if _is_multiple(odd[1], gain * base[1]):
                return cls(module, gain.cpu(), bias.mean(0).cpu(), centred)
        return None

    def linear(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Return γ⊙(x − mean x), or γ⊙x where the norm is not centred, in float64."""
        x = x.double()
        gain = self.gain.to(x.device)
        if self.centred:
            return (x - x.mean(-1, keepdim=True)).mul_(gain)
        return gain * x

    def factors(self, x: Float[Tensor, "... d"], y: Float[Tensor, "... d"]) -> Float[Tensor, "..."]:
        """Return s of each token, by least squares from the norm's input and output."""
        bias = self.bias.to(y.device)
        width = len(self.bias)
        size = rows_at_once(x)
        inputs = x.reshape(-1, width).split(size)
        outputs = y.reshape(-1, width).split(size)
        factors = []
        for rows, normed_rows in zip(inputs, outputs, strict=True):
            linear = self.linear(rows)
            products = normed_rows.double() - bias
            products *= linear
            squares = linear.square_().sum(-1)
            factors.append(torch.where(squares > 0, products.sum(-1) / squares, 0.0))
        return torch.cat(factors).reshape(x.shape[:-1])


def _trial_states(width: int) -> Float[Tensor, "2 d"]:
    """Return two states with entries of size 1 to 2, so that nothing is divided by almost 0."""
    generator = torch.Generator().manual_seed(0)
    is_negative = torch.rand(2, width, generator=generator) < 0.5
    signs = torch.where(is_negative, -1.0, 1.0).double()
    sizes = 1 + torch.rand(2, width, generator=generator, dtype=torch.float64)
    return signs * sizes


def _is_multiple(values: Tensor, direction: Tensor) -> bool:
    """Return whether a vector is a multiple of another one, up to rounding."""
    factor = (values @ direction) / (direction @ direction).clamp_min(SMALLEST_NUMBER)
    distance = torch.linalg.vector_norm(values - factor * direction)
    return bool(distance <= SAME_LAW * torch.linalg.vector_norm(values))
