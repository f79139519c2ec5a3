"""Compressed vectors: truncation, int8, bits and product quantisation, fitted to a byte budget.

Each is a linear map, a scaling to length 1 and, but for truncation, a code of one byte for each
part of the mapped vector. int8 and bits are product quantisation with given codebooks, so that one
file and one function describe them all.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headscan.remedies.remedy import Centre, Remedy, Whiten
from headscan.remedies.retrieval import directions
from headscan.run import BadInput
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats

PREPARATIONS = ("plain", "centre", "rotate", "whiten")
"""Maps before the code; `rotate` is the principal components, turned by a random rotation."""

CODES = ("float32", "int8", "binary", "pq")
"""Truncation alone, or a code."""

CENTROIDS = 256
ROUNDS = 10
"""Rounds of Lloyd's algorithm."""

LEFT_OUT = 0.05
"""Share of the dimensions that product quantisation may leave out, so that its parts are equal."""

CHOICES = tuple(f"{preparation}+{code}" for preparation in PREPARATIONS for code in CODES)
"""The names of all compressions."""

Codes = npt.NDArray[np.uint8] | npt.NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class Compression:
    """A fitted compression of vectors [n, d] to codes [n, m].

    Attributes:
        name: of the preparation and the code, as in `CHOICES`.
        remedy: the linear map to k dimensions.
        codebooks: for each of m parts of the mapped vector the values of its codes
            [m, 256, k / m]; None: the k numbers are stored in float32.
    """

    name: str
    remedy: Remedy
    codebooks: Floats | None

    @property
    def dimensions(self) -> int:
        return self.remedy.widths[1]

    @property
    def bytes(self) -> int:
        """Return the bytes of a compressed vector."""
        return 4 * self.dimensions if self.codebooks is None else len(self.codebooks)

    def queries(self, rows: npt.ArrayLike) -> Floats:
        """Return the mapped vectors at length 1 [n, k], which are not compressed.

        The score of a document is the product of a query with `decode(codes)`.
        """
        return directions(self.remedy(rows))

    def encode(self, rows: npt.ArrayLike) -> Codes:
        """Return the codes of vectors: of each part the nearest value of its codebook."""
        units = self.queries(rows)
        if self.codebooks is None:
            return units.astype(np.float32)
        if self.name.endswith("binary"):
            return np.packbits(units > 0, axis=1)
        parts = np.split(units, len(self.codebooks), axis=1)
        codes = np.empty((len(units), len(parts)), dtype=np.uint8)
        for number, (part, codebook) in enumerate(zip(parts, self.codebooks, strict=True)):
            codes[:, number] = _nearest(part, codebook)
        return codes

    def decode(self, codes: Codes) -> Floats:
        """Return the vectors that codes stand for [n, k]."""
        if self.codebooks is None:
            return codes.astype(np.float64)
        values = self.codebooks[np.arange(len(self.codebooks)), codes]
        return np.asarray(values.reshape(len(codes), -1))

    def scores(self, query: Floats, codes: Codes) -> Floats:
        """Return the product of one of `queries` [k] with each decoded vector [n]."""
        if self.codebooks is None:
            return np.asarray(codes @ query.astype(np.float32))
        parts = query.reshape(len(self.codebooks), -1)
        products = np.einsum("mcs,ms->mc", self.codebooks, parts)
        return np.asarray(products[np.arange(len(products)), codes].sum(1))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `name`, `shift` [d], `matrix` [d, k], `codebooks` and, of int8, `ranges` [2, k].

        `ranges` are those of sentence-transformers' `quantize_embeddings`; `codebooks` lie as the
        centroids of faiss' `ProductQuantizer`.
        """
        arrays: dict[str, Any] = {
            "name": self.name,
            "shift": self.remedy.shift,
            "matrix": self.remedy.matrix,
        }
        if self.codebooks is not None:
            arrays["codebooks"] = self.codebooks
        if self.name.endswith("int8"):
            assert self.codebooks is not None
            ends = self.codebooks[:, [0, -1], 0].T
            arrays["ranges"] = ends - (ends[1] - ends[0]) / (2 * (CENTROIDS - 1))
        np.savez(path, **arrays)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Compression":
        """Return the compression that `save` wrote; raise BadInput where there is none."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                name = str(arrays["name"])
                remedy = Remedy(name, arrays["shift"], arrays["matrix"])
                return cls(name, remedy, arrays.get("codebooks"))
        except Exception:
            raise BadInput(f"{path} holds no saved compression.") from None


