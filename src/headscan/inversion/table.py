"""The cached table: what a slice returns for every token of the vocabulary, at the first position and after some text."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.model.slicing.specification import split_on_exhaustion
from headscan.run import Progress, write_atomic

# Below this many numbers a table is made faster than it is read.
WORTH_KEEPING = 8_000_000
VERSION = 4
# Tokens before the second part of the table: enough that attention is shared out, few enough to cost nothing.
CONTEXT = 4
STEP = 512
TABLE = "table of one-token outputs"


@dataclass
class FirstPositions:
    """Outputs of every token, alone and after a few random tokens, and what is computed from them once."""

    outputs: Float[Tensor, "V w"]  # F_0: float32, at position 0, with nothing before it
    change: Float[Tensor, "V w"]  # F_c - F_0: what a short text before it changes
    built: int = 0  # tokens that were run now; 0 if it was read from disk

    @cached_property
    def products(self) -> tuple[Tensor, Tensor, Tensor]:
        """F_0.F_0, F_0.change and change.change of each token, [V] each."""
        parts = [
            torch.stack([(f * f).sum(1), (f * g).sum(1), (g * g).sum(1)])
            for f, g in zip(self.outputs.split(4096), self.change.split(4096), strict=True)
        ]
        one, two, three = torch.cat(parts, dim=1)
        return one, two, three


def table_of(cut: SlicedModel, *, progress: Progress | None = None) -> FirstPositions:
    """The table of a slice: from memory, from the cache folder (large ones are kept), or by two passes of the vocabulary."""
    return cut.once(TABLE, lambda: _read_or_build(cut, progress))


def passes_of_table(cut: SlicedModel) -> int:
    """Tokens that are run for the table of a slice."""
    return 2 * cut.vocabulary_size


def _read_or_build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    large = cut.vocabulary_size * cut.width >= WORTH_KEEPING
    path = cache_path(cut, "tables", VERSION) if large else None
    if path is not None and path.is_file():
        saved = load_file(path)
        return FirstPositions(saved["outputs"].to(cut.lens.device), saved["change"].to(cut.lens.device))
    table = _build(cut, progress)
    if path is not None:
        write_cache(path, {"outputs": table.outputs, "change": table.change})
    return table


@torch.no_grad()
def _build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    length = min(CONTEXT, (cut.lens.context_length or CONTEXT + 1) - 1)
    context = torch.randint(0, cut.vocabulary_size, (1, length), generator=torch.Generator().manual_seed(0))
    prefix = Prefix(cut, context)
    parts: list[list[Tensor]] = [[], []]
    total, done, batch = passes_of_table(cut), 0, STEP
    for number, before in enumerate((Prefix(cut, prefix.ids[:, :0]), prefix)):
        for tokens in torch.arange(cut.vocabulary_size, device=cut.lens.device).split(STEP):
            if before.length:
                found = before.evaluate(torch.zeros_like(tokens), tokens)
            else:
                # Without a cache: at the first position there is nothing to read from it.
                def run(part: slice, tokens: Tensor = tokens) -> Tensor:
                    return cut.states(inputs_embeds=cut.embed(tokens[part])[:, None])[:, 0].float()

                found, batch, _ = split_on_exhaustion(run, len(tokens), batch)
            parts[number].append(found)
            done += len(tokens)
            if progress:
                progress("table of the vocabulary", done, total, "tokens")
        if not prefix.length:  # a model of one position has no later ones
            parts[1] = [torch.zeros_like(one) for one in parts[0]]
            break
    # What is no number predicts nothing; the candidates themselves are judged by what they really give.
    outputs, later = (torch.cat(part).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for part in parts)
    change = later - outputs if prefix.length else later
    return FirstPositions(outputs, change, built=done)


def write_cache(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to the cache folder; a cache that cannot be written costs time, not correctness."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save({name: value.cpu().contiguous() for name, value in tensors.items()}))


def cache_path(cut: SlicedModel, kind: str, version: int) -> Path:
    """Where something made of a slice is kept between runs: equal for equal weights and slices, whoever loaded them."""
    folder = Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan")
    what = {
        "version": version, "weights": cut.lens.identity(), "class": type(cut.lens.model).__name__,
        "dtype": str(cut.lens.input_embeddings.dtype), "slice": cut.document(),
    }  # fmt: skip
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    return folder / kind / f"{name[:32]}.safetensors"
