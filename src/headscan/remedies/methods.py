"""The remedies: centring, scaling, whitening in three ways, and what takes directions away."""

from typing import Annotated

import numpy as np

from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod
from headscan.run import Option, Settings
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats

# Variances up to this share of the largest are taken for rounding.
ROUNDING = 1e-10


def _components(cloud: Cloud) -> tuple[Floats, Floats]:
    """The covariance's eigenvalues, largest first, and its eigenvectors as columns, without those that are rounding."""
    values, vectors = np.linalg.eigh(cloud.covariance)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    kept = int((values > ROUNDING * values[0]).sum())
    return values[:kept], vectors[:, :kept]


@REMEDIES.register("all-but-the-top")
class AllButTheTop(RemedyMethod, Settings):
    """Centre, then take the top principal components out (Mu and Viswanath 2018)."""

    remove: Annotated[int | None, Option("Components to take out. Default: a hundredth of all.", low=0)] = None

    def fit(self, cloud: Cloud) -> Remedy:
        width = cloud.width
        top = _components(cloud)[1][:, : max(1, width // 100) if self.remove is None else self.remove]
        return Remedy("all-but-the-top", cloud.mean, np.eye(width) - top @ top.T)


@REMEDIES.register("centre")
class Centre(RemedyMethod, Settings):
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is near 0."""

    def fit(self, cloud: Cloud) -> Remedy:
        return Remedy("centre", cloud.mean, np.eye(cloud.width))


@REMEDIES.register("standardise")
class Standardise(RemedyMethod, Settings):
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions become zero."""

    def fit(self, cloud: Cloud) -> Remedy:
        deviation = np.sqrt(np.clip(np.diag(cloud.covariance), 0, None))
        varies = deviation > ROUNDING * deviation.max(initial=0.0)
        scale = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
        return Remedy("standardise", cloud.mean, np.diag(scale))


@REMEDIES.register("whiten")
class Whiten(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^−½ of the largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown up; the map's output
    has as many dimensions as remain. The covariance of the fitted cloud becomes the identity. Cosines are those of ZCA,
    which turns the result back by a rotation.
    """

    keep: Annotated[int | None, Option("Components to keep. Default: all.", low=1)] = None

    def fit(self, cloud: Cloud) -> Remedy:
        values, vectors = _components(cloud)
        kept = min(self.keep or len(values), len(values))
        return Remedy("whiten", cloud.mean, vectors[:, :kept] / np.sqrt(values[:kept]))


@REMEDIES.register("whiten-shrunk")
class WhitenShrunk(RemedyMethod, Settings):
    """ZCA whitening of (1 − s)C + s·(tr C/d)·I: few vectors do not blow up directions they know little of (the shrinkage
    of Ledoit and Wolf 2004, s given; the ε of soft-ZCA, Diera et al. 2024)."""

    shrinkage: Annotated[float, Option("s, 0 to 1.", above=0, high=1)] = 0.1

    def fit(self, cloud: Cloud) -> Remedy | None:
        covariance, width = cloud.covariance, cloud.width
        ball = float(np.trace(covariance)) / width
        if not ball > 0:  # all vectors are one
            return None
        values, vectors = np.linalg.eigh((1 - self.shrinkage) * covariance + self.shrinkage * ball * np.eye(width))
        return Remedy("whiten-shrunk", cloud.mean, (vectors / np.sqrt(values)) @ vectors.T)


@REMEDIES.register("whiten-softly")
class WhitenSoftly(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^(−power/2)·Vᵀ: between centring (power 0) and ZCA whitening (power 1)."""

    power: Annotated[float, Option("Of whitening, 0 to 1.", low=0, high=1)] = 0.5

    def fit(self, cloud: Cloud) -> Remedy:
        values, vectors = _components(cloud)
        return Remedy("whiten-softly", cloud.mean, (vectors * values ** (-self.power / 2)) @ vectors.T)