def compressions(cloud: Cloud, sample: Floats, budget: int, seed: int) -> Iterator[Compression]:
    """Yield each compression with as many bytes a vector as the budget allows.

    Maps are fitted on the cloud, codebooks on the sample. A choice that the budget is too small for
    is left out.

    Raises:
        BadInput: for a budget that float32 vectors fit.

    >>> rows = np.random.default_rng(0).standard_normal((300, 16))
    >>> fitted = {each.name: each for each in compressions(Cloud.of_rows(rows), rows, 8, 0)}
    >>> {code: fitted[f"centre+{code}"].dimensions for code in CODES}
    {'float32': 2, 'int8': 8, 'binary': 16, 'pq': 16}
    """
    if budget >= 4 * cloud.width:
        raise BadInput(
            f"--compress {budget} compresses nothing: a vector of width {cloud.width} in float32 "
            f"has {4 * cloud.width} bytes."
        )
    for preparation in PREPARATIONS:
        full = _prepared(cloud, preparation)
        width = full.widths[1]
        dimensions = {
            "float32": min(budget // 4, width),
            "int8": min(budget, width),
            "binary": min(budget, width // 8) * 8,
            "pq": width - width % _parts(width, budget),
        }
        for code in CODES:
            if dimensions[code] == 0:
                continue
            name = f"{preparation}+{code}"
            remedy = _truncated(preparation, full, dimensions[code], seed)
            units = directions(remedy(sample))
            yield Compression(name, remedy, _codebooks(code, units, budget, seed))


def _prepared(cloud: Cloud, preparation: str) -> Remedy:
    """Return the map of a preparation before truncation."""
    if preparation == "plain":
        return Remedy(preparation, np.zeros(cloud.width), np.eye(cloud.width))
    if preparation == "centre":
        return Centre().fit(cloud)
    return Whiten().fit(cloud)


def _truncated(preparation: str, full: Remedy, dimensions: int, seed: int) -> Remedy:
    """Return the map to the first dimensions; `rotate` turns its components after truncation."""
    matrix = full.matrix[:, :dimensions]
    if preparation == "rotate":
        components = matrix / np.linalg.norm(matrix, axis=0)
        draws = np.random.default_rng(seed).standard_normal((dimensions, dimensions))
        matrix = components @ np.linalg.qr(draws)[0]
    return Remedy(preparation, full.shift, matrix)


def _codebooks(code: str, units: Floats, budget: int, seed: int) -> Floats | None:
    """Return the values of a code for each part of vectors of length 1 [n, k]."""
    width = units.shape[1]
    if code == "float32":
        return None
    if code == "int8":
        lowest = units.min(0)
        step = (units.max(0) - lowest) / (CENTROIDS - 1)
        step = np.where(step > 0, step, 1.0)
        levels = lowest[:, None] + (np.arange(CENTROIDS) + 0.5) * step[:, None]
        return np.asarray(levels[:, :, None])
    if code == "binary":
        bits = np.unpackbits(np.arange(CENTROIDS, dtype=np.uint8)[:, None], axis=1)
        signs = (2.0 * bits - 1) / width**0.5
        return np.repeat(signs[None], width // 8, axis=0)
    parts = np.split(units, _parts(width, budget), axis=1)
    return np.stack([_centroids(part, seed) for part in parts])


def _parts(width: int, budget: int) -> int:
    """Return the number of equal parts of a vector: the most that leave few dimensions out.

    >>> _parts(768, 100), _parts(764, 96)
    (96, 95)
    """
    most = min(budget, max(1, width // 2))
    return max(parts for parts in range(1, most + 1) if width % parts <= LEFT_OUT * width)


def _centroids(rows: Floats, seed: int) -> Floats:
    """Return 256 centroids of rows by Lloyd's algorithm; those without rows stay where they were.

    They begin at drawn rows; fewer than 256 rows are repeated.
    """
    drawn = np.random.default_rng(seed).permutation(len(rows))
    centroids = torch.from_numpy(rows[np.resize(drawn, CENTROIDS)])
    vectors = torch.from_numpy(rows)
    for _ in range(ROUNDS):
        nearest = torch.from_numpy(_nearest(rows, centroids.numpy()))
        counts = torch.bincount(nearest, minlength=CENTROIDS)[:, None]
        sums = torch.zeros_like(centroids).index_add_(0, nearest, vectors)
        centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
    return centroids.numpy()


def _nearest(rows: Floats, codebook: Floats) -> npt.NDArray[np.int64]:
    """Return the number of the nearest value for each row; of two as near, the first."""
    if codebook.shape[1] == 1 and bool((np.diff(codebook[:, 0]) > 0).all()):
        values = codebook[:, 0]
        return np.searchsorted((values[1:] + values[:-1]) / 2, rows[:, 0], side="right")
    closeness = torch.from_numpy(rows) @ torch.from_numpy(codebook.T)
    closeness -= torch.from_numpy((codebook**2).sum(1) / 2)
    return np.asarray(closeness.argmax(1))
