"""Sums of the states of a model in training: what measures of shape need, in few calls of the
device, for which the CPU waits once for many sites.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.statistics import Cloud, NonFinite
from headscan.statistics.cloud import NEAR
from headscan.statistics.gram import panel_spans
from headscan.statistics.site import AT_ONCE
from headscan.statistics.transfer import sent_together

AT_ONCE_ON_DEVICES = 2**26
"""Numbers that are added at a time elsewhere, 512 MiB in float64."""

TOGETHER = 2**24
"""Entries of matrices, 128 MiB in float64, that a device decomposes in one call."""

Mask = npt.NDArray[np.bool_]
"""Which tokens of windows [B, T] are no padding."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch of windows by their indices in its states as rows [B·T, d].

    Attributes:
        first: of the first token of each window that is no padding, on the device of the sums.
        later: of all others that are no padding, on that device.
        start: the index of the batch's first token among those of all windows.
    """

    first: Int[Tensor, " f"]
    later: Int[Tensor, " n"]
    start: int = 0

    @classmethod
    def of(cls, real: Mask, device: torch.device, start: int = 0) -> Self:
        """Return the tokens of a batch."""
        is_first = real & (real.cumsum(1) == 1)
        first = torch.from_numpy(np.flatnonzero(is_first))
        later = torch.from_numpy(np.flatnonzero(real & ~is_first))
        first, later = sent_together([first, later], device)
        return cls(first, later, start)


class WindowSums:
    """The sums of one site's states: of the first tokens of windows, and of all others.

    Products are taken in float64 about the mean of the states that came first. Nothing waits for
    the device.

    Cost: 0.625·n·width² multiply-adds; memory 8 bytes·width², and the first tokens.
    """

    def __init__(self, width: int, device: torch.device):
        self.width = width
        self.device = device
        self.first: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.tokens: list[Tokens] = []
        self.centre: Tensor | None = None
        self.unit = torch.zeros(width, dtype=torch.float64, device=device)  # Σx/‖x‖
        self.moved = torch.zeros(width, dtype=torch.float64, device=device)  # Σ(x − centre)
        # Σ(x − centre)(x − centre)ᵀ; the part below the panels stays zero
        self.scatter = torch.zeros(width, width, dtype=torch.float64, device=device)

    def update(self, states: Float[Tensor, "*n width"], tokens: Tokens) -> None:
        """Add the states of a batch."""
        rows = states.detach().flatten(0, -2).to(self.device)
        at_once = AT_ONCE if self.device.type == "cpu" else AT_ONCE_ON_DEVICES
        self.tokens.append(tokens)
        self.first.append(rows[tokens.first].double())
        for index in tokens.later.split(max(1, at_once // self.width)):
            self._add(rows[index].double())

    def _add(self, vectors: Tensor) -> None:
        norms = torch.linalg.vector_norm(vectors, dim=1)
        self.norms.append(norms)
        self.unit.addmv_(vectors.T, _inverse(norms))
        if self.centre is None:
            self.centre = vectors.mean(0)
        vectors -= self.centre
        self.moved += vectors.sum(0)
        for start, end in panel_spans(self.width):
            part = vectors[:, start:]
            self.scatter[start:end, start:].addmm_(part[:, : end - start].T, part)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The width, and the numbers of first and of other tokens."""
        first = sum(len(tokens.first) for tokens in self.tokens)
        later = sum(len(tokens.later) for tokens in self.tokens)
        return self.width, first, later

    def broken(self, length: int, site: str) -> NonFinite:
        """Return the error that names the first vector that is not finite, in windows of this
        length.
        """
        later = torch.cat([tokens.start + tokens.later for tokens in self.tokens])
        first = torch.cat([tokens.start + tokens.first for tokens in self.tokens])
        first_norms = torch.linalg.vector_norm(torch.cat(self.first), dim=1)
        norms = torch.cat([first_norms, *self.norms]).cpu()
        index = torch.cat([first, later]).cpu()[~norms.isfinite()]
        window, position = divmod(int(index.min()), length)
        return NonFinite(window, position, site)


def _inverse(norms: Tensor) -> Tensor:
    """Return 1/‖x‖; a vector of norm zero has no direction, and any number times it is zero."""
    return norms.clamp_min(torch.finfo(norms.dtype).tiny).reciprocal()


def clouds_of(
    sites: dict[str, WindowSums], length: int, *, spectral: bool
) -> Iterator[tuple[str, list[Cloud]]]:
    """Yield the clouds of all tokens and of those without the first of each window, site by site;
    of sums without first tokens one cloud.

    Sites of one shape are finished together on a device, as far as memory has room for their
    matrices.

    Args:
        length: tokens of a window.
        spectral: eigenvalues will be asked for.

    Raises:
        NonFinite: for a site whose states are not all finite.
    """
    for names in _groups(sites):
        group = [sites[name] for name in names]
        device_eigenvalues = spectral and group[0].device.type != "cpu"
        finished = _finished(group, eigenvalues=device_eigenvalues)
        for name, sums, clouds in zip(names, group, finished, strict=True):
            if not np.isfinite(clouds[0].norm_sum):
                raise sums.broken(length, name)
            yield name, clouds


