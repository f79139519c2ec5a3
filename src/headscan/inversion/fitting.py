"""The pass that fits a slice's readouts, and the folder that keeps them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from headscan.inversion.readout import ReadoutSums, TokenReadout
from headscan.inversion.table import cache_folder
from headscan.model.slicing import SlicedModel
from headscan.run import Progress, write_atomic
from headscan.text.documents import documents
from headscan.text.tokens import tokenise

__all__ = ["EMBEDDED", "TOKENS", "Readouts", "read_text", "readouts_of"]

EMBEDDED = "stories"
# Tokens of the pass: windows, a third of them of the text, the rest of tokens drawn from the whole vocabulary (a text has few of
# them, and for its own the prior is the better guide); and tokens that stand alone, for first positions.
WINDOWS, LONE = 6144, 2048
TOKENS = WINDOWS + LONE
LENGTH = 128
BATCH = 512
VERSION = 2

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Readouts:
    """The readouts of a slice.

    Attributes:
        first: of the outputs at position 0, where models keep a sink that is like no other state; later: of all others.
        key: the hash of all they rest on.
        passes: tokens that were run now; 0 if they were read from disk.
    """

    first: TokenReadout
    later: TokenReadout
    key: str
    passes: int = 0

    def __call__(self, first: bool) -> TokenReadout:
        """That of a first position or of a later one."""
        return self.first if first else self.later


def readouts_of(
    cut: SlicedModel, text: str | None = None, *, progress: Progress | None = None, keep: bool = True
) -> Readouts:
    """The readouts of a slice: from memory, else from disk, else by one pass of at most 8,192 tokens.

    Args:
        cut: a causal slice.
        text: what a third of the windows are read from: any text; None is the embedded `stories`. A model without
            tokenizer is given random tokens alone.
        progress: called with (stage, done, all, unit).
        keep: write them to the cache folder (`HEADSCAN_CACHE`, else `~/.cache/headscan`), where the next run with the
            same weights, slice and text finds them: 40 MB at a width of 1,536.
    """
    return cut.once(("readouts", text), lambda: _read_or_fit(cut, text, progress, keep))


def _read_or_fit(cut: SlicedModel, text: str | None, progress: Progress | None, keep: bool) -> Readouts:
    batches = _batches(cut, text)
    what = {
        "version": VERSION, "weights": cut.lens.identity(), "class": type(cut.lens.model).__name__,
        "dtype": str(cut.lens.input_embeddings.dtype), "slice": cut.document(),
        "tokens": hashlib.sha256(b"".join(ids.numpy().tobytes() for ids in batches)).hexdigest(),
    }  # fmt: skip
    key = json.dumps(what, sort_keys=True)
    name = hashlib.sha256(key.encode()).hexdigest()
    path = cache_folder() / "readouts" / f"{name[:32]}.safetensors"
    found = _read(path, key, name, cut) if keep else None
    if found is None:
        found = _fit(cut, batches, name, progress)
        if keep:
            _write(path, key, found)
    return found


def _batches(cut: SlicedModel, text: str | None) -> list[Int[Tensor, "B T"]]:
    """What the pass reads: windows of text, windows of random tokens, lone tokens."""
    vocabulary, generator = cut.vocabulary_size, torch.Generator().manual_seed(0)
    length = max(2, min(LENGTH, cut.lens.context_length or LENGTH))
    rows = max(3, WINDOWS // length)
    ids = read_text(cut, text, rows // 3 * length)
    written = ids[: len(ids) // length * length].reshape(-1, length)
    drawn = torch.randint(0, vocabulary, (rows - len(written), length), generator=generator)
    seen = ids.unique()
    common = seen[torch.randperm(len(seen), generator=generator)[: LONE // 3]]
    alone = torch.cat([common, torch.randperm(vocabulary, generator=generator)[: LONE - len(common)]])
    at_once = max(1, BATCH // length)
    parts = [*written.split(at_once), *drawn.split(at_once), *alone[:, None].split(BATCH)]
    return [ids for ids in parts if len(ids)]


def read_text(cut: SlicedModel, text: str | None, count: int) -> Int[Tensor, " N"]:
    """The first tokens of a text (None: the embedded sample); none where the model has no tokenizer."""
    if cut.lens.tokenizer is None:
        return torch.empty(0, dtype=torch.int64)
    found: list[Tensor] = []
    for stretch in tokenise(documents(text or EMBEDDED), cut.lens.tokenizer):
        found.append(torch.as_tensor(stretch.ids, dtype=torch.int64))
        if sum(map(len, found)) >= count:
            break
    ids = torch.cat(found or [torch.empty(0, dtype=torch.int64)])[:count]
    return ids[ids < cut.vocabulary_size]


@torch.no_grad()
def _fit(cut: SlicedModel, batches: list[Tensor], key: str, progress: Progress | None) -> Readouts:
    first, later = ReadoutSums(cut.width), ReadoutSums(cut.width)
    total, done = sum(ids.numel() for ids in batches), 0
    for ids in batches:
        ids = ids.to(cut.lens.device)
        vectors = cut.embed(ids)
        outputs = cut.states(inputs_embeds=vectors).float()
        first.update(vectors[:, 0], outputs[:, 0])
        if ids.shape[1] > 1:
            later.update(vectors[:, 1:].flatten(0, 1), outputs[:, 1:].flatten(0, 1))
        done += ids.numel()
        if progress:
            progress("fit of the readout", done, total, "tokens")
    # A model of one position has no later ones.
    return Readouts(first.solve(cut.vectors), (later if later.count else first).solve(cut.vectors), key, passes=done)


def _fields(readout: TokenReadout) -> Iterator[tuple[str, Tensor]]:
    for name in ("mean", "centre", "filter", "metric", "lengths", "columns"):
        value = getattr(readout, name)
        if value is not None:
            yield name, value


def _read(path: Path, key: str, name: str, cut: SlicedModel) -> Readouts | None:
    """What was kept, if it is whole and rests on the same."""
    try:
        with safe_open(path, "pt", device=str(cut.lens.device)) as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    parts = [
        TokenReadout(**{field.partition(".")[2]: value for field, value in held.items() if field.startswith(part)})
        for part in ("first.", "later.")
    ]
    return Readouts(parts[0], parts[1], name)


def _write(path: Path, key: str, found: Readouts) -> None:
    parts = {
        f"{part}.{name}": value.cpu().contiguous()
        for part, readout in (("first", found.first), ("later", found.later))
        for name, value in _fields(readout)
    }
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not correctness
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save(parts, {"key": key}))
