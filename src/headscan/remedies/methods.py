"""The ten remedies: centring, scaling, whitening in four ways, and what takes directions or coordinates away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from headscan.measures.outliers import rogue_dimensions
from headscan.remedies.remedy import (
    REMEDIES,
    AffineRemedy,
    FittingData,
    Floats,
    Remedy,
    RemedyMethod,
    components,
    deviations,
    inverse_root,
)
from headscan.run import Option, Settings


@REMEDIES.register("all-but-the-top")
@dataclass(frozen=True, kw_only=True)
class AllButTheTop(RemedyMethod, Settings):
    """Centre, then take the top principal components out (Mu and Viswanath 2018)."""

    remove: Annotated[int | None, Option("Components to take out. Default: a hundredth of all.", low=0)] = None

    def fit(self, data: FittingData) -> AffineRemedy:
        width = data.cloud.width
        top = components(data.cloud)[1][:, : max(1, width // 100) if self.remove is None else self.remove]
        return AffineRemedy("all-but-the-top", data.cloud.mean, np.eye(width) - top @ top.T)


@REMEDIES.register("centre")
@dataclass(frozen=True, kw_only=True)
class Centre(RemedyMethod, Settings):
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is near 0."""

    def fit(self, data: FittingData) -> AffineRemedy:
        return AffineRemedy("centre", data.cloud.mean, np.eye(data.cloud.width))


@REMEDIES.register("conceptor")
@dataclass(frozen=True, kw_only=True)
class Conceptor(RemedyMethod, Settings):
    """x·(I − M(M + α⁻²·I·tr M/d)⁻¹) with M the second moment about the origin: a softer all-but-the-top, not centred (Liu,
    Ungar and Sedoc 2019, conceptor negation; α here in units of the mean energy of a direction)."""

    aperture: Annotated[float, Option("α: the larger, the more is damped.", above=0)] = 2.0

    def fit(self, data: FittingData) -> AffineRemedy | None:
        moment, width = data.cloud.second_moment, data.cloud.width
        mean = float(np.trace(moment)) / width
        if not mean > 0:  # all vectors are zero
            return None
        values, vectors = np.linalg.eigh(moment)
        damp = mean / self.aperture**2
        kept = damp / (np.clip(values, 0, None) + damp)
        return AffineRemedy("conceptor", np.zeros(width), (vectors * kept) @ vectors.T)


@dataclass(frozen=True, repr=False)
class QuantileRemedy(Remedy):
    """Each coordinate by a line of straight pieces: y = start + slope·(x − k₀) + Σᵢ bendᵢ·max(0, x − kᵢ)."""

    name: str
    knots: Floats  # kᵢ of each coordinate, ascending [K, d]
    start: Floats  # y at the first knot [d]
    slope: Floats  # before the first knot [d]
    bends: Floats  # by how much the slope changes at each knot [K, d]; the first is 0

    @property
    def widths(self) -> tuple[int, int]:
        return len(self.start), len(self.start)

    def apply(self, rows: Floats) -> Floats:
        mapped: Floats = self.start + self.slope * (rows - self.knots[0])
        for knot, bend in zip(self.knots[1:], self.bends[1:], strict=True):
            mapped += bend * np.maximum(rows - knot, 0.0)
        return mapped

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        parts = {"knots": self.knots, "start": self.start, "slope": self.slope, "bends": self.bends}
        return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in parts.items()}

    @classmethod
    def of_tensors(cls, name: str, tensors: dict[str, Floats]) -> QuantileRemedy:
        return cls(name, tensors["knots"], tensors["start"], tensors["slope"], tensors["bends"])

    def config(self) -> dict[str, object]:
        form = "start + slope(x - k0) + sum bends relu(x - k)"
        return {"remedy": self.name, "in_features": len(self.start), "form": form}


@REMEDIES.register("quantile")
@dataclass(frozen=True, kw_only=True)
class Quantile(RemedyMethod, Settings):
    """Each coordinate bent so that its distribution is normal, by its quantiles (rank-based normal scores); beyond the outer
    ones it goes on straight. Not affine: it becomes no `Dense` module."""

    knots: Annotated[int, Option("Quantiles of each coordinate.", low=3, high=1025)] = 33

    def fit(self, data: FittingData) -> QuantileRemedy | None:
        if data.sample is None or len(data.sample) < 2:
            return None
        shares = (np.arange(self.knots) + 0.5) / self.knots
        knots = np.quantile(data.sample, shares, axis=0)
        scores = ndtri(shares)
        slopes = np.zeros((self.knots, knots.shape[1]))
        start = np.zeros(knots.shape[1])
        for column in range(knots.shape[1]):
            # Knots that fall together (a coordinate that is often the same) are one, at the mean of their scores.
            own, place = np.unique(knots[:, column], return_inverse=True)
            mean = np.bincount(place, weights=scores) / np.bincount(place)
            start[column] = mean[0]
            if len(own) > 1:
                first = np.searchsorted(knots[:, column], own[:-1], side="left")
                steps = np.diff(mean) / np.diff(own)
                slopes[:, column] = steps[np.searchsorted(first, np.arange(self.knots), side="right") - 1]
        bends = np.diff(slopes, axis=0, prepend=slopes[:1])
        return QuantileRemedy("quantile", knots, start, slopes[0], bends)


