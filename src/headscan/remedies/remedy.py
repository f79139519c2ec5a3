"""Remedies after the fact: affine maps that make a cloud rounder, fitted on its sums, applied to any vectors.

Every one of them is y = (x − μ)A with A [d, k], so that each can be saved as one matrix, applied in one product, and
loaded by sentence-transformers as an ordinary `Dense` module, with no code of headscan's.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from headscan.run import BadInput, Registry
from headscan.statistics import Cloud, Tally

__all__ = ["REMEDIES", "Remedy", "RemedyMethod", "remedies"]

DENSE = "sentence_transformers.models.Dense"


@dataclass(frozen=True, repr=False)
class Remedy:
    """The map x ↦ (x − shift)·matrix, with shift [d] and matrix [d, k], and its `name`.

    >>> remedy = remedies(Cloud.of_rows([[1.0, 1.0], [3.0, 1.0]]))["centre"]
    >>> remedy
    Remedy(centre: 2 to 2 dimensions)
    >>> remedy(np.array([[1.0, 1.0]])).tolist()
    [[-1.0, 0.0]]
    """

    name: str
    shift: npt.NDArray[np.float64]
    matrix: npt.NDArray[np.float64]

    def __call__(self, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The mapped rows [n, k], float64. Raises BadInput where the width is another."""
        rows = np.asarray(rows, dtype=np.float64)
        if rows.shape[-1] != len(self.shift):
            raise BadInput(f"The remedy '{self.name}' was fitted at width {len(self.shift)}, not {rows.shape[-1]}.")
        return (rows - self.shift) @ self.matrix

    def __repr__(self) -> str:
        return f"Remedy({self.name}: {self.matrix.shape[0]} to {self.matrix.shape[1]} dimensions)"

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


@dataclass(frozen=True, repr=False)
class _Biased(Remedy):
    """A map read from a file, where shift and matrix are already one bias."""

    bias: npt.NDArray[np.float64]

    def __call__(self, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return super().__call__(rows) + self.bias


class RemedyMethod(ABC):
    """A way to make a cloud rounder: a frozen dataclass, in a file of headscan/remedies/methods or of a plug-in."""

    @abstractmethod
    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy | None:
        """The remedy for this cloud; None where it needs the sums of `DirectionTally`, `directions`, and has none."""


REMEDIES: Registry[type[RemedyMethod]] = Registry("remedy", "headscan.remedies.methods")
"""Every remedy by its name."""


def remedies(cloud: Cloud, directions: Tally | None = None) -> dict[str, Remedy]:
    """All of them, fitted on one cloud, by name; the removal of rogue dimensions where their sums are given."""
    found = {name: method().fit(cloud, directions) for name, method in REMEDIES.items()}
    return {name: remedy for name, remedy in found.items() if remedy is not None}