def _groups(sites: dict[str, WindowSums]) -> Iterator[list[str]]:
    """Yield the sites, in their order, in groups that are finished together."""
    group: list[str] = []
    for name, sums in sites.items():
        room = 1 if sums.device.type == "cpu" else max(1, TOGETHER // (2 * sums.width**2))
        if group and (len(group) >= room or sites[group[0]].shape != sums.shape):
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _finished(group: Sequence[WindowSums], *, eigenvalues: bool) -> list[list[Cloud]]:
    """Return the clouds of sites of one shape; the CPU waits for their numbers once."""
    width, first_count, later_count = group[0].shape
    first = torch.stack([torch.cat(sums.first) for sums in group])  # [G, f, d]
    origin = group[0].unit.new_zeros(width)
    centre = torch.stack([origin if sums.centre is None else sums.centre for sums in group])
    unit = torch.stack([sums.unit for sums in group])
    moved = torch.stack([sums.moved for sums in group])
    scatter = torch.stack([sums.scatter for sums in group])
    norms = [torch.cat([sums.unit[:0], *sums.norms]) for sums in group]
    scalars = _scalars(torch.stack(norms))

    variants = [_Variant(later_count, unit, moved, scatter, scalars)]
    if first_count:
        first_norms = torch.linalg.vector_norm(first, dim=-1)
        directions = torch.bmm(_inverse(first_norms)[:, None], first)[:, 0]
        first = first - centre[:, None]
        everything = _Variant(
            later_count + first_count,
            unit + directions,
            moved + first.sum(1),
            torch.baddbmm(scatter, first.mT, first),
            scalars + _scalars(first_norms),
        )
        variants.insert(0, everything)

    parts = [variant.finished(centre, eigenvalues=eigenvalues) for variant in variants]
    numbers = torch.stack([part.numbers for part in parts]).cpu().numpy()
    clouds: list[list[Cloud]] = []
    for index in range(len(group)):
        clouds.append(
            [
                _cloud(variant.count, part.covariance[index], values[index], width)
                for variant, part, values in zip(variants, parts, numbers, strict=True)
            ]
        )
    return clouds


def _scalars(norms: Float[Tensor, "G n"]) -> Float[Tensor, "G 3"]:
    """Return the number of norms that are zero, Σ‖x‖ and Σ‖x‖² of each site."""
    zeros = (norms == 0).sum(1, dtype=norms.dtype)
    return torch.stack([zeros, norms.sum(1), norms.square().sum(1)], 1)


@dataclass(frozen=True)
class _Finished:
    """The covariances [G, d, d] of sites, and what the CPU needs in one tensor, by site: scalars
    [3], Σx/‖x‖ and the mean [d], variances [d] and eigenvalues ascending [d] or none.
    """

    covariance: Tensor
    numbers: Tensor


@dataclass(frozen=True)
class _Variant:
    """The sums of one set of tokens at several sites, as those of `WindowSums`."""

    count: int
    unit: Tensor
    moved: Tensor
    scatter: Tensor
    scalars: Tensor

    def finished(self, centre: Tensor, *, eigenvalues: bool) -> _Finished:
        count = max(1, self.count)
        shift = self.moved / count
        mean = centre + shift
        upper = torch.baddbmm(
            self.scatter, shift[..., None], shift[:, None], beta=1 / count, alpha=-1.0
        ).triu_()
        covariance = upper + upper.triu(1).mT
        parts = [self.scalars, self.unit, mean, covariance.diagonal(dim1=1, dim2=2)]
        if eigenvalues:
            # A decomposition fails where an entry is not finite, which the CPU sees afterwards.
            finite = self.scalars[:, 1].isfinite()[:, None, None]
            moment = torch.baddbmm(covariance, mean[..., None], mean[:, None])
            parts.append(torch.linalg.eigvalsh(moment.where(finite, 0.0), UPLO="U"))
        return _Finished(covariance, torch.cat(parts, 1))


def _cloud(count: int, covariance: Tensor, numbers: npt.NDArray[np.float64], width: int) -> Cloud:
    scalars = numbers[:3]
    ends = [width, 2 * width, 3 * width]
    unit, mean, variances, eigenvalues = np.split(numbers[3:], ends)
    cloud = Cloud(
        count=count,
        zeros=int(scalars[0]) if np.isfinite(scalars[0]) else 0,
        unit_sum=unit,
        vector_sum=count * mean,
        norm_sum=float(scalars[1]),
        square_sum=float(scalars[2]),
        centred=covariance,
    )
    # These are properties that are computed once, and known already.
    vars(cloud)["variances"] = variances
    far = cloud.variance < NEAR * float(mean @ mean)
    if len(eigenvalues) and not far:
        vars(cloud)["energies"] = np.clip(eigenvalues[::-1], 0.0, None)
    return cloud