@REMEDIES.register("standardise")
@dataclass(frozen=True, kw_only=True)
class Standardise(RemedyMethod, Settings):
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions become zero."""

    def fit(self, data: FittingData) -> AffineRemedy:
        return AffineRemedy("standardise", data.cloud.mean, np.diag(_scales(data)))


def _scales(data: FittingData) -> Floats:
    """1/σ of each coordinate, 0 of constant ones."""
    deviation = deviations(data.cloud)
    return np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)


@REMEDIES.register("whiten")
@dataclass(frozen=True, kw_only=True)
class Whiten(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^−½ of the largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown up; the map's output
    has as many dimensions as remain. The covariance of the fitted cloud becomes the identity. Cosines are those of ZCA,
    which turns the result back by a rotation.
    """

    keep: Annotated[int | None, Option("Components to keep. Default: all.", low=1)] = None

    def fit(self, data: FittingData) -> AffineRemedy:
        values, vectors = components(data.cloud)
        kept = min(self.keep or len(values), len(values))
        return AffineRemedy("whiten", data.cloud.mean, vectors[:, :kept] / np.sqrt(values[:kept]))


@REMEDIES.register("whiten-shrunk")
@dataclass(frozen=True, kw_only=True)
class WhitenShrunk(RemedyMethod, Settings):
    """ZCA whitening of (1 − s)C + s·(tr C/d)·I: few vectors do not blow up directions they know little of (the shrinkage
    of Ledoit and Wolf 2004, s given; the ε of soft-ZCA, Diera et al. 2024)."""

    shrinkage: Annotated[float, Option("s, 0 to 1.", above=0, high=1)] = 0.1

    def fit(self, data: FittingData) -> AffineRemedy | None:
        covariance, width = data.cloud.covariance, data.cloud.width
        ball = float(np.trace(covariance)) / width
        if not ball > 0:  # all vectors are one
            return None
        values, vectors = np.linalg.eigh((1 - self.shrinkage) * covariance + self.shrinkage * ball * np.eye(width))
        return AffineRemedy("whiten-shrunk", data.cloud.mean, (vectors / np.sqrt(values)) @ vectors.T)


@REMEDIES.register("whiten-softly")
@dataclass(frozen=True, kw_only=True)
class WhitenSoftly(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^(−power/2)·Vᵀ: between centring (power 0) and ZCA whitening (power 1)."""

    power: Annotated[float, Option("Of whitening, 0 to 1.", low=0, high=1)] = 0.5

    def fit(self, data: FittingData) -> AffineRemedy:
        values, vectors = components(data.cloud)
        return AffineRemedy("whiten-softly", data.cloud.mean, (vectors * values ** (-self.power / 2)) @ vectors.T)


@REMEDIES.register("without-rogue")
@dataclass(frozen=True, kw_only=True)
class WithoutRogue(RemedyMethod, Settings):
    """The coordinates that contribute most to the average cosine are set to zero; nothing is centred."""

    dimensions: Annotated[int, Option("How many coordinates.", low=1)] = 3

    def fit(self, data: FittingData) -> AffineRemedy | None:
        if data.directions is None:
            return None
        kept = np.ones(data.cloud.width)
        kept[[one.dimension for one in rogue_dimensions(data.directions, self.dimensions)]] = 0.0
        return AffineRemedy("without-rogue", np.zeros(data.cloud.width), np.diag(kept))


@REMEDIES.register("zca-corr")
@dataclass(frozen=True, kw_only=True)
class ZcaCorr(RemedyMethod, Settings):
    """(x − μ)·diag(σ)⁻¹·P^−½ with P the correlations: of all whitenings the one whose coordinates correlate most with those
    before (Kessy, Lewin and Strimmer 2018). Constant coordinates become zero."""

    def fit(self, data: FittingData) -> AffineRemedy:
        scale = _scales(data)
        correlation = scale[:, None] * data.cloud.covariance * scale
        return AffineRemedy("zca-corr", data.cloud.mean, scale[:, None] * inverse_root(correlation))
