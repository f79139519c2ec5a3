"""The derivative of a statistic by the averages over tokens, taken at the first tokens of a text (the calibration batch).

With M the second moment, λ its eigenvalues, V its eigenvectors and θ(λ): ∂θ/∂M = V diag(∂θ/∂λ) Vᵀ. An error of the
calibration batch changes an interval's width in second order only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from headscan.statistics.cloud import Cloud
from headscan.statistics.derivative import Derivative
from headscan.statistics.influence import Aside
from headscan.statistics.uncertainty import Floats


@dataclass(frozen=True)
class Moments:
    """Averages over a cloud's vectors.

    unit Σx/‖x‖/n [d], mean μ [d], zeros (the share of zero vectors), norm Σ‖x‖/n, square Σ‖x‖²/n, energies: the
    eigenvalues of the second moment M, largest first [d], mean_energy μᵀMμ.
    """

    unit: Floats
    mean: Floats
    zeros: float
    norm: float
    square: float
    energies: Floats
    mean_energy: float = 0.0

    @property
    def trace(self) -> float:
        return float(self.energies.sum())

    @property
    def centred_trace(self) -> float:
        return self.trace - float(self.mean @ self.mean)

    @property
    def centred_square(self) -> float:
        length = float(self.mean @ self.mean)
        return float((self.energies**2).sum()) - 2 * self.mean_energy + length**2


@dataclass(frozen=True)
class Gradient:
    """∂θ by the averages of `Moments`: by `unit`, by `mean` [d], by the three scalars, and by the second moment.

    The derivative by M is V diag(energies) Vᵀ + outer·μμᵀ, V the eigenvectors of M and `energies` [d]. With `centred`,
    that is the derivative by the covariance instead: the mean moves the measure through the covariance, too.
    """

    unit: Floats | None = None
    mean: Floats | None = None
    zeros: float = 0.0
    norm: float = 0.0
    square: float = 0.0
    energies: Floats | None = None
    outer: float = 0.0
    centred: bool = False

    def linear(self, width: int) -> Tensor:
        """The part that is linear in `token_sums` [2·width + 4]."""
        found = torch.zeros(2 * width + 4, dtype=torch.float64)
        if self.unit is not None:
            found[:width] = torch.from_numpy(np.array(self.unit))
        if self.mean is not None:
            found[width : 2 * width] = torch.from_numpy(np.array(self.mean))
        found[-3:] = torch.tensor([self.zeros, self.norm, self.square])
        return found

    def times(self, factor: float) -> Gradient:
        """The gradient of the measure times a factor."""
        scaled = {name: factor * part for name, part in vars(self).items() if name != "centred" and part is not None}
        return replace(self, **scaled)


class Differentiable(Protocol):
    """A statistic of a cloud, with its derivative where that is known. `spectral`: it needs the second moment."""

    @property
    def name(self) -> str: ...
    @property
    def spectral(self) -> bool: ...
    @property
    def function(self) -> Callable[[Cloud], float | None]: ...
    @property
    def gradient(self) -> Callable[[Moments], Gradient | None] | None: ...


# Up to this width the second moment is followed in all its directions; beyond it in the 96 strongest, and as the same in
# all others: k(d + k) operations a token.
DENSE, DIRECTIONS = 128, 96
# Part of the pilot's energy (but for its first direction's) that is spread over all directions: the weak ones are known
# badly from few tokens, and the derivative of an entropy has their logarithm.
SPREAD = 0.02
CHUNK = 2**18  # numbers of the pilot that are looked at in float64 at a time


@dataclass
class Linearisation:
    """Takes the derivative of `measures` at the calibration batch of a text: `Derive` of headscan.statistics."""

    measures: Sequence[Differentiable]

    def __call__(self, rows: Tensor, aside: Aside) -> Derivative:
        """The derivative at the pilot's rows [windows, T, d]. Cost O(n·d·k + k³) for each of the treatments."""
        spectral = [j for j, measure in enumerate(self.measures) if measure.spectral]
        device, width, count = rows.device, rows.shape[2], len(self.measures)
        basis = _basis(rows) if spectral else torch.zeros(width, 0)
        size = basis.shape[1] or width
        masks = aside(rows)
        treatments = 1 + len(masks)
        linear = torch.zeros(treatments, count, 2 * width + 4, dtype=torch.float64)
        matrix = torch.zeros(treatments, len(spectral), size, size)
        centre = torch.zeros(size, dtype=torch.float64)
        every = _Expansion.of(rows, masks, basis, spectral=bool(spectral))
        centre = every[-1].mean if spectral else centre  # the last leaves most out: what is left is alike
        for group, pilot in enumerate(every):
            for j, measure in enumerate(self.measures):
                gradient = None if measure.gradient is None else measure.gradient(pilot.moments)
                if gradient is None:  # no influence is known: it stays undefined, whatever is added
                    linear[group, j] = torch.nan
                    continue
                linear[group, j] = gradient.linear(width)
                if j in spectral:
                    pilot.expand(gradient, linear[group, j], matrix[group, spectral.index(j)], centre)
        return Derivative(
            linear.to(device), torch.tensor(spectral, dtype=torch.int64, device=device), matrix.to(device),
            basis.to(device), (centre if spectral else torch.zeros(0, dtype=torch.float64)).to(device),
        )  # fmt: skip


