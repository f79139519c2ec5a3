"""What a model is and where it came from, for the protocol of a result."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscan.model.lens import Lens

__all__ = ["describe", "file_sha256"]


def describe(lens: Lens) -> dict[str, Any]:
    """The dictionary that `Lens.provenance` documents."""
    model, origin = lens.model, lens.origin
    if "sha256" not in origin:
        origin["sha256"] = {path.name: file_sha256(path) for path in origin.get("files", ())}
    counted = model.num_parameters() if hasattr(model, "num_parameters") else sum(p.numel() for p in model.parameters())
    return {
        "name": lens.name,
        "source": origin.get("source"),
        "revision": origin.get("revision"),
        "class": type(model).__name__,
        "architecture": getattr(model.config, "model_type", None),
        "parameters": int(counted),
        "dtype": str(getattr(model, "dtype", lens.input_embeddings.dtype)).removeprefix("torch."),
        "device": str(lens.device),
        "depth": lens.depth,
        "width": lens.width(lens.default_sites[0]),
        "vocabulary": lens.vocabulary_size,
        "context": lens.context_length,
        "quantize": origin.get("quantize"),
        "random_init": origin.get("random_init"),
        "notes": list(lens.notes),
        "sha256": dict(origin["sha256"]),
    }


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
