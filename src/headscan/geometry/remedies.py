"""Remedies after the fact: affine maps that make a cloud rounder, fitted on its sums, applied to any vectors.

Every one of them is y = (x − μ)A with A [d, k], so that each can be saved as one matrix, applied in one product, and
loaded by sentence-transformers as an ordinary `Dense` module, with no code of headscan's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from headscan.errors import BadInput
from headscan.statistics import Cloud, Tally

__all__ = ["Remedy", "all_but_the_top", "centre", "drop_dimensions", "remedies", "standardise", "whiten"]

DENSE = "sentence_transformers.models.Dense"


@dataclass(frozen=True)
class Remedy:
    """The map x ↦ (x − shift)·matrix, with shift [d] and matrix [d, k], and its `name`.

    >>> remedy = centre(Cloud.of_rows([[1.0, 1.0], [3.0, 1.0]]))
    >>> remedy(np.array([[1.0, 1.0]])).tolist()
    [[-1.0, 0.0]]
    """

    name: str
    shift: npt.NDArray[np.float64]
    matrix: npt.NDArray[np.float64]

    def __call__(self, rows) -> npt.NDArray[np.float64]:
        """The mapped rows [n, k], float64. Raises BadInput where the width is another."""
        rows = np.asarray(rows, dtype=np.float64)
        if rows.shape[-1] != len(self.shift):
            raise BadInput(f"The remedy '{self.name}' was fitted at width {len(self.shift)}, not {rows.shape[-1]}.")
        return (rows - self.shift) @ self.matrix

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the map as a sentence-transformers `Dense` module: config.json and model.safetensors (float32).

        Load it by `sentence_transformers.models.Dense.load(folder)`, or by `Remedy.load(folder)`.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        config = {
            "in_features": self.matrix.shape[0],
            "out_features": self.matrix.shape[1],
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        (path / "config.json").write_text(json.dumps(config, indent=1))
        bias = -(self.shift @ self.matrix)
        save_file(
            {
                "linear.weight": np.ascontiguousarray(self.matrix.T, dtype=np.float32),
                "linear.bias": bias.astype(np.float32),
            },
            path / "model.safetensors",
            metadata={"remedy": self.name},
        )
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Remedy:
        """The map that `save` wrote, in float32's precision, its offset moved behind the product: shift is zero only
        where the bias was. Raises BadInput where there is none."""
        path = Path(folder) / "model.safetensors"
        try:
            found = load_file(path)
            weight, bias = found["linear.weight"].astype(np.float64), found["linear.bias"].astype(np.float64)
        except (OSError, KeyError):
            raise BadInput(f"There is no saved remedy in {folder}.") from None
        return _Biased(Path(folder).name, np.zeros(weight.shape[1]), weight.T, bias)

    def append_to(self, model: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
        """Copy a saved sentence-transformers model to `out` with this map as one more module, before a last Normalize.

        `SentenceTransformer(out)` then gives remedied embeddings. Raises BadInput where `model` has no modules.json.
        """
        source, target = Path(model), Path(out)
        try:
            modules = json.loads((source / "modules.json").read_text())
        except (OSError, ValueError):
            raise BadInput(f"{source} is no saved sentence-transformers model: it has no modules.json.") from None
        shutil.copytree(source, target, dirs_exist_ok=True)
        index = len(modules)
        name = f"{index}_Dense"
        self.save(target / name)
        modules.append({"idx": index, "name": str(index), "path": name, "type": DENSE})
        if modules[index - 1]["type"].endswith("Normalize"):
            again = f"{index + 1}_Normalize"
            (target / again).mkdir(exist_ok=True)
            for file in (source / modules[index - 1]["path"]).glob("*"):
                shutil.copy(file, target / again / file.name)
            modules.append(
                {"idx": index + 1, "name": str(index + 1), "path": again, "type": modules[index - 1]["type"]}
            )
        (target / "modules.json").write_text(json.dumps(modules, indent=1))
        return target


@dataclass(frozen=True)
class _Biased(Remedy):
    """A map read from a file, where shift and matrix are already one bias."""

    bias: npt.NDArray[np.float64]

    def __call__(self, rows) -> npt.NDArray[np.float64]:
        return super().__call__(rows) + self.bias


def centre(cloud: Cloud) -> Remedy:
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is near 0."""
    return Remedy("centre", cloud.mean, np.eye(cloud.width))


def _components(cloud: Cloud) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    values, vectors = np.linalg.eigh(cloud.covariance)
    return np.clip(values[::-1], 0, None), vectors[:, ::-1]


def all_but_the_top(cloud: Cloud, *, remove: int | None = None) -> Remedy:
    """Centre, then take the top principal components out (Mu and Viswanath 2018); by default max(1, d/100) of them."""
    remove = max(1, cloud.width // 100) if remove is None else remove
    top = _components(cloud)[1][:, :remove]
    return Remedy("all-but-the-top", cloud.mean, np.eye(cloud.width) - top @ top.T)


def whiten(cloud: Cloud, *, keep: int | None = None) -> Remedy:
    """(x − μ)·V·diag(λ)^−½ of the `keep` largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown up; the map's output
    has as many dimensions as remain. The covariance of the fitted cloud becomes the identity.
    """
    values, vectors = _components(cloud)
    kept = min(keep or cloud.width, int((values > 1e-10 * values[0]).sum()))
    return Remedy("whiten", cloud.mean, vectors[:, :kept] / np.sqrt(values[:kept]))


def standardise(cloud: Cloud) -> Remedy:
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions become zero."""
    deviation = np.sqrt(np.clip(np.diag(cloud.covariance), 0, None))
    small = deviation <= 1e-10 * deviation.max(initial=0.0)
    return Remedy("standardise", cloud.mean, np.diag(np.where(small, 0.0, 1 / np.where(small, 1.0, deviation))))


def drop_dimensions(cloud: Cloud, dimensions) -> Remedy:
    """Set the given (rogue) coordinates to zero; nothing is centred."""
    kept = np.ones(cloud.width)
    kept[list(dimensions)] = 0.0
    return Remedy("without-rogue", np.zeros(cloud.width), np.diag(kept))


def remedies(cloud: Cloud, directions: Tally | None = None, *, rogue: int = 3) -> dict[str, Remedy]:
    """All of them, fitted on one cloud, by name; the removal of rogue dimensions where their sums are given."""
    from headscan.geometry.rogue import rogue_dimensions

    makers: list[Callable[[Cloud], Remedy]] = [centre, all_but_the_top, whiten, standardise]
    found = [maker(cloud) for maker in makers]
    if directions is not None:
        found.append(drop_dimensions(cloud, [row["dimension"] for row in rogue_dimensions(directions, rogue)]))
    return {remedy.name: remedy for remedy in found}
