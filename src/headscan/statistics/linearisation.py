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


@dataclass(frozen=True)
class Moments:
    """Averages over a cloud's vectors.

    unit Σx/‖x‖/n [d], mean μ [d], zeros (the share of zero vectors), norm Σ‖x‖/n, square Σ‖x‖²/n,
    energies: the eigenvalues of the second moment M, largest first [d], mean_energy μᵀMμ, count:
    how many vectors, 0 where not known.
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
        """The averages over a cloud; energies only where they are asked for."""
        n = cloud.count
        mean = cloud.mean
        return cls(
            unit=cloud.unit_sum / n,
            mean=mean,
            zeros=cloud.zeros / n,
            norm=cloud.norm_sum / n,
            square=cloud.square_sum / n,
            energies=cloud.energies if spectral else np.zeros(0),
            mean_energy=float(mean @ cloud.covariance @ mean + (mean @ mean) ** 2)
            if spectral
            else 0.0,
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
    """∂θ by the averages of `Moments`: by `unit`, by `mean` [d], by the three scalars, and by the
    second moment.

    The derivative by M is V diag(energies) Vᵀ + outer·μμᵀ, V the eigenvectors of M and `energies`
    [d]. With `centred`, that is the derivative by the covariance instead: the mean moves the
    measure through the covariance, too.
    """

    unit: Floats | None = None
    mean: Floats | None = None
    zeros: float = 0.0
    norm: float = 0.0
    square: float = 0.0
    energies: Floats | None = None
    outer: float = 0.0
    centred: bool = False

    def linear(self, width: int) -> Floats:
        """The part that is linear in `token_sums` [2·width + 4]."""
        none = np.zeros(width)
        parts = [none if self.unit is None else self.unit, none if self.mean is None else self.mean]
        return np.concatenate([*parts, [0.0, self.zeros, self.norm, self.square]])

    def times(self, factor: float) -> "Gradient":
        """The gradient of the measure times a factor."""
        scaled = {
            name: factor * part
            for name, part in vars(self).items()
            if name != "centred" and part is not None
        }
        return replace(self, **scaled)


class Differentiable(Protocol):
    """A statistic of a cloud, with its derivative where that is known. `spectral`: it needs the
    second moment.
    """

    @property
    def name(self) -> str: ...
    @property
    def spectral(self) -> bool: ...
    @property
    def function(self) -> Callable[[Cloud], float | None]: ...
    @property
    def gradient(self) -> Callable[[Moments], Gradient | None] | None: ...


# Beyond this width the derivative of a spectral measure is taken in so many of the strongest
# directions, and as the same in all others: the average of what it is there, by energy.
DENSE = 256
DIRECTIONS = 128


def influences(
    measures: Sequence[Differentiable], cloud: Cloud, clusters: ClusterSums, cells: Sequence[int]
) -> Floats:
    """What each cluster adds to the error of the measures [J, C], times the number of all tokens:
    the derivative at the cloud.

    `cells` are the sets of tokens that the cloud consists of. NaN where a derivative is not known.
    Averages over tokens are exact; of xᵀDx, a cluster's mean is that of its sampled states, or of
    all of them where none is its own. Cost O(k·d² + m·k·d), m the sampled states, k the directions.
    """
    width = cloud.width
    spectral = [j for j, measure in enumerate(measures) if measure.spectral]
    sums = clusters.sums[list(cells)].sum(0).numpy()
    found = np.full((len(measures), len(sums)), np.nan)
    moments = Moments.of(cloud, spectral=bool(spectral))
    directions = np.zeros((width, 0))
    if spectral:
        directions = cloud.directions if width <= DENSE else _strongest(cloud)
    squares = np.zeros((directions.shape[1] + 1, len(sums)))
    if spectral:
        squares = _sampled(cloud, clusters, cells, directions, sums[:, 2 * width])
    for j, measure in enumerate(measures):
        gradient = None if measure.gradient is None else measure.gradient(moments)
        if gradient is None:
            continue
        linear = gradient.linear(width)
        weights = np.zeros(len(squares))
        if gradient.energies is not None:
            weights[:-1], weights[-1] = gradient.energies[: len(squares) - 1], gradient.outer
            rest = moments.energies[len(squares) - 1 :]
            tail = (
                float(rest @ gradient.energies[len(squares) - 1 :] / rest.sum())
                if rest.sum() > 0
                else 0.0
            )
            weights[:-1] -= tail
            # xᵀDx is (x − μ)ᵀD(x − μ) + 2μᵀDx but for a constant; about the mean (`centred`), the
            # first term alone.
            bent = -tail * cloud.mean
            if not gradient.centred:
                bent = directions @ (weights[:-1] * (directions.T @ cloud.mean))
                bent += gradient.outer * float(cloud.mean @ cloud.mean) * cloud.mean
            linear[width : 2 * width] += 2 * bent
            linear[-1] += tail
        found[j] = sums @ linear + weights @ squares
    return found


def _strongest(cloud: Cloud) -> Floats:
    """The strongest directions of a wide cloud as columns [d, k], largest energy first, by subspace
    iteration in float32.
    """
    moment = torch.from_numpy(cloud.second_moment).float()
    found = torch.randn(cloud.width, DIRECTIONS + 32, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        found = torch.linalg.qr(moment @ found).Q
    turn = torch.linalg.eigh(found.T @ moment @ found).eigenvectors.flip(1)
    axes: Floats = (found @ turn)[:, :DIRECTIONS].double().numpy()
    return axes


def _sampled(
    cloud: Cloud, clusters: ClusterSums, cells: Sequence[int], directions: Floats, counts: Floats
) -> Floats:
    """Of each cluster of `counts` tokens, about what Σz² adds up to along each direction, z = vᵀ(x
    − μ), and, in the last row, along μ itself [k + 1, C].
    """
    own = torch.isin(clusters.cells, torch.tensor(list(cells)))
    # torch's products, not numpy's: they obey torch.set_num_threads.
    axes = torch.from_numpy(np.column_stack([directions, cloud.mean])).float()
    z = (clusters.states[own] - torch.from_numpy(cloud.mean).float()) @ axes
    place = clusters.clusters[own]
    total = (
        torch.zeros(len(counts), axes.shape[1], dtype=torch.float64)
        .index_add_(0, place, z.double().square())
        .numpy()
    )
    sampled = torch.bincount(place, minlength=len(counts)).numpy()
    mean = total.sum(0) / max(1, sampled.sum())
    each: Floats = (
        np.where(sampled[:, None] > 0, total / np.maximum(sampled, 1)[:, None], mean)
        * counts[:, None]
    )
    return each.T
