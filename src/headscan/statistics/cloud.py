"""Finished statistics of one set of vectors, which every measure of shape is a function of."""

from dataclasses import dataclass, replace
from typing import TypeAlias, Union

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from headscan.run.errors import BadInput
from headscan.statistics.parallel import lazy
from headscan.statistics.sums import Sums
from headscan.statistics.uncertainty import Floats

WIDE = 256
"""Dimensions beyond which a few directions are computed without all eigenvectors."""

NEAR = 1e-7
"""tr C / ‖μ‖² below which the eigenvalues of C are computed apart from that of the mean."""

Vectors: TypeAlias = Union["Cloud", npt.ArrayLike, Tensor]
"""Vectors as the rows of a matrix [n, d] (list, numpy array, tensor), or the finished `Cloud` of
them.
"""


@dataclass(frozen=True, repr=False)
class Cloud:
    """A finished set of n vectors in d dimensions, known by its sums only, in float64 numpy arrays.

    `second_moment` and what follows from it raise ValueError where the sums had no Gram matrix.

    Attributes:
        count: number of vectors n.
        zeros: number of zero vectors.
        unit_sum: Σx/‖x‖ [d].
        vector_sum: Σx [d].
        norm_sum: Σ‖x‖.
        square_sum: Σ‖x‖².
        centred: C = Σ(x − μ)(x − μ)ᵀ/n [d, d]; None without a Gram matrix.
        rows: the vectors themselves [n, d], where they are few and known.
        device: the device of the sums; a CUDA device also computes the eigenvalues.

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
    centred: Floats | None
    rows: Floats | None = None
    device: str = "cpu"

    @classmethod
    def of_sums(cls, sums: Sums, *, gram: bool = True) -> "Cloud":
        """Return the finished form of sums; with `gram=False` the second moment is left out."""
        centred = None
        rows = None
        if gram and sums.gram is not None:
            centred = sums.gram.scatter().div_(max(sums.count, 1)).cpu().numpy()
            if sums.gram.held:
                rows = sums.gram.rows.cpu().numpy()
        return cls(
            count=sums.count,
            zeros=sums.zeros,
            unit_sum=sums.unit.cpu().numpy(),
            vector_sum=sums.total.cpu().numpy(),
            norm_sum=sums.norm,
            square_sum=sums.square,
            centred=centred,
            rows=rows,
            device=str(sums.sums.device),
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
        moment = np.outer(self.mean, self.mean)
        moment += self.covariance
        return moment

    @property
    def covariance(self) -> Floats:
        """C = Σ(x − μ)(x − μ)ᵀ/n [d, d], about the mean (divided by n, not n − 1)."""
        if self.centred is None:
            raise ValueError("these sums were kept without a second moment")
        return self.centred

    @lazy
    def _eigen(self) -> tuple[Floats, Floats]:
        """The eigenvalues and the eigenvectors of the second moment, largest first."""
        values, vectors = _eigh(self, vectors=True)
        return np.clip(values, 0.0, None), vectors

    @lazy
    def energies(self) -> Floats:
        """σᵢ²/n, the eigenvalues of the second moment, largest first [d].

        Rounding leaves values below `rounding` undetermined: a true zero may come out as a positive
        number of that size, and is set to zero where it came out negative.
        """
        if "_eigen" in self.__dict__:
            return self._eigen[0]
        values, _ = _eigh(self, vectors=False)
        return np.clip(values, 0.0, None)

    @lazy
    def rounding(self) -> float:
        """The rounding error of `energies`, 4d·ε·λ₁; 4d·ε·tr C of those beside a mean far away."""
        scale = float(np.trace(self.covariance)) if _is_far(self) else float(self.energies[0])
        return 4 * self.width * float(np.finfo(float).eps) * scale

    @property
    def directions(self) -> Floats:
        """The eigenvectors of the second moment as columns [d, d], largest energy first."""
        return self._eigen[1]

    def strongest(self, count: int) -> Floats:
        """Return the first `count` of `directions` as columns [d, count].

        The others are not computed where the cloud is wide.
        """
        if self.width <= WIDE or _is_far(self) or "_eigen" in self.__dict__ or not count:
            return self.directions[:, :count]
        values, vectors = eigsh(self.second_moment, k=count, which="LA", v0=np.ones(self.width))
        largest_first: Floats = vectors[:, np.argsort(values)[::-1]]
        return largest_first

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
            centred = centred[np.ix_(remaining, remaining)]
        cloud = replace(
            self,
            unit_sum=self.unit_sum[remaining],
            vector_sum=self.vector_sum[remaining],
            centred=centred,
            rows=None,
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
    return float(np.trace(cloud.covariance)) < NEAR * mean_square


def _eigh(cloud: Cloud, *, vectors: bool) -> tuple[Floats, Floats]:
    """Return the eigenvalues [d] of the second moment, largest first, and its eigenvectors [d, d].

    Without `vectors` the second array has no columns.
    """
    if _is_far(cloud):
        return _eigh_far(cloud, vectors=vectors)
    rows = cloud.rows
    if not vectors and rows is not None and len(rows) < 0.75 * cloud.width:
        # XXᵀ has the same eigenvalues but for d − n zeros.
        values = np.linalg.eigvalsh(rows @ rows.T)[::-1] / cloud.count
        zeros = np.zeros(cloud.width - len(values))
        return np.append(values, zeros), np.zeros((len(rows), 0))
    values, directions = _decomposed(cloud.second_moment, vectors, cloud.device)
    return values[::-1], directions[:, ::-1]


def _eigh_far(cloud: Cloud, *, vectors: bool) -> tuple[Floats, Floats]:
    """Return the same where ‖μ‖² is far above tr C.

    The eigenvalues of M = C + μμᵀ would drown in the rounding of ‖μ‖². With a reflection H that
    turns μ to the first axis, HMH is [[a, cᵀ], [c, B]]; λ₁ = a + ‖c‖²/a, and the others are those
    of B − ccᵀ/a, to (tr C/‖μ‖²)².
    """
    length = float(np.linalg.norm(cloud.mean))
    axis = cloud.mean / length
    axis[0] += np.copysign(1.0, axis[0])
    reflection = np.eye(cloud.width) - np.outer(axis, 2 * axis / (axis @ axis))

    turned = reflection @ cloud.covariance @ reflection
    a = length**2 + turned[0, 0]
    c = turned[1:, 0]
    remainder = turned[1:, 1:] - np.outer(c, c) / a
    values, directions = _decomposed(remainder, vectors, cloud.device)
    energies = np.append(values, a + c @ c / a)[::-1]
    if not vectors:
        return energies, directions

    first_row = [np.ones((1, 1)), -(c / a @ directions)[None, ::-1]]
    other_rows = [c[:, None] / a, directions[:, ::-1]]
    return energies, reflection @ np.block([first_row, other_rows])


def _decomposed(matrix: Floats, vectors: bool, device: str = "cpu") -> tuple[Floats, Floats]:
    """Return the eigenvalues of a symmetric matrix, ascending, and its eigenvectors if asked for.

    Devices other than CUDA have no float64: the CPU computes for them. The eigenvalues alone are
    numpy's, whose threads do not obey torch.set_num_threads: `side_by_side` limits them.
    """
    on_cuda = device.startswith("cuda")
    if vectors:
        tensor = torch.from_numpy(matrix).to(device if on_cuda else "cpu")
        values, directions = torch.linalg.eigh(tensor)
        return values.cpu().numpy(), directions.cpu().numpy()

    no_directions = np.zeros((len(matrix), 0))
    if on_cuda:
        tensor = torch.from_numpy(matrix).to(device)
        values = torch.linalg.eigvalsh(tensor)
        return values.cpu().numpy(), no_directions
    return np.linalg.eigvalsh(matrix).astype(np.float64, copy=False), no_directions
