"""What the derivative of a measure is taken at, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.statistics import Cloud

Floats = npt.NDArray[np.float64]
SINGLE = 128  # of a spectrum's values that `entropy_bias` looks at one by one; the others in as many groups


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


def amplitude_entropy(moments: Moments) -> tuple[float, Floats] | None:
    """The entropy S of p = σ/Σσ, σ = √λ, and ∂S/∂λ = (−log p − S)/(2σΣσ) [d]; None where a σ is zero."""
    values = np.sqrt(np.maximum(moments.energies, 0))
    if not values.sum() > 0 or not values.min() > 0:
        return None
    shares = values / values.sum()
    logs = np.log(shares)
    slope: Floats = (-logs + float(shares @ logs)) / (2 * values * values.sum())
    return -float(shares @ logs), slope


def entropy_bias(energies: Floats, tokens: float, power: float = 1.0) -> float:
    """How far the entropy of n independent Gaussian tokens' shares pᵢ ∝ λᵢ^power lies from the true one, on average.

    Second order in the noise Δ of the second moment, of which Var Δᵢᵢ = 2λᵢ²/n and Var Δᵢⱼ = λᵢλⱼ/n: with Fᵢ = ∂S/∂λᵢ,
    E = (1/n)(Σᵢ λᵢ² ∂Fᵢ/∂λᵢ + ½ Σᵢ≠ⱼ λᵢλⱼ (Fᵢ − Fⱼ)/(λᵢ − λⱼ)).

    >>> round(entropy_bias(np.ones(10), 1000.0) * 2000, 3)     # flat: −(d + 1)/2n + 1/dn of the trace's own noise
    -10.8
    """
    kept = energies[energies > 1e-12 * energies.max()]
    if len(kept) < 2:
        return 0.0
    kept = kept / kept.sum()
    share = kept**power / (kept**power).sum()
    above = -np.log(share) + float(share @ np.log(share))
    slope = power * above * share / kept
    moved = -power * (1 - share) / kept - slope
    curvature = power * (moved * share / kept + above * share * (power * (1 - share) - 1) / kept**2)
    near = power * share * ((power - 1) * above - power) / kept**2  # the limit of the quotient
    exact = float(kept**2 @ curvature)
    # Of many, neighbours in the spectrum stand for one another, as their mean; the strongest stand alone.
    order = np.argsort(-kept)
    pieces = [*order[:SINGLE, None], *(piece for piece in np.array_split(order[SINGLE:], SINGLE) if len(piece))]
    kept, slope, near = (np.array([values[piece].mean() for piece in pieces]) for values in (kept, slope, near))
    weight = kept * [len(piece) for piece in pieces]
    apart = kept[:, None] - kept[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(
            np.abs(apart) > 1e-7 * kept[:, None], (slope[:, None] - slope[None, :]) / apart, near[:, None]
        )
    np.fill_diagonal(quotient, near)
    return (exact + 0.5 * float(weight @ quotient @ weight - (weight * kept) @ near)) / tokens


def top_bias(energies: Floats, tokens: float) -> float:
    """How far the top direction's share p₁ = λ₁/Σλ of n independent Gaussian tokens lies from the true one, on average.

    Second order in the noise Δ of the second moment, Var Δᵢᵢ = 2λᵢ²/n, Var Δᵢⱼ = λᵢλⱼ/n: the first eigenvalue grows by
    Σⱼ λ₁λⱼ/(λ₁ − λⱼ)/n, and numerator and denominator err together. A gap below the noise of λ₁ itself counts as that.

    >>> spectrum = np.array([2.0, 1.0, 0.5, 0.25])
    >>> rows = np.random.default_rng(0).standard_normal((4000, 60, 4)) * spectrum**0.5
    >>> found = np.linalg.eigvalsh(rows.transpose(0, 2, 1) @ rows)
    >>> error = float((found[:, -1] / found.sum(1)).mean() - 2 / 3.75)
    >>> round(error, 2), round(top_bias(spectrum, 60.0), 2)
    (0.01, 0.01)
    """
    shares = energies / energies.sum()
    gap = np.maximum(shares[0] - shares[1:], shares[0] * (2 / tokens) ** 0.5)
    grown = float((shares[0] * shares[1:] / gap).sum())
    return (grown - 2 * float(shares[0]) ** 2 + 2 * float(shares[0]) * float(shares @ shares)) / tokens


# ---- How noisy the averages of a text are, and how far a length made of noisy averages lies above the true one.


@dataclass(frozen=True)
class Noise:
    """The errors of a text's averages, as its clusters (documents, or windows with their long memory) show them.

    unit E‖ū − E ū‖² of the mean direction ū = Σx/‖x‖/n, mean E‖μ̂ − μ‖² of the mean vector; tokens: how many independent
    Gaussian tokens have a covariance as noisy (0: not known); error: the measure's own standard error.
    """

    unit: float
    mean: float
    tokens: float
    error: float


def length_bias(length: float, noise: float, along: float) -> float:
    """How far the length of a noisy average lies above that of the true one: noise across it makes it longer.

    `noise` is the average's mean squared error, `along` its standard error in its own direction, which does no harm.

    >>> rows = np.random.default_rng(0).standard_normal((4000, 50, 20)).mean(1) + 0.3      # noise 20/50, along √(1/50)
    >>> lengths = np.linalg.norm(rows, axis=1)
    >>> told = np.mean([length_bias(length, 20 / 50, (1 / 50) ** 0.5) for length in lengths])
    >>> round(float(lengths.mean() - 0.3 * 20**0.5), 2), round(float(told), 2)
    (0.14, 0.14)
    """
    across = max(0.0, noise - along**2)
    return length - float(np.sqrt(max(0.0, length**2 - across)))


def worth(cloud: Cloud, noise: float, basis: Floats) -> float:
    """How many independent Gaussian tokens have a covariance as noisy, E‖Ĉ − C‖² = `noise`, in a basis [d, k] ([d, 0]: all).

    That of n independent Gaussian tokens is ((tr C)² + ‖C‖²)/n. 0 where there is no noise.
    """
    covariance = cloud.covariance
    if basis.shape[1]:
        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        turn = torch.from_numpy(basis)
        covariance = (turn.T @ torch.from_numpy(covariance) @ turn).numpy()
    square = float((covariance**2).sum())
    return (float(np.trace(covariance)) ** 2 + square) / noise if noise > 0 else 0.0
