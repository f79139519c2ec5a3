"""Finished statistics of one set of vectors: what every measure of shape is a function of."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, Union

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.linalg import eigsh
from threadpoolctl import threadpool_limits
from torch import Tensor

from headscan.run.errors import BadInput
from headscan.statistics.accumulator import lazy
from headscan.statistics.site import Sums
from headscan.statistics.uncertainty import Floats

WIDE = 256  # dimensions beyond which few directions are found without all eigenvectors
NEAR = 1e-7  # tr C / ‖μ‖² below which the eigenvalues are taken apart from the mean's
Vectors: TypeAlias = Union["Cloud", npt.ArrayLike, Tensor]
"""Vectors as the rows of a matrix [n, d] (list, numpy array, tensor), or the finished `Cloud` of
them.
"""


@dataclass(frozen=True, repr=False)
class Cloud:
    """A finished set of n vectors in d dimensions, known by its sums only; everything is float64
    numpy.

    `second_moment` and what follows from it raise ValueError where the sums held no Gram matrix.

    >>> cloud = Cloud.of_rows([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> cloud.count, cloud.width, cloud.mean.round(3).tolist()
    (3, 2, [0.667, 0.667])
    """

    # Eigenvalues alone are numpy's, whose threads do not obey torch.set_num_threads: where several
    # clouds are at work they are held down by `side_by_side`.

    count: int
    zeros: int
    unit_sum: Floats
    vector_sum: Floats
    norm_sum: float
    square_sum: float
    centred: Floats | None  # C = Σ(x − μ)(x − μ)ᵀ/n [d, d]
    rows: Floats | None = None  # the vectors themselves, where they are few and known
    device: str = "cpu"  # where the sums are: a card takes the eigenvalues, too

    @classmethod
    def of_sums(cls, sums: Sums, *, gram: bool = True) -> "Cloud":
        """The finished form of accumulated sums; with `gram=False` the second moment is left out."""
        centred = (
            sums.gram.scatter().div_(max(sums.count, 1)).cpu().numpy()
            if gram and sums.gram is not None
            else None
        )
        return cls(
            count=sums.count,
            zeros=sums.zeros,
            unit_sum=sums.unit.cpu().numpy(),
            vector_sum=sums.total.cpu().numpy(),
            norm_sum=sums.norm,
            square_sum=sums.square,
            centred=centred,
            rows=sums.gram.rows.cpu().numpy()
            if centred is not None and sums.gram is not None and sums.gram.held
            else None,
            device=str(sums.sums.device),
        )

    @classmethod
    def of_rows(cls, rows: npt.ArrayLike | Tensor) -> "Cloud":
        """The cloud of the rows of a matrix [n, d] (list, numpy array or tensor); BadInput for any
        other shape.
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
        """The cloud itself, or that of the rows of a matrix; BadInput where a value is NaN or
        infinite.

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
        """M = C + μμᵀ = Σxxᵀ/n [d, d], about the origin; made anew, since it is large."""
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
        values, vectors = _eigh(self, vectors=True)
        return np.clip(values, 0.0, None), vectors

    @lazy
    def energies(self) -> Floats:
        """σᵢ²/n, the eigenvalues of the second moment, largest first [d].

        Rounding leaves values below `rounding` undetermined: what the true data has as zero may
        come out as a positive number of that size, and is set to zero where it came out negative.
        """
        return (
            self._eigen[0]
            if "_eigen" in self.__dict__
            else np.clip(_eigh(self, vectors=False)[0], 0.0, None)
        )

    @lazy
    def rounding(self) -> float:
        """What `energies` are known to, 4d·ε·λ₁; of the directions beside a mean far away, 4d·ε·tr
        C.
        """
        trace = float(np.trace(self.covariance))
        return (
            4
            * self.width
            * float(np.finfo(float).eps)
            * (trace if _far(self) else float(self.energies[0]))
        )

    @property
    def directions(self) -> Floats:
        """The eigenvectors of the second moment as columns [d, d], largest energy first."""
        return self._eigen[1]

    def strongest(self, count: int) -> Floats:
        """The first `count` of `directions` as columns [d, count]; of wide clouds without the
        others.
        """
        if self.width <= WIDE or _far(self) or "_eigen" in self.__dict__ or not count:
            return self.directions[:, :count]
        values, vectors = eigsh(self.second_moment, k=count, which="LA", v0=np.ones(self.width))
        found: Floats = vectors[:, np.argsort(values)[::-1]]
        return found

    def without(self, coordinates: list[int]) -> tuple[float, float] | None:
        """The largest of the shares pᵢ of the energy, and their entropy −Σ p log p in nats, with
        these coordinates left out; None where no energy is left.
        """
        kept = np.delete(np.arange(self.width), coordinates)
        centred = None if self.centred is None else self.centred[np.ix_(kept, kept)]
        rest = replace(
            self,
            unit_sum=self.unit_sum[kept],
            vector_sum=self.vector_sum[kept],
            centred=centred,
            rows=None,
        )
        if not len(kept) or not rest.energies.sum() > 0:
            return None
        shares = rest.energies / rest.energies.sum()
        return float(shares[0]), -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())


def _far(cloud: Cloud) -> bool:
    return bool(cloud.count) and float(np.trace(cloud.covariance)) < NEAR * float(
        cloud.mean @ cloud.mean
    )


def _eigh(cloud: Cloud, *, vectors: bool) -> tuple[Floats, Floats]:
    """Eigenvalues of the second moment M = C + μμᵀ, largest first [d], and the eigenvectors [d, d]
    where asked ([d, 0]).

    Where ‖μ‖² is far above tr C, M's own eigenvalues would drown in the rounding of ‖μ‖². With a
    reflection that turns μ to the first axis, M is [[a, cᵀ], [c, B]]; λ₁ = a + ‖c‖²/a, and the
    others are those of B − ccᵀ/a, to (tr C/‖μ‖²)².
    """
    if not _far(cloud):
        if (
            not vectors and cloud.rows is not None and len(cloud.rows) < 0.75 * cloud.width
        ):  # XXᵀ has the same, and d − n zeros
            few = np.linalg.eigvalsh(cloud.rows @ cloud.rows.T)[::-1] / cloud.count
            return np.append(few, np.zeros(cloud.width - len(few))), np.zeros((len(cloud.rows), 0))
        values, found = _decomposed(cloud.second_moment, vectors, cloud.device)
        return values[::-1], found[:, ::-1]
    covariance = cloud.covariance
    length = float(np.linalg.norm(cloud.mean))
    axis = cloud.mean / length
    axis[0] += np.copysign(1.0, axis[0])
    mirror = np.eye(cloud.width) - np.outer(axis, 2 * axis / (axis @ axis))
    turned = mirror @ covariance @ mirror
    top = length**2 + turned[0, 0]
    cross = turned[1:, 0]
    values, found = _decomposed(
        turned[1:, 1:] - np.outer(cross, cross) / top, vectors, cloud.device
    )
    energies = np.append(values, top + cross @ cross / top)[::-1]
    if not vectors:
        return energies, found
    turned = np.block(
        [
            [np.ones((1, 1)), -(cross / top @ found)[None, ::-1]],
            [cross[:, None] / top, found[:, ::-1]],
        ]
    )
    return energies, mirror @ turned


def _decomposed(matrix: Floats, vectors: bool, device: str = "cpu") -> tuple[Floats, Floats]:
    # other devices have no float64
    none = np.zeros((len(matrix), 0))
    place = device if device.startswith("cuda") else "cpu"
    if vectors:
        values, found = torch.linalg.eigh(torch.from_numpy(matrix).to(place))
        return values.cpu().numpy(), found.cpu().numpy()
    if place != "cpu":
        return torch.linalg.eigvalsh(torch.from_numpy(matrix).to(place)).cpu().numpy(), none
    return np.linalg.eigvalsh(matrix).astype(np.float64, copy=False), none


# ---- Work on many matrices at once: one thread each, rather than all threads on each.

S = TypeVar("S")
T = TypeVar("T")
ROOM = 2**30


def side_by_side(
    work: Callable[[S], T], items: Sequence[S], size: float, device: torch.device | str = "cpu"
) -> Iterator[T]:
    """Yield `work` of each item, in order; several run at once, each on one thread, as many as
    torch has threads.

    `size` is what one holds in bytes: all at once hold no more than 1 GiB, or there is one at a
    time, on all threads. `device` is where `work` computes: on any device but the CPU there is one
    at a time, because torch loads the libraries of a device at their first call, and fails where
    two threads make that call at once. A device does not gain from threads. The decompositions of a
    symmetric matrix gain little from more threads than one, and products of threads that wait for
    one another gain nothing. numpy's threads are held to as many: on a busy machine of two cores
    two of them waited for each other and took ten times as long.

    >>> list(side_by_side(abs, [-1, 2], 8))
    [1, 2]
    """
    threads = torch.get_num_threads()
    most = threads if torch.device(device).type == "cpu" else 1
    workers = max(1, min(most, len(items), int(ROOM // max(size, 1.0))))
    with threadpool_limits(threads if workers == 1 else 1, "blas"):
        if workers == 1:
            yield from map(work, items)
            return
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            torch.set_num_threads(1)
            yield from pool.map(work, items)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
