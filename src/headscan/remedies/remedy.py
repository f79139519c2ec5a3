"""Remedies after the fact: maps that make a cloud rounder, fitted in one pass over it, applied to
any vectors.
"""

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from headscan.run import BadInput, Option, Registry, Settings
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats


@dataclass(frozen=True, repr=False)
class Remedy:
    """A fitted map of vectors [n, d] to [n, k], x ↦ (x − shift)·matrix + offset, by the method
    `name`.

    shift [d], matrix [d, k]; a map that was read has an offset [k].

    >>> remedy = remedies(Cloud.of_rows([[1.0, 1.0], [3.0, 1.0]]))["centre"]
    >>> remedy
    Remedy(centre: 2 to 2 dimensions)
    >>> remedy(np.array([[1.0, 1.0]])).tolist()
    [[-1.0, 0.0]]
    """

    name: str
    shift: Floats
    matrix: Floats
    offset: Floats | None = None

    @property
    def widths(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def bias(self) -> Floats:
        """What stands behind the product x·matrix, [k]."""
        return np.asarray(
            -(self.shift @ self.matrix) + (0.0 if self.offset is None else self.offset)
        )

    def __call__(self, rows: npt.ArrayLike) -> Floats:
        rows = np.asarray(rows, dtype=np.float64)
        width = rows.shape[-1] if rows.ndim else 0
        if rows.ndim == 0 or width != self.widths[0]:
            raise BadInput(
                f"The remedy '{self.name}' was fitted at width {self.widths[0]}, not {width}."
            )
        mapped: Floats = (rows - self.shift) @ self.matrix
        return mapped if self.offset is None else mapped + self.offset

    def __repr__(self) -> str:
        return f"Remedy({self.name}: {self.widths[0]} to {self.widths[1]} dimensions)"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write config.json and model.safetensors (float32) into a folder, as
        sentence-transformers' `Dense` module. `Remedy.load(folder)` reads them, and so does
        `sentence_transformers.models.Dense.load(folder)`.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        config = {
            "in_features": self.widths[0],
            "out_features": self.widths[1],
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        (path / "config.json").write_text(json.dumps(config, indent=1))
        weight = np.ascontiguousarray(self.matrix.T, dtype=np.float32)
        tensors = {"linear.weight": weight, "linear.bias": self.bias.astype(np.float32)}
        save_file(tensors, path / "model.safetensors", metadata={"remedy": self.name})
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Remedy":
        """Return the map that `save` wrote, in float32; raise BadInput where there is none."""
        path = Path(folder) / "model.safetensors"
        try:
            tensors = {name: value.astype(np.float64) for name, value in load_file(path).items()}
            with safe_open(path, "numpy") as file:
                name = (file.metadata() or {}).get("remedy", Path(folder).name)
            weight = tensors["linear.weight"]
            return cls(name, np.zeros(weight.shape[1]), weight.T, tensors["linear.bias"])
        except Exception:
            raise BadInput(f"There is no saved remedy in {folder}.") from None


class RemedyMethod(ABC):
    """A way to make a cloud rounder: a frozen dataclass, in a file of headscan/remedies or of a
    plug-in.
    """

    @abstractmethod
    def fit(self, cloud: Cloud) -> Remedy | None:
        """The remedy for the cloud that these sums are of; None where it has none."""


REMEDIES: Registry[type[RemedyMethod]] = Registry("remedy", "headscan.remedies.remedy")
"""Every remedy by its name."""


def remedies(cloud: Cloud) -> dict[str, Remedy]:
    """All of them, fitted on one cloud, by name, but those that it has none of."""
    fitted = {name: method().fit(cloud) for name, method in REMEDIES.items()}
    return {name: remedy for name, remedy in fitted.items() if remedy is not None}


# ---- The remedies: centring, scaling, whitening in three ways, and what takes directions away.


# Variances up to this share of the largest are taken for rounding.
ROUNDING = 1e-10


def _components(cloud: Cloud) -> tuple[Floats, Floats]:
    """The covariance's eigenvalues, largest first, and its eigenvectors as columns, without those
    that are rounding.
    """
    values, vectors = np.linalg.eigh(cloud.covariance)
    values = np.clip(values[::-1], 0, None)
    vectors = vectors[:, ::-1]
    rank = int((values > ROUNDING * values[0]).sum())
    return values[:rank], vectors[:, :rank]


@REMEDIES.register("all-but-the-top")
class AllButTheTop(RemedyMethod, Settings):
    """Centre, then take the top principal components out (Mu and Viswanath 2018)."""

    remove: Annotated[
        int | None, Option("Components to take out. Default: a hundredth of all.", low=0)
    ] = None

    def fit(self, cloud: Cloud) -> Remedy:
        width = cloud.width
        top = _components(cloud)[1][
            :, : max(1, width // 100) if self.remove is None else self.remove
        ]
        return Remedy("all-but-the-top", cloud.mean, np.eye(width) - top @ top.T)


@REMEDIES.register("centre")
class Centre(RemedyMethod, Settings):
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is
    near 0.
    """

    def fit(self, cloud: Cloud) -> Remedy:
        return Remedy("centre", cloud.mean, np.eye(cloud.width))


@REMEDIES.register("standardise")
class Standardise(RemedyMethod, Settings):
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions
    become zero.
    """

    def fit(self, cloud: Cloud) -> Remedy:
        deviation = np.sqrt(np.clip(cloud.variances, 0, None))
        varies = deviation > ROUNDING * deviation.max(initial=0.0)
        scale = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
        return Remedy("standardise", cloud.mean, np.diag(scale))


@REMEDIES.register("whiten")
class Whiten(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^−½ of the largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown
    up; the map's output has as many dimensions as remain. The covariance of the fitted cloud
    becomes the identity. Cosines are those of ZCA, which turns the result back by a rotation.
    """

    keep: Annotated[int | None, Option("Components to keep. Default: all.", low=1)] = None

    def fit(self, cloud: Cloud) -> Remedy:
        values, vectors = _components(cloud)
        components = min(self.keep or len(values), len(values))
        return Remedy("whiten", cloud.mean, vectors[:, :components] / np.sqrt(values[:components]))


@REMEDIES.register("whiten-shrunk")
class WhitenShrunk(RemedyMethod, Settings):
    """ZCA whitening of (1 − s)C + s·(tr C/d)·I: few vectors do not blow up directions they know
    little of (the shrinkage of Ledoit and Wolf 2004, s given; the ε of soft-ZCA, Diera et al.
    2024).
    """

    shrinkage: Annotated[float, Option("s, 0 to 1.", above=0, high=1)] = 0.1

    def fit(self, cloud: Cloud) -> Remedy | None:
        covariance = cloud.covariance
        width = cloud.width
        ball = float(np.trace(covariance)) / width
        if not ball > 0:  # all vectors are one
            return None
        values, vectors = np.linalg.eigh(
            (1 - self.shrinkage) * covariance + self.shrinkage * ball * np.eye(width)
        )
        return Remedy("whiten-shrunk", cloud.mean, (vectors / np.sqrt(values)) @ vectors.T)


@REMEDIES.register("whiten-softly")
class WhitenSoftly(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^(−power/2)·Vᵀ: between centring (power 0) and ZCA whitening (power 1)."""

    power: Annotated[float, Option("Of whitening, 0 to 1.", low=0, high=1)] = 0.5

    def fit(self, cloud: Cloud) -> Remedy:
        values, vectors = _components(cloud)
        return Remedy(
            "whiten-softly", cloud.mean, (vectors * values ** (-self.power / 2)) @ vectors.T
        )
