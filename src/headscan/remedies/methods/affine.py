"""Remedies by the cloud's mean and covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod
from headscan.run import Option, Settings
from headscan.statistics import Cloud, Tally

__all__ = ["AllButTheTop", "Centre", "Standardise", "Whiten"]

Floats = npt.NDArray[np.float64]


def _components(cloud: Cloud) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(cloud.covariance)
    return np.clip(values[::-1], 0, None), vectors[:, ::-1]


@REMEDIES.register("centre")
@dataclass(frozen=True, kw_only=True)
class Centre(RemedyMethod, Settings):
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is near 0."""

    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy:
        """See the class."""
        return Remedy("centre", cloud.mean, np.eye(cloud.width))


@REMEDIES.register("all-but-the-top")
@dataclass(frozen=True, kw_only=True)
class AllButTheTop(RemedyMethod, Settings):
    """Centre, then take the top principal components out (Mu and Viswanath 2018)."""

    remove: Annotated[int | None, Option("Components to take out. Default: a hundredth of all.", low=0)] = None

    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy:
        """See the class."""
        remove = max(1, cloud.width // 100) if self.remove is None else self.remove
        top = _components(cloud)[1][:, :remove]
        return Remedy("all-but-the-top", cloud.mean, np.eye(cloud.width) - top @ top.T)


@REMEDIES.register("whiten")
@dataclass(frozen=True, kw_only=True)
class Whiten(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^−½ of the largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown up; the map's output
    has as many dimensions as remain. The covariance of the fitted cloud becomes the identity.
    """

    keep: Annotated[int | None, Option("Components to keep. Default: all.", low=1)] = None

    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy:
        """See the class."""
        values, vectors = _components(cloud)
        kept = min(self.keep or cloud.width, int((values > 1e-10 * values[0]).sum()))
        return Remedy("whiten", cloud.mean, vectors[:, :kept] / np.sqrt(values[:kept]))


@REMEDIES.register("standardise")
@dataclass(frozen=True, kw_only=True)
class Standardise(RemedyMethod, Settings):
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions become zero."""

    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy:
        """See the class."""
        deviation = np.sqrt(np.clip(np.diag(cloud.covariance), 0, None))
        small = deviation <= 1e-10 * deviation.max(initial=0.0)
        return Remedy("standardise", cloud.mean, np.diag(np.where(small, 0.0, 1 / np.where(small, 1.0, deviation))))
