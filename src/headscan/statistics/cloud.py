"""Finished statistics of one set of vectors, which every measure of shape is a function of."""

from dataclasses import dataclass, replace
from typing import TypeAlias, Union

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.run.errors import BadInput
from headscan.statistics.eigen import Eigen, eigen
from headscan.statistics.gram import products_of
from headscan.statistics.parallel import lazy
from headscan.statistics.sums import Sums
from headscan.statistics.uncertainty import Floats

NEAR = 1e-7
"""tr C / ‖μ‖² below which the eigenvalues of C are computed apart from that of the mean."""

Vectors: TypeAlias = Union["Cloud", npt.ArrayLike, Tensor]
"""Vectors as the rows of a matrix [n, d] (list, numpy array, tensor), or the finished `Cloud` of
them.
"""


@dataclass(frozen=True, repr=False)
class Cloud:
    """A finished set of n vectors in d dimensions, known by its sums only, in float64 numpy arrays.

    What follows from the covariance raises ValueError where the sums had no Gram matrix.

    Attributes:
        count: number of vectors n.
        zeros: number of zero vectors.
        unit_sum: Σx/‖x‖ [d].
        vector_sum: Σx [d].
        norm_sum: Σ‖x‖.
        square_sum: Σ‖x‖².
        centred: C = Σ(x − μ)(x − μ)ᵀ/n [d, d], on the device of the sums, which also decomposes
            it; None where there are `rows`, and without a Gram matrix.
        rows: the vectors themselves [n, d], where they are known and no more than d, on that
            device.
        directed: directions will be asked for, so that one decomposition gives them, too.

    >>> cloud = Cloud.of_rows([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> cloud.count, cloud.width, cloud.mean.round(3).tolist()
    (3, 2, [0.667, 0.667])
    """

    count: int
    zeros: int
    unit_sum: Floats
    vector_sum: Floats
    norm_sum: float
    square_sum: float
    centred: Tensor | None
    rows: Tensor | None = None
    directed: bool = False

    @classmethod
    def of_sums(cls, sums: Sums, *, gram: bool = True, directed: bool = False) -> "Cloud":
        """Return the finished form of sums; with `gram=False` the second moment is left out."""
        centred = None
        rows = None
        if gram and sums.gram is not None:
            if sums.gram.held and sums.count <= sums.width:
                rows = sums.gram.rows
            else:
                centred = sums.gram.scatter().div_(max(sums.count, 1))
        return cls(
            count=sums.count,
            zeros=sums.zeros,
            unit_sum=sums.unit.cpu().numpy(),
            vector_sum=sums.total.cpu().numpy(),
            norm_sum=sums.norm,
            square_sum=sums.square,
            centred=centred,
            rows=rows,
            directed=directed,
        )

    @classmethod
    def of_rows(cls, rows: npt.ArrayLike | Tensor) -> "Cloud":
        """Return the cloud of the rows of a matrix [n, d] (list, numpy array or tensor).

        Raises BadInput for any other shape.
        """
        if not isinstance(rows, Tensor):
            rows = torch.from_numpy(np.array(rows, dtype=np.float64))
        if rows.ndim != 2:
            raise BadInput(
                f"Vectors come as the rows of a matrix [n, d], not in the shape {list(rows.shape)}."
            )
        return cls.of_sums(Sums.of_rows(rows.detach().cpu()))

    @classmethod
    def of(cls, vectors: Vectors) -> "Cloud":
        """Return the cloud itself, or that of the rows of a matrix.

        Raises BadInput where a value is NaN or infinite.

        >>> Cloud.of([[1.0, 0.0], [0.0, 1.0]])
        Cloud of 2 vectors in 2 dimensions
        """
        if isinstance(vectors, Cloud):
            return vectors
        cloud = cls.of_rows(vectors)
        if not np.isfinite(cloud.vector_sum).all():
            raise BadInput("Vectors must be finite: there are NaN or infinite values among these.")
        return cloud

    def __repr__(self) -> str:
        return f"Cloud of {self.count} vectors in {self.width} dimensions"

    @property
    def width(self) -> int:
        return len(self.vector_sum)

    @lazy
    def mean(self) -> Floats:
        """The mean vector μ [d]."""
        return self.vector_sum / self.count

    @property
    def second_moment(self) -> Floats:
        """M = C + μμᵀ = Σxxᵀ/n [d, d], about the origin; computed anew, because it is large."""
        moment: Floats = self._moment().cpu().numpy()
        return moment

    def _moment(self) -> Tensor:
        mean = torch.from_numpy(self.mean).to(self._covariance.device)
        return torch.outer(mean, mean).add_(self._covariance)

    @property
    def covariance(self) -> Floats:
        """C = Σ(x − μ)(x − μ)ᵀ/n [d, d], about the mean (divided by n, not n − 1)."""
        covariance: Floats = self._covariance.cpu().numpy()
        return covariance

    @lazy
    def _covariance(self) -> Tensor:
        if self.centred is not None:
            return self.centred
        return products_of(self._centred_rows.T).div_(self.count)

    @lazy
    def _centred_rows(self) -> Tensor:
        if self.rows is None:
            raise ValueError("these sums were kept without a second moment")
        return self.rows - self.rows.mean(0)

    @lazy
    def _products(self) -> Tensor:
        """(x − μ)·(y − μ)/n of all pairs of `rows` [n, n], which has the eigenvalues of C."""
        return products_of(self._centred_rows).div_(self.count)

    @lazy
    def variances(self) -> Floats:
        """The variance of each coordinate, the diagonal of C [d]."""
        if self.rows is None:
            diagonal = self._covariance.diagonal()
        else:
            diagonal = self._centred_rows.square().mean(0)
        variances: Floats = diagonal.cpu().numpy()
        return variances

    @property
    def variance(self) -> float:
        """tr C, the variance of all coordinates together."""
        return float(self.variances.sum())

    @lazy
    def squared_covariance(self) -> float:
        """‖C‖², the sum of the squared entries of C."""
        matrix = self._covariance if self.rows is None else self._products
        entries = matrix.flatten()
        return float(entries @ entries)

    @lazy
    def mean_variance(self) -> float:
        """μᵀCμ."""
        if self.rows is None:
            mean = torch.from_numpy(self.mean).to(self._covariance.device)
            return float(mean @ (self._covariance @ mean))
        mean = torch.from_numpy(self.mean).to(self.rows.device)
        return float((self._centred_rows @ mean).square().mean())

    @lazy
    def _eigen(self) -> Eigen:
        """The decomposition of the second moment, by which values and directions agree."""
        if _is_far(self):
            return _FarEigen(self)
        if self.rows is not None:
            return _FewEigen(self)
        return eigen(self._moment(), vectors=self.directed)

    @lazy
    def energies(self) -> Floats:
        """σᵢ²/n, the eigenvalues of the second moment, largest first [d].

        Rounding leaves values below `rounding` undetermined: a true zero may come out as a positive
        number of that size, and is set to zero where it came out negative.
        """
        return np.clip(self._eigen.values, 0.0, None)

    @lazy
    def rounding(self) -> float:
        """The rounding error of `energies`, 4d·ε·λ₁; 4d·ε·tr C of those beside a mean far away."""
        scale = self.variance if _is_far(self) else float(self.energies[0])
        return 4 * self.width * float(np.finfo(float).eps) * scale

    @property
    def directions(self) -> Floats:
        """The eigenvectors of the second moment as columns [d, d], largest energy first."""
        return self.strongest(self.width)

    def strongest(self, count: int) -> Floats:
        """Return the first `count` of `directions` as columns [d, count].

        Further ones are not computed. A direction in which none of few vectors has a component may
        be a column of zeros.
        """
        return self._eigen.strongest(min(count, self.width))

    def without(self, coordinates: list[int]) -> tuple[float, float] | None:
        """Return the largest share of the energy, and the entropy of the shares, with these
        coordinates left out.

        The entropy is −Σ p log p of the shares pᵢ in nats. None where no energy is left.
        """
        remaining = np.delete(np.arange(self.width), coordinates)
        if not len(remaining):
            return None
        centred = self.centred
        if centred is not None:
            kept = torch.from_numpy(remaining).to(centred.device)
            centred = centred[kept[:, None], kept]
        rows = self.rows
        if rows is not None:
            rows = rows[:, torch.from_numpy(remaining).to(rows.device)]
        cloud = replace(
            self,
            unit_sum=self.unit_sum[remaining],
            vector_sum=self.vector_sum[remaining],
            centred=centred,
            rows=rows,
            directed=False,
        )
        total = cloud.energies.sum()
        if not total > 0:
            return None
        shares = cloud.energies / total
        positive = shares[shares > 0]
        entropy = -float((positive * np.log(positive)).sum())
        return float(shares[0]), entropy


