"""The derivative of a statistic by the averages over tokens, taken at the text that was read.

With M the second moment, λ its eigenvalues, V its eigenvectors and θ(λ): ∂θ/∂M = V diag(∂θ/∂λ) Vᵀ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch

from headscan.statistics.cloud import Cloud
from headscan.statistics.clusters import ClusterSums
from headscan.statistics.uncertainty import Floats

DENSE = 256
"""Width beyond which a spectral measure is differentiated in the strongest directions only.

In all other directions the derivative is the same: its average over them, by energy.
"""

DIRECTIONS = 128


@dataclass(frozen=True)
class Moments:
    """Averages over a cloud's vectors.

    Attributes:
        unit: Σx/‖x‖/n [d].
        mean: μ [d].
        zeros: share of zero vectors.
        norm: Σ‖x‖/n.
        square: Σ‖x‖²/n.
        energies: the eigenvalues of the second moment M, largest first [d].
        mean_energy: μᵀMμ.
        count: number of vectors, 0 where not known.
    """

    unit: Floats
    mean: Floats
    zeros: float
    norm: float
    square: float
    energies: Floats
    mean_energy: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, cloud: Cloud, *, spectral: bool) -> Self:
        """Return the averages over a cloud; energies only with `spectral`."""
        n = cloud.count
        mean = cloud.mean
        energies = np.zeros(0)
        mean_energy = 0.0
        if spectral:
            energies = cloud.energies
            mean_energy = cloud.mean_variance + float(mean @ mean) ** 2
        return cls(
            unit=cloud.unit_sum / n,
            mean=mean,
            zeros=cloud.zeros / n,
            norm=cloud.norm_sum / n,
            square=cloud.square_sum / n,
            energies=energies,
            mean_energy=mean_energy,
            count=n,
        )

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
    """∂θ by the averages of `Moments`: by `unit`, by `mean` [d], by the three scalars, and by M.

    The derivative by M is V diag(energies) Vᵀ + outer·μμᵀ, V the eigenvectors of M and `energies`
    [d]. With `centred`, that is the derivative by the covariance instead: the mean moves the
    measure through the covariance, too. `along_mean` is μᵀV diag(energies) Vᵀμ, where it is
    known.
    """

    unit: Floats | None = None
    mean: Floats | None = None
    zeros: float = 0.0
    norm: float = 0.0
    square: float = 0.0
    energies: Floats | None = None
    outer: float = 0.0
    along_mean: float | None = None
    centred: bool = False

    def linear(self, width: int) -> Floats:
        """Return the part that is linear in `token_sums` [2·width + 4]."""
        none = np.zeros(width)
        unit = none if self.unit is None else self.unit
        mean = none if self.mean is None else self.mean
        return np.concatenate([unit, mean, [0.0, self.zeros, self.norm, self.square]])

    def times(self, factor: float) -> "Gradient":
        """Return the gradient of the measure times a factor."""
        scaled = {
            name: factor * part
            for name, part in vars(self).items()
            if name != "centred" and part is not None
        }
        return replace(self, **scaled)


class Differentiable(Protocol):
    """A statistic of a cloud, with its derivative where that is known.

    `spectral`: it needs the second moment.
    """

    @property
    def name(self) -> str: ...
    @property
    def spectral(self) -> bool: ...
    @property
    def function(self) -> Callable[[Cloud], float | None]: ...
    @property
    def gradient(self) -> Callable[[Moments], Gradient | None] | None: ...


def influences(
    measures: Sequence[Differentiable], cloud: Cloud, clusters: ClusterSums, cells: Sequence[int]
) -> Floats:
    """Return what each cluster adds to the error of the measures, times the number of all tokens.

    The result [J, C] comes from the derivative at the cloud, which consists of the tokens of
    `cells`. It is NaN where a derivative is not known. Averages over tokens are exact; a cluster's
    mean of xᵀDx is that of its sampled states, or of all of them where it has none. Cost O(k·d² +
    m·k·d), m the number of sampled states, k of directions.
    """
    width = cloud.width
    spectral = any(measure.spectral for measure in measures)
    moments = Moments.of(cloud, spectral=spectral)
    sums = clusters.sums[list(cells)].sum(0).numpy()
    directions = np.zeros((width, 0))
    squares = np.zeros((1, len(sums)))
    if spectral:
        directions = cloud.strongest(width if width <= DENSE else DIRECTIONS)
        squares = _sampled_squares(cloud, clusters, cells, directions, sums[:, 2 * width])

    result = np.full((len(measures), len(sums)), np.nan)
    for j, measure in enumerate(measures):
        gradient = None if measure.gradient is None else measure.gradient(moments)
        if gradient is None:
            continue
        linear = gradient.linear(width)
        weights = np.zeros(len(squares))
        if gradient.energies is not None:
            weights, slope, tail = _quadratic(gradient, moments, directions)
            linear[width : 2 * width] += slope
            linear[-1] += tail
        result[j] = sums @ linear + weights @ squares
    return result


def _quadratic(
    gradient: Gradient, moments: Moments, directions: Floats
) -> tuple[Floats, Floats, float]:
    """Return the derivative D by the second moment as weights of squares and a linear part.

    xᵀDx is (x − μ)ᵀD(x − μ) + 2μᵀDx but for a constant. About the mean (`centred`), it is the first
    term alone. In the directions that are left out, D is `tail` times the identity: xᵀDx has the
    term tail·‖x‖², and D in the other directions is what exceeds it.

    Returns:
        the weights [k + 1] of (vᵀ(x − μ))² along each direction v and along μ, the derivative by x
        [d], and `tail`, the derivative by ‖x‖².
    """
    assert gradient.energies is not None
    count = directions.shape[1]
    left_out = moments.energies[count:]
    tail = 0.0
    if left_out.sum() > 0:
        tail = float(left_out @ gradient.energies[count:] / left_out.sum())

    weights = np.zeros(count + 1)
    weights[:-1] = gradient.energies[:count]
    weights[:-1] -= tail
    weights[-1] = gradient.outer

    mean = moments.mean
    half_slope = -tail * mean
    if not gradient.centred:
        half_slope = directions @ (weights[:-1] * (directions.T @ mean))
        half_slope += gradient.outer * float(mean @ mean) * mean
    return weights, 2 * half_slope, tail


def _sampled_squares(
    cloud: Cloud, clusters: ClusterSums, cells: Sequence[int], directions: Floats, counts: Floats
) -> Floats:
    """Return estimates of each cluster's Σz² along each direction v and along μ [k + 1, C].

    z = vᵀ(x − μ). `counts` [C] are the clusters' numbers of tokens. The products are taken on the
    device of the sample.
    """
    sampled = torch.isin(clusters.cells, torch.tensor(list(cells)))
    cluster = clusters.clusters[sampled]
    states = clusters.states
    # torch's products, not numpy's: they obey torch.set_num_threads.
    columns = torch.from_numpy(np.column_stack([directions, cloud.mean])).float()
    axes = columns.to(states.device)
    mean = torch.from_numpy(cloud.mean).float().to(states.device)
    z = (states - mean) @ axes
    if len(cluster) < len(states):
        z = z[sampled.to(states.device)]

    totals = torch.zeros(len(counts), axes.shape[1], dtype=torch.float64, device=states.device)
    totals.index_add_(0, cluster.to(states.device), z.double().square_())
    totals = totals.cpu()
    sample_counts = torch.bincount(cluster, minlength=len(counts)).numpy()
    overall_mean = totals.numpy().sum(0) / max(1, sample_counts.sum())
    cluster_means = totals.numpy() / np.maximum(sample_counts, 1)[:, None]
    means = np.where(sample_counts[:, None] > 0, cluster_means, overall_mean)
    estimates: Floats = means * counts[:, None]
    return estimates.T
