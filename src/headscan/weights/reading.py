"""The matrices of a model, one at a time: of safetensors files, a live model, a .gguf file, two checkpoints."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn

from headscan.model import Lens
from headscan.model.settings import Origin
from headscan.model.source import find_source
from headscan.run import BadInput, ModelRecord
from headscan.statistics.spectra import PIECE, energies
from headscan.statistics.uncertainty import Floats

LEAST = 16  # shorter sides have no spectrum to speak of
ModelWeights = str | os.PathLike[str] | nn.Module | Lens


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix whose energies `measure` reads and computes."""

    name: str
    shape: tuple[int, int]
    measure: Callable[[], Floats]


@dataclass
class OpenedWeights:
    """The record (of a difference the base's, too), tensors [n, m] or [k, n, m] by name, matrices, and what was left out."""

    records: list[ModelRecord]
    tensors: dict[str, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    matrices: list[StoredMatrix] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, shape: tuple[int, ...], held: Any, plain: bool) -> None:
        if len(shape) in (2, 3) and min(shape[-2:]) >= LEAST and plain:
            self.tensors[name] = (shape, held)
        elif len(shape) > 1 and not plain:
            self.notes.append(f"{name} is left out: its numbers are no plain floating-point numbers.")


def open_weights(model: ModelWeights, base: ModelWeights | None = None) -> OpenedWeights:
    """The matrices of a model with a short side of 16 at least, or of its difference to a base; none is read yet.

    Raises BadInput where there is no matrix, or none that the base has, too. Of a folder no code of the model runs.
    """
    opened = _opened(model)
    theirs = opened.tensors
    if base is not None:
        other = _opened(base)
        theirs = {name: item for name, item in other.tensors.items() if opened.tensors.get(name, ((),))[0] == item[0]}
        opened.records += other.records
        if apart := len(opened.tensors | other.tensors) - len(theirs):
            opened.notes.append(f"{apart} tensors are not in both models in the same shape, and are left out.")
    for name, (shape, held) in opened.tensors.items():
        if name in theirs:
            start = None if base is None else theirs[name][1]
            for i in range(shape[0]) if len(shape) == 3 else [None]:  # experts
                label, size = name if i is None else f"{name}[{i}]", (shape[-2], shape[-1])
                opened.matrices.append(StoredMatrix(label, size, partial(_measured, size, held, start, i)))
    if not opened.matrices:
        both = "" if base is None else " that the base has in the same shape"
        raise BadInput(f"'{opened.records[0].name}' has no matrix with a short side of {LEAST} at least{both}.")
    return opened


def _measured(shape: tuple[int, int], held: Any, base: Any, i: int | None) -> Floats:
    step = PIECE if shape[0] >= shape[1] else shape[0]

    def rows(one: Any, a: int) -> Tensor:
        found: Tensor = one[a : a + step] if i is None else one[i : i + 1][0, a : a + step]
        return found if base is None else found.double().cpu()

    pieces = (rows(held, a) - (0 if base is None else rows(base, a)) for a in range(0, shape[0], step))
    return energies(piece if shape[0] >= shape[1] else piece.T for piece in pieces)


def _opened(model: ModelWeights) -> OpenedWeights:
    if not isinstance(model, nn.Module | Lens):
        source = find_source(os.fspath(model))
        if source.gguf is None and source.weight_files:
            revision = source.snapshot.name if source.snapshot else source.revision
            return _files(source.name, source.weight_files, Origin(source.given, revision, source.files(weights=True)))
        model = Lens.load(model, device="cpu")
    lens = model if isinstance(model, Lens) else Lens(model)
    opened, tensors = OpenedWeights([lens.provenance()]), lens.model.state_dict()
    places = {(tensor.data_ptr(), tensor.shape): name for name, tensor in reversed(tensors.items())}  # tied tables are one
    for name, tensor in tensors.items():
        if places[tensor.data_ptr(), tensor.shape] == name:
            opened.add(name, tuple(tensor.shape), tensor, tensor.is_floating_point())
    return opened


def _files(name: str, files: tuple[Path, ...], origin: Origin) -> OpenedWeights:
    opened, count, kinds = OpenedWeights([]), 0, set[str]()
    for file in files:
        handle = safe_open(file, "pt")
        for key in handle.keys():  # noqa: SIM118
            part = handle.get_slice(key)
            count, kinds = count + prod(part.get_shape()), kinds | {part.get_dtype()}
            opened.add(key, tuple(part.get_shape()), part, part.get_dtype() in ("F64", "F32", "BF16", "F16"))
    opened.records.append(
        ModelRecord(name=name, source=origin.source, revision=origin.revision, sha256=origin.sha256(), parameters=count,
                    dtype=", ".join(sorted(kinds)))
    )  # fmt: skip
    return opened
