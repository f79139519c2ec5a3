"""The cached table: what a slice returns for every token of the vocabulary at the first position."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscan.model.slices_cut import Cut
from headscan.model.slices_prefix import split_on_exhaustion

__all__ = ["Table", "cache_folder", "table_of"]

Progress = Callable[[str, int, int | None], None]
# Below this many numbers a table is made faster than it is read.
WORTH_KEEPING = 8_000_000
COMPONENTS = 24


@dataclass
class Table:
    """Outputs of every token at position 0 with nothing before it, and what is computed from them once.

    Attributes:
        outputs: float32 [V, w'].
        built: forward passes (tokens) that were needed now; 0 if it was read from disk.
    """

    outputs: Tensor
    built: int = 0

    @cached_property
    def squares(self) -> Tensor:
        """Squared norms [V]."""
        return (self.outputs**2).sum(1)

    @cached_property
    def coordinates(self) -> Tensor:
        """[V, k]: the tokens on the table's first principal directions, each of unit variance."""
        centred = self.outputs - self.outputs.mean(0)
        count = min(COMPONENTS, *centred.shape)
        # The d x d second moment is enough, and V rows of it cost one product.
        values, vectors = torch.linalg.eigh((centred.T.double() @ centred.double()) / len(centred))
        values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
        return ((centred.double() @ vectors) / values.clamp_min(1e-30).sqrt()).float()


def table_of(cut: Cut, *, progress: Progress | None = None, keep: bool = True) -> Table:
    """The table of a slice: from memory, else from disk, else by one pass over the vocabulary.

    Args:
        cut: the slice on its model.
        progress: called with (name, done, all).
        keep: write a large table to the cache folder (`HEADSCAN_CACHE`, else `~/.cache/headscan`), where the next run
            with the same weights and slice finds it.

    Cost: V forward passes of one token, once a model and slice.
    """
    ready: Table | None = cut.__dict__.get("_table")
    if ready is not None:
        return ready
    large = cut.vocabulary_size * cut.width >= WORTH_KEEPING
    path = cache_folder() / "tables" / f"{fingerprint(cut)}.safetensors" if large and keep else None
    if path is not None and path.is_file():
        table = Table(load_file(path)["outputs"].to(cut.lens.device))
    else:
        table = Table(_build(cut, progress), built=cut.vocabulary_size)
        if path is not None:
            _write(path, table.outputs)
    cut.__dict__["_table"] = table
    return table


def _build(cut: Cut, progress: Progress | None) -> Tensor:
    vectors, step, parts = cut.vectors, 512, []
    for begin in range(0, len(vectors), step):
        chunk = vectors[begin : begin + step]

        def run(part: slice, chunk: Tensor = chunk) -> Tensor:
            return cut.states(inputs_embeds=chunk[part][:, None])[:, 0].float()

        parts.append(split_on_exhaustion(run, len(chunk), step)[0])
        if progress:
            progress("table of the vocabulary", min(begin + step, len(vectors)), len(vectors))
    return torch.cat(parts)


def _write(path: Path, outputs: Tensor) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        save_file({"outputs": outputs.cpu().contiguous()}, aside)
        os.replace(aside, path)
    except OSError:
        pass  # a cache that cannot be written costs time, not correctness


def cache_folder() -> Path:
    """Where tables are kept between runs."""
    return Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan")


def fingerprint(cut: Cut) -> str:
    """A name for these weights cut so: equal for equal weights and slices, whoever loaded them."""
    digest = hashlib.blake2b(digest_size=16)
    what = cut.slice.document() | {"tokens": ":", "pool": None, "class": type(cut.lens.model).__name__}
    digest.update(json.dumps(what, sort_keys=True).encode())
    for name, parameter in cut.lens.model.named_parameters():
        values = parameter.detach().reshape(-1)
        sums = torch.stack([values.double().sum(), values.double().abs().sum()]).cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(sums.numpy().tobytes() + values[:: max(1, len(values) // 64)].double().cpu().numpy().tobytes())
    return digest.hexdigest()
