"""Tensors that torch.save wrote, also in the folders of activault."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.naming import site_of_hook
from headscan.states.objects import of_object
from headscan.states.vectors import Vectors

__all__ = ["ActivaultFormat", "PytorchFormat"]


@FORMATS.register("pytorch")
class PytorchFormat(StateFormat):
    """A tensor, or a dict of tensors."""

    title: ClassVar[str] = "torch.save"
    sentence: ClassVar[str] = "A tensor, or a dict of tensors by site; mapped, and nothing in the file is run."
    tried: ClassVar[str] = "torch"

    def recognises(self, place: Location) -> bool:
        """By its ending."""
        return place.suffix in (".pt", ".pth") and not place.is_folder

    def read(self, place: Location, field: str | None) -> Vectors:
        """Its tensors by name."""
        return of_object(_load(place), place.name)


@FORMATS.register("activault")
class ActivaultFormat(StateFormat):
    """A folder a hook with `metadata.json` and files of `states` [windows, T, d] and `input_ids`."""

    title: ClassVar[str] = "activault"
    sentence: ClassVar[str] = (
        "The folder of a run, or of one of its hooks: files of `states` and `input_ids`, a site a hook."
    )
    tried: ClassVar[str] = ""
    first: ClassVar[int] = 1

    def recognises(self, place: Location) -> bool:
        """By its configuration, or a hook's metadata."""
        return (
            place.is_folder
            and ((place / "cfg.json").exists or (place / "metadata.json").exists)
            and bool(place.files(".pt"))
        )

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a hook; the files of one number lie beside one another."""
        folders = dict[str, list[Location]]()
        for file in place.files(".pt"):
            folders.setdefault(file.path.rsplit("/", 1)[0], []).append(file)
        hooks = {site_of_hook(path.rsplit("/", 1)[1]): files for path, files in sorted(folders.items())}
        found = {site: Vectors.joined(site, [_file(one) for one in files]) for site, files in hooks.items()}
        first = next(iter(found.values()))
        return Vectors(
            place.name, {site: one.sites["states"] for site, one in found.items()}, ids=first.ids, window=first.window
        )


def _file(place: Location) -> Vectors:
    held = _load(place)
    if not isinstance(held, dict) or "states" not in held:
        raise BadInput(f"{place.path} holds no 'states'.")
    return of_object({name: held[name] for name in ("states", "input_ids") if name in held}, place.path)


def _load(place: Location) -> Any:
    try:
        if place.remote:
            with place.open() as file:
                found = torch.load(file, map_location="cpu", weights_only=True)
        else:
            found = torch.load(place.path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise BadInput(f"{place.path} holds no tensors, or is damaged: {said.rstrip('.')}.") from error
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    return found