def _is_far(cloud: Cloud) -> bool:
    """Return whether the mean is far from the origin for the spread of the vectors."""
    if not cloud.count:
        return False
    mean_square = float(cloud.mean @ cloud.mean)
    return cloud.variance < NEAR * mean_square


class _FewEigen:
    """The decomposition of Σxxᵀ/n of n vectors, fewer than dimensions, from their products.

    XXᵀ has the same eigenvalues but for d − n zeros, and its eigenvectors u give Xᵀu. Directions of
    an eigenvalue that is zero to rounding are columns of zeros.
    """

    def __init__(self, cloud: Cloud):
        assert cloud.rows is not None
        self._rows = cloud.rows
        count, width = self._rows.shape
        mean = torch.from_numpy(cloud.mean).to(self._rows.device)
        along_mean = cloud._centred_rows @ mean
        uncentred = along_mean[:, None] + along_mean + mean @ mean
        products = uncentred.div_(count).add_(cloud._products)
        self._eigen = eigen(products, vectors=cloud.directed)
        self.values: Floats = np.append(self._eigen.values, np.zeros(width - count))

    def strongest(self, count: int) -> Floats:
        rows, width = self._rows.shape
        values = self.values[: min(count, rows)]
        rounding = 4 * width * float(np.finfo(float).eps) * float(self.values.max(initial=0.0))
        used = int((values > rounding).sum())
        vectors = torch.from_numpy(self._eigen.strongest(used).copy()).to(self._rows.device)
        directions = np.zeros((width, count))
        directions[:, :used] = (self._rows.T @ vectors).cpu().numpy()
        directions[:, :used] /= np.sqrt(rows * values[:used])
        return directions