@dataclass(frozen=True)
class _Expansion:
    """The averages of a group of the pilot's tokens, its directions [k, k] in the basis, and its mean there."""

    moments: Moments
    directions: Tensor
    mean: Tensor
    basis: Tensor

    @classmethod
    def of(cls, rows: Tensor, masks: Tensor, basis: Tensor, *, spectral: bool) -> list[Self]:
        """Of each treatment: all rows [windows, T, d], and those that each of the masks [G − 1, windows, T] leaves."""
        width = rows.shape[2]
        size = (basis.shape[1] or width) if spectral else 0
        bits = 2 ** torch.arange(len(masks), device=rows.device)
        cells = (masks.flatten(1).T.long() * bits).sum(1)  # tokens that the same masks leave out
        sums = torch.zeros(2 ** len(masks), 2 * width + 4, dtype=torch.float64, device=rows.device)
        moments = torch.zeros(len(sums), size, size, dtype=torch.float64, device=rows.device)
        step = max(1, CHUNK // width)
        for part, own in zip(rows.flatten(0, 1).split(step), cells.split(step), strict=True):
            z = part.float() @ basis.to(part.device) if size and basis.shape[1] else part[:, :size]
            for cell in own.unique().tolist():
                chosen = own == cell
                sums[cell] += _summed(part[chosen].double())
                mine = z[chosen].double()
                moments[cell] += mine.T @ mine
        counted = [[g == 0 or not cell >> (g - 1) & 1 for cell in range(len(sums))] for g in range(1 + len(masks))]
        return [cls._from(sums[kept].sum(0), moments[kept].sum(0), basis, width) for kept in counted]

    @classmethod
    def _from(cls, sums: Tensor, moment: Tensor, basis: Tensor, width: int) -> Self:
        """From sums [2d + 4] and the second moment [k, k] in the basis, k = 0 where none is asked for."""
        count = max(1.0, float(sums[-4]))
        average, moment = (sums / count).cpu(), (moment / count).cpu()
        size = len(moment)
        if not size:
            return cls(_moments(average, np.zeros(0), 0.0), torch.zeros(0, 0), torch.zeros(0), basis)
        values, vectors = torch.linalg.eigh(moment)
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        rest = max(0.0, float(average[-1] - values.sum())) / max(1, width - size)
        energies = torch.cat([values, torch.full((width - size,), rest, dtype=torch.float64)])
        spread = SPREAD * float(energies[1:].sum()) / max(1, width - 1)
        energies = torch.cat([energies[:1], (1 - SPREAD) * energies[1:] + spread])
        total = average[width : 2 * width]
        mean = total @ basis.double().cpu() if basis.shape[1] else total
        turned = vectors.T @ mean
        outside = max(0.0, float(total @ total - mean @ mean))
        along = float((turned.square() * energies[:size]).sum()) + outside * float(energies[-1])
        return cls(_moments(average, energies.numpy(), along), vectors, mean, basis)

    def expand(self, gradient: Gradient, linear: Tensor, matrix: Tensor, centre: Tensor) -> None:
        if gradient.energies is None:
            return
        width, size = len(linear) // 2 - 2, len(self.mean)
        weights = torch.from_numpy(np.array(gradient.energies))
        tail = float(weights[-1]) if width > size else 0.0
        mean = linear.new_tensor(self.moments.mean)
        quadratic = (self.directions * (weights[:size] - tail)) @ self.directions.T
        quadratic += gradient.outer * torch.outer(self.mean, self.mean)
        bent = 2 * quadratic @ centre
        if gradient.centred:  # about the mean: (x − μ)ᵀD(x − μ)
            bent -= 2 * quadratic @ self.mean
            linear[width : 2 * width] -= 2 * tail * mean
        linear[width : 2 * width] += self.basis.double().cpu() @ bent if self.basis.shape[1] else bent
        linear[-1] += tail
        matrix.copy_(quadratic)


def _moments(average: Tensor, energies: Floats, along: float) -> Moments:
    width = len(average) // 2 - 2
    flat = average.numpy()
    return Moments(
        unit=flat[:width], mean=flat[width : 2 * width], zeros=float(flat[-3]), norm=float(flat[-2]),
        square=float(flat[-1]), energies=energies, mean_energy=along,
    )  # fmt: skip


def _summed(rows: Tensor) -> Tensor:
    """What `token_sums` of the rows add up to [2d + 4]."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    weights = torch.stack([torch.where(norms > 0, 1 / norms, 0.0), torch.ones_like(norms)])
    scalars = torch.stack([weights[1], (norms == 0).double(), norms, norms.square()]).sum(1)
    return torch.cat([(weights @ rows).flatten(), scalars])


def _basis(rows: Tensor) -> Tensor:
    """The strongest directions of the pilot [d, k], by subspace iteration; [d, 0] where all are followed."""
    width = rows.shape[2]
    if width <= DENSE:
        return torch.zeros(width, 0)
    flat = rows.reshape(-1, width).float()
    found = torch.randn(width, min(DIRECTIONS, len(flat)), generator=torch.Generator().manual_seed(0)).to(flat.device)
    for _ in range(2):
        found = torch.linalg.qr(flat.T @ (flat @ found)).Q
    return found.cpu()
