"""The matrices of a model, one at a time: of safetensors files, a live model, a .gguf file, two
checkpoints, a LoRA adapter.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model import Lens
from headscan.model.adapters import PLAIN, read_adapter
from headscan.model.finding import find_source
from headscan.model.identity import Origin
from headscan.model.settings import choose_device
from headscan.model.weights import ADAPTER_CONFIG, stored_tensors
from headscan.run import BadInput, ModelRecord
from headscan.statistics.spectra import PIECE, energies
from headscan.statistics.uncertainty import Floats

LEAST = 16  # shorter sides have no spectrum to speak of
ModelWeights = TypeAliasType("ModelWeights", str | os.PathLike[str] | nn.Module | Lens)


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix whose energies `measure` reads and computes."""

    name: str
    shape: tuple[int, int]
    measure: Callable[[], Floats]


@dataclass
class OpenedWeights:
    """The record (of a difference the base's, too), tensors [n, m] or [k, n, m] by name, matrices,
    and what was left out.

    difference: whether the matrices are what was added to a model: those of two checkpoints, or an
        adapter's.
    chosen: the device that computes; None: by the tensors.
    """

    records: list[ModelRecord]
    tensors: dict[str, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    matrices: list[StoredMatrix] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    difference: bool = False
    chosen: torch.device | None = None

    @property
    def device(self) -> torch.device:
        """The device that computes; where none is chosen, the first one that is not the CPU and
        that holds a tensor, of files the CPU.
        """
        if self.chosen is not None:
            return self.chosen
        tensors = (tensor for _, tensor in self.tensors.values() if isinstance(tensor, Tensor))
        return next(
            (tensor.device for tensor in tensors if tensor.device.type != "cpu"),
            torch.device("cpu"),
        )

    def add(self, name: str, shape: tuple[int, ...], tensor: Any, plain: bool) -> None:
        # a kernel of one place, as a masked mixer's, is a matrix
        shape = shape[:2] if shape[2:] == (1,) else shape
        if len(shape) in (2, 3) and min(shape[-2:]) >= LEAST and plain:
            self.tensors[name] = (shape, tensor)
        elif len(shape) > 1 and not plain:
            self.notes.append(
                f"{name} is left out: its numbers are no plain floating-point numbers."
            )


def open_weights(
    model: ModelWeights, base: ModelWeights | None = None, device: str = "auto"
) -> OpenedWeights:
    """The matrices of a model with a short side of 16 at least, or of its difference to a base;
    none is read yet.

    Of a folder with a LoRA adapter the matrices are what it adds to each of its model's. Raises
    BadInput where there is no matrix, or none that the base has, too. Of a folder no code of the
    model runs. `device` computes the spectra; "auto": the one that holds the tensors, else the
    fastest that has float64.
    """
    folders = [
        Path(model_or_base).expanduser()
        for model_or_base in (model, base)
        if isinstance(model_or_base, str | os.PathLike)
    ]
    adapters = [folder for folder in folders if (folder / ADAPTER_CONFIG).is_file()]
    if adapters and base is not None:
        raise BadInput(
            f"'{adapters[0]}' is an adapter, which is a difference from its base already: leave "
            "out --base."
        )
    if adapters:
        return _adapter(adapters[0])
    opened = _opened(model)
    computing = _computing(opened, device)
    opened.chosen = computing
    opened.difference = base is not None
    base_tensors = opened.tensors
    if base is not None:
        opened_base = _opened(base)
        base_tensors = {
            name: item
            for name, item in opened_base.tensors.items()
            if opened.tensors.get(name, ((),))[0] == item[0]
        }
        opened.records += opened_base.records
        if apart := len(opened.tensors | opened_base.tensors) - len(base_tensors):
            opened.notes.append(
                f"{apart} tensors are not in both models in the same shape, and are left out."
            )
    for name, (shape, tensor) in opened.tensors.items():
        if name in base_tensors:
            start = None if base is None else base_tensors[name][1]
            for i in range(shape[0]) if len(shape) == 3 else [None]:  # experts
                label = name if i is None else f"{name}[{i}]"
                size = (shape[-2], shape[-1])
                opened.matrices.append(
                    StoredMatrix(label, size, partial(_measured, size, tensor, start, i, computing))
                )
    if not opened.matrices:
        both = "" if base is None else " that the base has in the same shape"
        raise BadInput(
            f"'{opened.records[0].name}' has no matrix with a short side of {LEAST} at least{both}."
        )
    return opened


def _computing(opened: OpenedWeights, device: str) -> torch.device:
    """Return the device that computes spectra: one that has float64."""
    holding = opened.device
    if device != "auto" or holding.type == "cpu":
        holding = choose_device(device)
    return torch.device("cpu") if holding.type == "mps" else holding


def _measured(
    shape: tuple[int, int], tensor: Any, base: Any, i: int | None, device: torch.device
) -> Floats:
    step = PIECE if shape[0] >= shape[1] else shape[0]

    def rows(stored: Any, start: int) -> Tensor:
        part = slice(start, start + step)
        block: Tensor = stored[part].flatten(1) if i is None else stored[i : i + 1][0, part]
        block = block.to(device)
        return block if base is None else block.double()

    def pieces() -> Iterator[Tensor]:
        for start in range(0, shape[0], step):
            piece = rows(tensor, start)
            if base is not None:
                piece = piece - rows(base, start)
            yield piece if shape[0] >= shape[1] else piece.T

    return energies(pieces())


def _opened(model: ModelWeights) -> OpenedWeights:
    if not isinstance(model, nn.Module | Lens):
        source = find_source(os.fspath(model))
        if source.gguf is None and source.weight_files:
            revision = source.snapshot.name if source.snapshot else source.revision
            return _files(
                source.name,
                source.weight_files,
                Origin(source.reference, revision, source.files(weights=True)),
            )
        model = Lens.load(model, device="cpu")
    lens = model if isinstance(model, Lens) else Lens(model)
    opened = OpenedWeights([lens.provenance()])
    tensors = lens.model.state_dict()
    # tied tables are one
    names_by_storage = {
        (tensor.data_ptr(), tensor.shape): name for name, tensor in reversed(tensors.items())
    }
    for name, tensor in tensors.items():
        if names_by_storage[tensor.data_ptr(), tensor.shape] == name:
            opened.add(name, tuple(tensor.shape), tensor, tensor.is_floating_point())
    return opened


def _files(name: str, files: tuple[Path, ...], origin: Origin) -> OpenedWeights:
    opened = OpenedWeights([_record(name, parts := dict(stored_tensors(files)), origin)])
    for key, part in parts.items():
        opened.add(key, tuple(part.get_shape()), part, part.get_dtype() in PLAIN)
    return opened


def _record(name: str, parts: dict[str, Any], origin: Origin) -> ModelRecord:
    return ModelRecord(
        name=name,
        source=origin.source,
        revision=origin.revision,
        sha256=origin.sha256(),
        parameters=sum(prod(part.get_shape()) for part in parts.values()),
        dtype=", ".join(sorted({part.get_dtype() for part in parts.values()})),
    )


def _adapter(folder: Path) -> OpenedWeights:
    """Return what an adapter adds to each matrix."""
    adapter = read_adapter(folder)
    record = _record(folder.resolve().name, adapter.parts, adapter.origin)
    opened = OpenedWeights([record], difference=True)
    ranks = []
    for factors in adapter.factors:
        if factors.rank and min(factors.shape) >= LEAST:
            measure = partial(_product_energies, factors.B, factors.A, factors.scale)
            opened.matrices.append(StoredMatrix(f"{factors.name}.weight", factors.shape, measure))
            ranks.append(factors.rank)
    if not opened.matrices:
        raise BadInput(f"'{folder}' adapts no matrix with a short side of {LEAST} at least.")
    opened.notes.append(
        f"Each matrix is what the adapter adds to one of {adapter.base}; none has a rank above "
        f"{max(ranks)}."
    )
    if adapter.others:
        opened.notes.append(
            f"{adapter.others} tensors of the adapter are no factors of a matrix, and are left out."
        )
    return opened


def _product_energies(left: Any, right: Any, scale: float) -> Floats:
    """The energies of scale · B A, ascending, by the triangles of both factors: the product itself
    is never made.
    """
    B = left[:].double()
    A = right[:].double()
    if not bool(torch.isfinite(B).all() and torch.isfinite(A).all()):
        return np.full(min(len(B), A.shape[1]), np.nan)
    left_factor = torch.linalg.qr(B, mode="r").R
    right_factor = torch.linalg.qr(A.T, mode="r").R
    core = left_factor @ right_factor.T
    energies: Floats = np.zeros(min(len(B), A.shape[1]))
    values = (torch.linalg.svdvals(core) * scale).square().flip(0).numpy()
    energies[len(energies) - len(values) :] = values
    return energies
