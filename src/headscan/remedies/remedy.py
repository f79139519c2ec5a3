"""Remedies after the fact: maps that make a cloud rounder, fitted in one pass over it, applied to any vectors."""

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from headscan.run import BadInput, Registry
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats


@dataclass(frozen=True, repr=False)
class Remedy:
    """A fitted map of vectors [n, d] to [n, k], x ↦ (x − shift)·matrix + offset, by the method `name`.

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
        return np.asarray(-(self.shift @ self.matrix) + (0.0 if self.offset is None else self.offset))

    def __call__(self, rows: npt.ArrayLike) -> Floats:
        rows = np.asarray(rows, dtype=np.float64)
        width = rows.shape[-1] if rows.ndim else 0
        if rows.ndim == 0 or width != self.widths[0]:
            raise BadInput(f"The remedy '{self.name}' was fitted at width {self.widths[0]}, not {width}.")
        mapped: Floats = (rows - self.shift) @ self.matrix
        return mapped if self.offset is None else mapped + self.offset

    def __repr__(self) -> str:
        return f"Remedy({self.name}: {self.widths[0]} to {self.widths[1]} dimensions)"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write config.json and model.safetensors (float32) into a folder, as sentence-transformers' `Dense` module.
        `Remedy.load(folder)` reads them, and so does `sentence_transformers.models.Dense.load(folder)`."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        config = {
            "in_features": self.widths[0], "out_features": self.widths[1], "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        }  # fmt: skip
        (path / "config.json").write_text(json.dumps(config, indent=1))
        weight = np.ascontiguousarray(self.matrix.T, dtype=np.float32)
        tensors = {"linear.weight": weight, "linear.bias": self.bias.astype(np.float32)}
        save_file(tensors, path / "model.safetensors", metadata={"remedy": self.name})
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Remedy":
        """The map that `save` wrote, in float32's precision. Raises BadInput where there is none."""
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
    """A way to make a cloud rounder: a frozen dataclass, in a file of headscan/remedies/methods or of a plug-in."""

    @abstractmethod
    def fit(self, cloud: Cloud) -> Remedy | None:
        """The remedy for the cloud that these sums are of; None where it has none."""


REMEDIES: Registry[type[RemedyMethod]] = Registry("remedy", "headscan.remedies.methods")
"""Every remedy by its name."""


def remedies(cloud: Cloud) -> dict[str, Remedy]:
    """All of them, fitted on one cloud, by name, but those that it has none of."""
    fitted = {name: method().fit(cloud) for name, method in REMEDIES.items()}
    return {name: remedy for name, remedy in fitted.items() if remedy is not None}
