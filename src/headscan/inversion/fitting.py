"""The pass that fits a slice's readouts, and the folder that keeps them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from headscan.inversion.table import ReadoutSums, TokenReadout, cache_folder
from headscan.model.slicing import SlicedModel
from headscan.run import Progress, write_atomic
from headscan.text.documents import documents
from headscan.text.tokens import tokenise

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

    def found() -> Readouts:
        (one,) = _read_or_fit(cut, [cut], text, progress, keep, 1)
        assert one is not None
        return one

    return cut.once(("readouts", text), found)


def fit_together(
    whole: SlicedModel, parts: Sequence[SlicedModel], text: str | None = None, *, progress: Progress | None = None,
    keep: bool = True,
) -> None:  # fmt: skip
    """Fit the readouts of several slices of one model in one pass, that of the deepest; `readouts_of` then has them at hand.

    Args:
        whole: what the parts give, one after another.
        parts, text, progress, keep: as in `readouts_of`. Those that were kept are read; of one alone nothing is fitted here.
    """
    for cut, one in zip(parts, _read_or_fit(whole, parts, text, progress, keep, 2), strict=True):
        if one is not None:
            cut.once(("readouts", text), partial(_same, one))


def _same(found: Readouts) -> Readouts:
    return found


def _read_or_fit(
    whole: SlicedModel,
    parts: Sequence[SlicedModel],
    text: str | None,
    progress: Progress | None,
    keep: bool,
    least: int,
) -> list[Readouts | None]:
    """Those that were kept, and the others by one pass where they are at least so many; None of those that are not there."""
    batches = _batches(whole, text)
    places = [_place(cut, batches) for cut in parts]
    found = [_read(*place, cut) if keep else None for place, cut in zip(places, parts, strict=True)]
    missing = [number for number, one in enumerate(found) if one is None]
    if len(missing) >= least:
        names = {number: places[number][2] for number in missing}
        for number, one in _fit(whole, names, [cut.width for cut in parts], batches, progress).items():
            found[number] = one
            if keep:
                _write(*places[number][:2], one)
    return found


def _place(cut: SlicedModel, batches: list[Tensor]) -> tuple[Path, str, str]:
    """The file in which readouts are kept, what they rest on, and its hash."""
    what = {
        "version": VERSION, "weights": cut.lens.identity(), "class": type(cut.lens.model).__name__,
        "dtype": str(cut.lens.input_embeddings.dtype), "slice": cut.document(),
        "tokens": hashlib.sha256(b"".join(ids.numpy().tobytes() for ids in batches)).hexdigest(),
    }  # fmt: skip
    key = json.dumps(what, sort_keys=True)
    name = hashlib.sha256(key.encode()).hexdigest()
    return cache_folder() / "readouts" / f"{name[:32]}.safetensors", key, name


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
def _fit(
    whole: SlicedModel, names: Mapping[int, str], widths: list[int], batches: list[Tensor], progress: Progress | None
) -> dict[int, Readouts]:
    """The readouts of some parts of a slice, by number, from one pass; `widths` are of all its parts."""
    sums = {number: (ReadoutSums(widths[number]), ReadoutSums(widths[number])) for number in names}
    total, done = sum(ids.numel() for ids in batches), 0
    for ids in batches:
        ids = ids.to(whole.lens.device)
        vectors = whole.embed(ids)
        outputs = whole.states(inputs_embeds=vectors).float().split(widths, -1)
        for number, (first, later) in sums.items():
            first.update(vectors[:, 0], outputs[number][:, 0])
            if ids.shape[1] > 1:
                later.update(vectors[:, 1:].flatten(0, 1), outputs[number][:, 1:].flatten(0, 1))
        done += ids.numel()
        if progress:
            progress("fit of the readout", done, total, "tokens")
    # A model of one position has no later ones.
    return {
        number: Readouts(
            first.solve(whole.vectors), (later if later.count else first).solve(whole.vectors), names[number], done
        )
        for number, (first, later) in sums.items()
    }


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
