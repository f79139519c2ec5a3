"""Hidden states that vLLM extracts while it serves."""

from __future__ import annotations

from typing import ClassVar

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.formats.safetensors import StoredTensor, read_header
from headscan.states.location import Location
from headscan.states.rows import JoinedRows, Rows, SlicedRows
from headscan.states.vectors import NumberedParts, Vectors

__all__ = ["VllmFormat"]


@FORMATS.register("vllm")
class VllmFormat(StateFormat):
    """One .safetensors file a request: `hidden_states` [tokens, layers, width] and `token_ids` [tokens]."""

    title: ClassVar[str] = "vLLM's extracted hidden states"
    sentence: ClassVar[str] = (
        "A file a request, or a folder of them, each request a document; the files name no layers: site `captured.K` is the "
        "K-th of `eagle_aux_hidden_state_layer_ids`."
    )
    tried: ClassVar[str] = ""
    first: ClassVar[int] = 2

    def recognises(self, place: Location) -> bool:
        """By the tensors of its first file."""
        if place.is_folder:
            files = place.files(".safetensors")
            return bool(files) and _is_request(files[0])
        return place.suffix == ".safetensors" and place.exists and _is_request(place)

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a captured layer."""
        files = place.files(".safetensors") if place.is_folder else [place]
        requests = [_tensors(file) for file in files]
        layers = {states.shape[1:] for states, _ in requests}
        if len(layers) > 1:
            raise BadInput(f"The requests in {place.path} hold different layers or widths: {sorted(layers)}.")
        many, width = layers.pop()
        whole = JoinedRows([states.rows(states.shape[0], many * width) for states, _ in requests])
        sites: dict[str, Rows] = {
            f"captured.{number}": rows for number, rows in enumerate(SlicedRows.layers(whole, many))
        }
        return Vectors(
            place.name, sites, ids=JoinedRows([ids.rows(ids.shape[0], 1) for _, ids in requests]),
            documents=NumberedParts([states.shape[0] for states, _ in requests]),
            notes=("Each request is a document; windows go on from one to the next.",),
        )  # fmt: skip


def _is_request(place: Location) -> bool:
    try:
        tensors, _ = read_header(place)
    except BadInput:  # said by the format that takes it by its ending
        return False
    return set(tensors) == {"hidden_states", "token_ids"} and len(tensors["hidden_states"].shape) == 3


def _tensors(place: Location) -> tuple[StoredTensor, StoredTensor]:
    tensors, _ = read_header(place)
    if set(tensors) != {"hidden_states", "token_ids"} or len(tensors["hidden_states"].shape) != 3:
        raise BadInput(
            f"{place.path} holds no request: hidden_states [tokens, layers, width] and token_ids are wanted."
        )
    states, ids = tensors["hidden_states"], tensors["token_ids"]
    if ids.shape != states.shape[:1]:
        raise BadInput(f"{place.path} holds {states.shape[0]} vectors but {list(ids.shape)} token ids.")
    return states, ids
