"""`headscan states`: a model's hidden states written for later, or for others."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, Sites, TokenizerName
from headscan.run import BadInput, DataFrame, Result, Run, dataframe, running, uninterrupted, verb
from headscan.run.settings import CommandLine, Option, Out, Progressing, Resume, Seed
from headscan.states.formats.folders import INDEX, StateShard, StoredIndex, StoredSite, verify
from headscan.states.location import Location
from headscan.states.source import ModelSource
from headscan.text import Batch, check_text
from headscan.text.source import TEXT, BatchSize, Context, Documents, FieldName, MaxTokens, Reading, TextLike


@dataclass(frozen=True, kw_only=True, repr=False)
class StatesResult(Result):
    """Hidden states in a folder.

    Attributes:
        folder: where they are. sites: what was stored. context: tokens of a window. windows, tokens: of each site.
        bytes: of all shards. shards: the files, with their checksums.
    """

    kind: ClassVar[str] = "states"
    folder: str
    sites: list[StoredSite]
    context: int
    windows: int
    tokens: int
    bytes: int
    shards: list[StateShard]

    def frame(self) -> DataFrame:
        return dataframe([vars(one) for one in self.sites])


SHARD_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Storing(Loading, Reading):
    """Which states of which text are stored, and how."""

    text: TextLike
    sites: Sites
    context: Context
    store: Literal["same", "float32", "float16", "bfloat16"]
    batch: BatchSize

    def check(self) -> None:
        super().check()
        check_text(self.text)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise BadInput("States are written by one process: run the verb states without torchrun.")


@verb("states")
def run(
    model: ModelLike, text: Annotated[TextLike, TEXT], *, sites: Sites = None, context: Context = 128,
    store: Annotated[
        Literal["same", "float32", "float16", "bfloat16"], Option("What is stored; same is what the model computes in.")
    ] = "same",
    batch: BatchSize = None,
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> StatesResult:  # fmt: skip
    """Write the hidden states of a model on a text into a folder, with token ids, documents and protocol.

    `headscan scan FOLDER` gives the numbers that a scan of the model on this text gives. `docs/states.md` says what is in
    the folder. A run that was interrupted goes on with `resume`; memory is that of the forward pass and a shard (64 MiB).

    Args:
        model: as `scan` takes it. text: what it reads.

    Raises BadInput: the model, the text or an option cannot be used; NaN or infinite activations, by site.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> run("gpt-vanilla", "stories", sites="block.0", max_tokens=256, context=64, out=folder).tokens
    256
    """
    asked, run = running()
    if run.folder is None:
        raise BadInput("Say where the states are to be written: --out FOLDER.")
    settings = asked.chosen(Storing)
    lens = open_model(model, settings)
    source = ModelSource(lens, settings.text, settings, context=settings.context, batch=settings.batch)
    chosen = source.default_sites if settings.sites is None else source.match(settings.sites)
    longest = lens.context_length
    if longest is not None and settings.context > longest:
        raise BadInput(
            f"{lens.name} reads at most {longest} tokens at once, less than {settings.context}: give --context {longest}."
        )
    lens.identify(run)
    index = _ShardWriter(source, chosen, settings, run, run.folder).write()
    record = lens.provenance()
    protocol = run.protocol(text=source.text(), device=record.device, dtype=record.dtype)
    index = replace(index, text=asdict(source.text()), protocol=asdict(protocol), complete=True)
    index.write(run.folder)
    return StatesResult(
        protocol=protocol, models=[record], folder=str(run.folder), sites=index.sites, context=index.context,
        windows=index.windows, tokens=index.tokens, bytes=sum(one.bytes for one in index.shards),
        shards=index.shards,
    )  # fmt: skip


class _ShardWriter:
    """Collects batches until they make a shard."""

    def __init__(self, source: ModelSource, sites: tuple[str, ...], settings: Storing, run: Run, folder: Path) -> None:
        self.source, self.sites, self.store, self.run, self.folder = source, sites, settings.store, run, folder
        self.held: dict[str, list[Tensor]] = {}
        self.index = StoredIndex([], source.context, source.vocabulary, model=asdict(source.record()), alone=source.alone)

    def write(self) -> StoredIndex:
        """Write all of the text, or what is left of it."""
        if self.run.resume and (self.folder / INDEX).exists():
            self.index = StoredIndex.read(Location(str(self.folder / INDEX)))
            verify(str(self.folder))
        else:
            (self.folder / INDEX).unlink(missing_ok=True)
            for old in self.folder.glob("states-*.safetensors"):
                old.unlink()
        last = self.index.windows
        for batch in self.source.batches(start=last, expected=self.index.mark):
            self._take(batch)
            last = int(batch.indices[-1]) + 1
            if sum(tensor.nbytes for parts in self.held.values() for tensor in parts) >= SHARD_BYTES:
                self._close(last)
            self.run.progress(self.source.name, self.source.read(last), self.source.expects(last), "tokens")
        if last > self.index.windows:
            self._close(last)
        return self.index

    def _take(self, batch: Batch) -> None:
        stored = None if self.store == "same" else getattr(torch, self.store)

        def keep(site: str, states: Tensor) -> None:
            if not bool(torch.isfinite(states).all()):
                raise BadInput(f"{self.source.name} gives NaN or infinite values at site {site}; nothing of it was stored.")
            copy = states.detach().to("cpu", stored or states.dtype, copy=True)
            if not bool(torch.isfinite(copy).all()):
                raise BadInput(f"Values at site {site} are too large for {self.store}: choose --store float32.")
            self.held.setdefault(site, []).append(copy.flatten(0, 1) if self.source.alone else copy)

        self.source.visit(batch, self.sites, keep)
        for name, values in (("token_ids", batch.ids), ("documents", batch.documents)):
            numbers = torch.from_numpy(values).int()
            self.held.setdefault(name, []).append(numbers.flatten() if self.source.alone else numbers)
        if self.source.alone:
            self.held.setdefault("lengths", []).append(torch.full((len(batch.ids),), batch.ids.shape[1], dtype=torch.int32))

    def _close(self, last: int) -> None:
        """Write what is held as a shard that ends before window `last`."""
        tensors = {name: torch.cat(parts) for name, parts in self.held.items()}
        if not self.index.sites:
            dtypes = {site: str(tensors[site].dtype).removeprefix("torch.") for site in self.sites}
            sites = [StoredSite(site, tensors[site].shape[-1], dtype) for site, dtype in dtypes.items()]
            self.index = replace(self.index, sites=sites)
        with uninterrupted():
            self.index = self.index.shard(self.folder, self.index.windows, last, tensors, self.source.mark())
        self.held = {}
