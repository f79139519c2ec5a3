"""`headscan states`: a model's hidden states on a text, written into a folder."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias, Unpack

import torch
from torch import Tensor

from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, Sites, TokenizerName
from headscan.run import (
    BadInput,
    DataFrame,
    Result,
    Run,
    dataframe,
    estimates,
    uninterrupted,
    verb,
)
from headscan.run.settings import (
    Option,
    RunOptions,
    Seed,
)
from headscan.states.estimate import Estimate, expected_reader
from headscan.states.formats.folders import INDEX, StateShard, StoredIndex, StoredSite, verify
from headscan.states.location import Location
from headscan.states.plan import ReadingPlan
from headscan.states.source import ModelSource
from headscan.states.verification import VerificationResult, verified_rows
from headscan.text import Batch, check_text
from headscan.text.source import (
    TEXT,
    BatchSize,
    Context,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    Start,
    StartName,
    TextLike,
    Windowing,
)

SHARD_BYTES = 64 * 2**20
"""A shard is written as soon as its tensors take so many bytes."""

StoredType: TypeAlias = Literal["same", "float32", "float16", "bfloat16"]
"""The dtype that states are stored in; `same` is what the model computes in."""

BYTES_OF_NUMBER: Mapping[StoredType, int] = {
    "same": 4,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class StatesResult(Result):
    """Hidden states in a folder.

    Attributes:
        folder: where they are.
        sites: the sites that were stored.
        context: tokens of a window.
        windows, tokens: their numbers at each site.
        bytes: size of all shards.
        shards: the files, with their checksums.
    """

    kind: ClassVar[str] = "states"
    draws: ClassVar[bool] = False
    looks_for: ClassVar[bool] = False
    folder: str
    sites: list[StoredSite]
    context: int
    windows: int
    tokens: int
    bytes: int
    shards: list[StateShard]

    def frame(self) -> DataFrame:
        """Return a table with one row for each site."""
        return dataframe([vars(site) for site in self.sites])


@verb("states")
def run(
    run: Run,
    model: ModelLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    verify: Annotated[
        str | None,
        Option(
            "Stored states (with token ids) to compare with the model's own: of which site they "
            "are, in which order, precision and scale. Nothing is written.",
            group="Input",
        ),
    ] = None,
    sites: Sites = None,
    context: Context = None,
    store: Annotated[
        StoredType,
        Option("What is stored; same is what the model computes in.", group="Output"),
    ] = "same",
    batch: BatchSize = None,
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[RunOptions],
) -> StatesResult | VerificationResult:
    """Write the hidden states of a model on a text into a folder, with token ids, documents and
    protocol; or with `verify` say whether stored states are the model's (a `VerificationResult`).

    `headscan scan FOLDER` gives the numbers that a scan of the model on this text gives.
    `docs/states.md` describes the folder. An interrupted run goes on with `resume`; memory is that
    of the forward pass and a shard (64 MiB).

    Args:
        model: as `scan` takes it.
        text: the text that the model reads.

    Raises BadInput: the model, the text or an option cannot be used; NaN or infinite activations,
    by site.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> result = run("gpt-vanilla", "stories", sites="block.0", max_tokens=256, out=folder)
    >>> result.tokens
    256
    """
    loading = Loading(tokenizer=tokenizer, dtype=dtype, device=device)
    if verify is not None:
        run.refuse_changed(
            "with --verify", text=text, sites=sites, context=context, store=store, batch=batch
        )
        return _verification(open_model(model, loading), verify, field, run)
    if text is None:
        raise BadInput("A model needs a text to read: --text TEXT.")
    if run.folder is None:
        raise BadInput("Say where the states are to be written: --out FOLDER.")
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens, start=start)
    _check(text)

    lens = open_model(model, loading)
    source = ModelSource(lens, text, reading, context=context, batch=batch)
    stored_sites = source.default_sites if sites is None else source.match(sites)
    _check_length(source.lens, context or source.context)
    lens.identify(run)

    index = _ShardWriter(source, stored_sites, store, run, run.folder).write()
    record = lens.provenance()
    protocol = run.protocol(text=source.text(), device=record.device, dtype=record.dtype)
    index = replace(index, text=asdict(source.text()), protocol=asdict(protocol), complete=True)
    index.write(run.folder)
    return StatesResult(
        protocol=protocol,
        models=[record],
        folder=str(run.folder),
        sites=index.sites,
        context=index.context,
        windows=index.windows,
        tokens=index.tokens,
        bytes=sum(shard.bytes for shard in index.shards),
        shards=index.shards,
    )


def _verification(lens: Lens, dump: str, field: str | None, run: Run) -> VerificationResult:
    """Return whether stored states are those of a model."""
    lens.identify(run)
    rows, tokens = verified_rows(lens, dump, field)
    record = lens.provenance()
    protocol = run.protocol(text=None, device=record.device, dtype=record.dtype)
    return VerificationResult(
        protocol=protocol, models=[record], dump=dump, rows=rows, tokens=tokens
    )


def _check(text: TextLike) -> None:
    """Raise BadInput for a text that cannot be read, and where several processes would write."""
    check_text(text)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("States are written by one process: run the verb states without torchrun.")


def _check_length(lens: Lens, context: int) -> None:
    """Raise BadInput where the model cannot read so many tokens at once."""
    longest = lens.context_length
    if longest is not None and context > longest:
        raise BadInput(
            f"{lens.name} reads at most {longest} tokens at once, less than {context}: give "
            f"--context {longest}."
        )


class _ShardWriter:
    """Collects the states of batches, and writes them as a shard as soon as they are many."""

    def __init__(
        self,
        source: ModelSource,
        sites: tuple[str, ...],
        store: StoredType,
        run: Run,
        folder: Path,
    ) -> None:
        self.source = source
        self.sites = sites
        self.store = store
        self.run = run
        self.folder = folder
        self.pending: dict[str, list[Tensor]] = {}  # tensors of the next shard by their names
        self.index = StoredIndex(
            [],
            source.context,
            source.vocabulary,
            model=asdict(source.record()),
            alone=source.alone,
            frame=source.frame,
        )

    def write(self) -> StoredIndex:
        """Write the whole text, or what an interrupted run left of it."""
        self._begin()
        source = self.source
        windows = self.index.windows
        for batch in source.batches(start=windows, expected=self.index.mark):
            self._take(batch)
            windows = int(batch.indices[-1]) + 1
            if self._pending_bytes() >= SHARD_BYTES:
                self._close(windows)
            self.run.progress(source.name, source.read(windows), source.expects(windows), "tokens")
        if windows > self.index.windows:
            self._close(windows)
        return self.index

    def _begin(self) -> None:
        """Read the index of an interrupted run, or remove what an earlier run has written."""
        path = self.folder / INDEX
        if self.run.resume and path.exists():
            self.index = StoredIndex.read(Location(str(path)))
            verify(str(self.folder))
            return
        path.unlink(missing_ok=True)
        for shard in self.folder.glob("states-*.safetensors"):
            shard.unlink()

    def _pending_bytes(self) -> int:
        total = 0
        for tensors in self.pending.values():
            total += sum(tensor.nbytes for tensor in tensors)
        return total

    def _take(self, batch: Batch) -> None:
        """Add the states, token ids and documents of a batch to the next shard."""
        self.source.visit(batch, self.sites, self._add_states)
        self._add_numbers("token_ids", torch.from_numpy(batch.ids).int())
        self._add_numbers("documents", torch.from_numpy(batch.documents).int())
        if self.source.alone:
            windows, length = batch.ids.shape
            self._add("lengths", torch.full((windows,), length, dtype=torch.int32))

    def _add_states(self, site: str, states: Tensor) -> None:
        if not bool(torch.isfinite(states).all()):
            raise BadInput(
                f"{self.source.name} gives NaN or infinite values at site {site}; nothing of it "
                "was stored."
            )
        dtype = states.dtype if self.store == "same" else getattr(torch, self.store)
        stored = states.detach().to("cpu", dtype, copy=True)
        if not bool(torch.isfinite(stored).all()):
            raise BadInput(
                f"Values at site {site} are too large for {self.store}: choose --store float32."
            )
        self._add(site, stored.flatten(0, 1) if self.source.alone else stored)

    def _add_numbers(self, name: str, numbers: Tensor) -> None:
        self._add(name, numbers.flatten() if self.source.alone else numbers)

    def _add(self, name: str, tensor: Tensor) -> None:
        self.pending.setdefault(name, []).append(tensor)

    def _close(self, end: int) -> None:
        """Write the pending tensors as a shard that ends before window `end`."""
        tensors = {name: torch.cat(parts) for name, parts in self.pending.items()}
        if not self.index.sites:
            sites = [_stored_site(site, tensors[site]) for site in self.sites]
            self.index = replace(self.index, sites=sites)
        with uninterrupted():
            self.index = self.index.shard(
                self.folder, self.index.windows, end, tensors, self.source.mark()
            )
        self.pending = {}


def _stored_site(site: str, states: Tensor) -> StoredSite:
    dtype = str(states.dtype).removeprefix("torch.")
    return StoredSite(site, states.shape[-1], dtype)


@estimates(run)
def estimate_states(
    model: ModelLike,
    text: TextLike | None,
    verify: str | None,
    sites: str | None,
    context: int | None,
    store: StoredType,
    batch: int | None,
    documents: str,
    field: str | None,
    max_tokens: int | None,
    start: StartName,
    tokenizer: TokenizerName,
    dtype: Dtype,
    device: Device,
) -> list[Estimate]:
    """Estimate the memory, disk and time of `headscan states`, without reading weights and without
    writing anything.

    Raises BadInput as `headscan.states.run` does for what can be known without the weights.

    >>> options = {"max_tokens": 1280, "context": 64, "sites": "block.0"}
    >>> one, = estimate_states("gpt-vanilla", "stories", out="states", **options)
    >>> one.tokens, one.written == 1280 * (128 + 2) * 4
    (1280, True)
    """
    if verify is not None:
        raise BadInput("--dry-run estimates no --verify: it reads 1,024 tokens.")
    if text is None:
        raise BadInput("A model needs a text to read: --text TEXT.")
    plan = ReadingPlan(
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        windowing=Windowing(context=context, batch=batch),
        text=text,
        sites=sites,
    )
    _check(text)
    reader = expected_reader(model, plan)

    ids_bytes = 8  # a token id and a document, in int32
    token_bytes = BYTES_OF_NUMBER[store] * sum(reader.widths.values()) + ids_bytes
    estimate = Estimate(
        reader.name,
        reader.tokens,
        reader.weights,
        memory=2.0 * SHARD_BYTES + 2.0 * token_bytes * reader.batch,
        seconds=reader.forward * reader.counted / reader.operations_a_second(device),
        written=float(token_bytes) * reader.counted,
    )
    return [estimate]
