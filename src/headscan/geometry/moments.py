"""What the derivative of a measure is taken at, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Gradient", "Moments", "entropy_bias", "share_gradient"]

Floats = npt.NDArray[np.float64]


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
        """tr M."""
        return float(self.energies.sum())

    @property
    def centred_trace(self) -> float:
        """tr C of the covariance C = M − μμᵀ."""
        return self.trace - float(self.mean @ self.mean)

    @property
    def centred_square(self) -> float:
        """‖C‖²_F."""
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
        return Gradient(
            None if self.unit is None else factor * self.unit,
            None if self.mean is None else factor * self.mean,
            factor * self.zeros, factor * self.norm, factor * self.square,
            None if self.energies is None else factor * self.energies,
            factor * self.outer, self.centred,
        )  # fmt: skip


def share_gradient(moments: Moments, slope: Floats, shares: Floats) -> Floats:
    """∂/∂λ of a function of the shares pᵢ = λᵢ/Σλ whose derivative by pᵢ is `slope` [d]: (slope − p·slope)/Σλ."""
    return (slope - float(shares @ slope)) / moments.trace


def entropy_bias(energies: Floats, tokens: float) -> float:
    """How far the entropy of the shares of n independent Gaussian tokens lies above the true one, on average (≤ 0).

    Second order: ½ Σᵢⱼ Var(Mᵢⱼ)·f[λᵢ, λⱼ] with Var(Mᵢⱼ) = λᵢλⱼ(1 + δᵢⱼ)/n and f[·,·] the divided difference of the
    slope of −p log p, less what the noise of the trace does.

    >>> round(entropy_bias(np.ones(10), 1000.0) * 2000, 3)     # flat: −(d + 1)/2n + 1/dn of the trace's own noise
    -10.8
    """
    share = energies[energies > 1e-12 * energies.max()] / energies.sum()
    if len(share) < 2:
        return 0.0
    logs = np.log(share)
    apart = share[:, None] - share[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        divided = np.where(
            np.abs(apart) > 1e-9 * share[:, None], (logs[:, None] - logs[None, :]) / apart, 1 / share[:, None]
        )
    noise = np.outer(share, share) * (1 + np.eye(len(share)))
    entropy = -float(share @ logs)
    # The trace: t = ΣΔ; S(λ/Σλ) to second order has − t·ΣΔᵢ(−log pᵢ − S) with Cov(Δᵢ, t) = 2pᵢ²/n.
    trace = -2 * float((share**2) @ (-logs - entropy)) + float(share @ share)
    return (-0.5 * float((noise * divided).sum()) + trace) / tokens
