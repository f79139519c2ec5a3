"""The pass that fits the readouts of a slice, and the cache that stores them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headscan.inversion.cache import cache_path, write_cache
from headscan.inversion.readout import ReadoutSums, TokenReadout
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Progress
from headscan.text import documents, tokenise

# Tokens of the pass. A third of the windows are of a text, the others of tokens drawn from the
# whole vocabulary: a text has few of them, and for its own the prior is the better guide. Lone
# tokens are for first positions.
WINDOWS = 6144
LONE = 2048
TOKENS = WINDOWS + LONE
LENGTH = 128
BATCH = 512
VERSION = 4


@dataclass(frozen=True, eq=False)
class Readouts:
    """The readouts of a slice.

    Attributes:
        first: of the outputs at position 0, where models put a sink that is like no other state.
        later: of all other outputs.
        passes: tokens that were run now; 0 if the readouts were read from disk.
    """

    first: TokenReadout
    later: TokenReadout
    passes: int = 0


def readouts_of(cut: SlicedModel, *, progress: Progress | None = None) -> Readouts:
    """Return the readouts of a slice: from memory, from the cache folder, or fitted.

    Cost: one pass of at most 8,192 tokens.
    """

    def read_or_fit() -> Readouts:
        path = cache_path(cut, "readouts", VERSION)
        readouts = _read(path, cut)
        if readouts is None:
            readouts = _fit(cut, _batches(cut), progress)
            _write(path, readouts)
        return readouts

    return cut.once("readouts", read_or_fit)


def _batches(cut: SlicedModel) -> list[Int[Tensor, "B T"]]:
    vocabulary = cut.vocabulary_size
    generator = torch.Generator().manual_seed(0)
    length = max(2, min(LENGTH, cut.lens.context_length or LENGTH))
    count = max(3, WINDOWS // length)

    story = read_stories(cut, count // 3 * length)
    written = story[: len(story) // length * length].reshape(-1, length)
    drawn = torch.randint(0, vocabulary, (count - len(written), length), generator=generator)

    types = story.unique()
    common = types[torch.randperm(len(types), generator=generator)[: LONE // 3]]
    further = torch.randperm(vocabulary, generator=generator)[: LONE - len(common)]
    alone = torch.cat([common, further])[:, None]

    at_once = max(1, BATCH // length)
    batches = [*written.split(at_once), *drawn.split(at_once), *alone.split(BATCH)]
    return [batch for batch in batches if len(batch)]


def read_stories(cut: SlicedModel, count: int) -> Int[Tensor, " N"]:
    """Return the first tokens of the embedded stories; none where the model has no tokenizer."""
    if cut.lens.tokenizer is None:
        return torch.empty(0, dtype=torch.int64)
    parts: list[Tensor] = []
    for stretch in tokenise(documents("stories"), cut.lens.tokenizer):
        parts.append(torch.as_tensor(stretch.ids, dtype=torch.int64))
        if sum(map(len, parts)) >= count:
            break
    ids = torch.cat(parts)[:count]
    return ids[ids < cut.vocabulary_size]


@torch.no_grad()
def _fit(cut: SlicedModel, batches: list[Tensor], progress: Progress | None) -> Readouts:
    first = ReadoutSums(cut.width)
    later = ReadoutSums(cut.width)
    total = sum(ids.numel() for ids in batches)
    done = 0
    for ids in batches:
        vectors = cut.embed(ids.to(cut.lens.device))
        outputs = cut.states(inputs_embeds=vectors).float()
        first.update(vectors[:, 0], outputs[:, 0])
        if ids.shape[1] > 1:
            later_vectors = vectors[:, 1:].flatten(0, 1)
            later.update(later_vectors, outputs[:, 1:].flatten(0, 1))
        done += ids.numel()
        if progress:
            progress("fit of the readout", done, total, "tokens")

    # A model of one position has no later ones.
    fitted = [sums.solve(cut.vectors) for sums in (first, later) if sums.count]
    if not fitted:
        raise BadInput(
            f"The model gives no finite number at {cut.slice}: its outputs overflow, nothing can "
            "be read from them."
        )
    return Readouts(fitted[0], fitted[-1], done)


def _read(path: Path, cut: SlicedModel) -> Readouts | None:
    tensors = {}
    try:
        with safe_open(path, "pt", device=str(cut.lens.device)) as file:
            for name in file.keys():  # noqa: SIM118 the file is no mapping
                tensors[name] = file.get_tensor(name)
    except (OSError, SafetensorError):
        return None
    return Readouts(_readout_in(tensors, "first."), _readout_in(tensors, "later."))


def _readout_in(tensors: dict[str, Tensor], prefix: str) -> TokenReadout:
    fields = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    return TokenReadout(**fields)


def _write(path: Path, readouts: Readouts) -> None:
    tensors = {}
    for prefix, readout in (("first.", readouts.first), ("later.", readouts.later)):
        for name, tensor in vars(readout).items():
            if tensor is not None:
                tensors[prefix + name] = tensor
    write_cache(path, tensors)