class _FarEigen:
    """The decomposition of M = C + μμᵀ where ‖μ‖² is far above tr C.

    The eigenvalues of M would drown in the rounding of ‖μ‖². With a reflection H that turns μ to
    the first axis, HMH is [[a, cᵀ], [c, B]]; λ₁ = a + ‖c‖²/a, and the others are those of B −
    ccᵀ/a, to (tr C/‖μ‖²)².
    """

    def __init__(self, cloud: Cloud):
        covariance = cloud._covariance
        mean = torch.from_numpy(cloud.mean).to(covariance.device)
        square = mean @ mean
        axis = mean / square.sqrt()
        axis[0] += torch.ones_like(axis[0]).copysign(axis[0])
        self._axis: Floats = axis.cpu().numpy()
        self._weight = 2 / float(self._axis @ self._axis)

        # H = I − weight·axis·axisᵀ, and HCH = C − axis·wᵀ − w·axisᵀ
        along = self._weight * (covariance @ axis)
        w = along - 0.5 * self._weight * (axis @ along) * axis
        turned = covariance - torch.outer(axis, w) - torch.outer(w, axis)
        a = square + turned[0, 0]
        c = turned[1:, 0]
        slope = c / a
        others = turned[1:, 1:] - torch.outer(c, slope)
        self._eigen = eigen(others, vectors=cloud.directed)
        self._slope: Floats = slope.cpu().numpy()
        self.values: Floats = np.append(float(a + c @ slope), self._eigen.values)

    def strongest(self, count: int) -> Floats:
        directions = np.zeros((len(self._axis), count))
        if count:
            others = self._eigen.strongest(count - 1)
            directions[0, 0] = 1.0
            directions[1:, 0] = self._slope
            directions[0, 1:] = -(self._slope @ others)
            directions[1:, 1:] = others
        turned_back: Floats = directions - np.outer(
            self._axis, self._weight * (self._axis @ directions)
        )
        return turned_back
