"""Tensors computed from a slice, stored on disk between runs."""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.run import write_atomic


def cache_path(cut: SlicedModel, kind: str, version: int) -> Path:
    """Return the file of something computed from a slice.

    It is the same for equal weights and slices, however they were loaded. The folder is
    HEADSCAN_CACHE, by default ~/.cache/headscan.
    """
    folder = Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan")
    identity = {
        "version": version,
        "weights": cut.lens.identity(),
        "class": type(cut.lens.model).__name__,
        "dtype": str(cut.lens.input_embeddings.dtype),
        "slice": cut.document(),
    }
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return folder / kind / f"{name[:32]}.safetensors"


def write_cache(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to a file of the cache.

    A file that cannot be written costs time, not correctness: the error is ignored.
    """
    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save(on_cpu))
