"""`headscan states`: a model's hidden states written for later, or for others."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model, prepare_model
from headscan.model.load import Preparation
from headscan.model.settings import Device, Dtype, Loading, Sites, TokenizerName, choose_device
from headscan.model.sites import match_sites, possible_sites
from headscan.run import (
    BadInput,
    DataFrame,
    Given,
    Result,
    Run,
    dataframe,
    estimates,
    uninterrupted,
    verb,
)
from headscan.run.settings import CommandLine, Option, Out, Overwrite, Progressing, Resume, Seed
from headscan.states.formats.folders import INDEX, StateShard, StoredIndex, StoredSite, verify
from headscan.states.location import Location
from headscan.states.source import ModelSource, VectorSource, reading_window
from headscan.states.stored import SourceLike, stored_source
from headscan.text import Batch, Document, check_text, documents, tokenise
from headscan.text.prompts import require_tokenizer
from headscan.text.source import (
    TEXT,
    BatchSize,
    Context,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    TextLike,
    find_files,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class StatesResult(Result):
    """Hidden states in a folder.

    Attributes:
        folder: where they are. sites: what was stored. context: tokens of a window. windows,
            tokens: of each site.
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
            raise BadInput(
                "States are written by one process: run the verb states without torchrun."
            )


@verb("states")
def run(
    run: Run,
    model: ModelLike,
    text: Annotated[TextLike, TEXT],
    *,
    sites: Sites = None,
    context: Context = None,
    store: Annotated[
        Literal["same", "float32", "float16", "bfloat16"],
        Option("What is stored; same is what the model computes in.", group="Output"),
    ] = "same",
    batch: BatchSize = None,
    documents: Documents = "whole",
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> StatesResult:
    """Write the hidden states of a model on a text into a folder, with token ids, documents and
    protocol.

    `headscan scan FOLDER` gives the numbers that a scan of the model on this text gives.
    `docs/states.md` says what is in the folder. A run that was interrupted goes on with `resume`;
    memory is that of the forward pass and a shard (64 MiB).

    Args:
        model: as `scan` takes it. text: what it reads.

    Raises BadInput: the model, the text or an option cannot be used; NaN or infinite activations,
    by site.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> run("gpt-vanilla", "stories", sites="block.0", max_tokens=256, context=64, out=folder).tokens
    256
    """
    asked = Given(locals())
    if run.folder is None:
        raise BadInput("Say where the states are to be written: --out FOLDER.")
    settings = asked.chosen(Storing)
    lens = open_model(model, settings)
    source = ModelSource(
        lens, settings.text, settings, context=settings.context, batch=settings.batch
    )
    chosen = source.default_sites if settings.sites is None else source.match(settings.sites)
    longest = lens.context_length
    wanted = settings.context or source.context
    if longest is not None and wanted > longest:
        raise BadInput(
            f"{lens.name} reads at most {longest} tokens at once, less than {wanted}: give "
            f"--context {longest}."
        )
    lens.identify(run)
    index = _ShardWriter(source, chosen, settings, run, run.folder).write()
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
        bytes=sum(one.bytes for one in index.shards),
        shards=index.shards,
    )


class _ShardWriter:
    """Collects batches until they make a shard."""

    def __init__(
        self, source: ModelSource, sites: tuple[str, ...], settings: Storing, run: Run, folder: Path
    ) -> None:
        self.source = source
        self.sites = sites
        self.store = settings.store
        self.run = run
        self.folder = folder
        self.held: dict[str, list[Tensor]] = {}
        self.index = StoredIndex(
            [], source.context, source.vocabulary, model=asdict(source.record()), alone=source.alone
        )

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
            if (
                sum(tensor.nbytes for parts in self.held.values() for tensor in parts)
                >= SHARD_BYTES
            ):
                self._close(last)
            self.run.progress(
                self.source.name, self.source.read(last), self.source.expects(last), "tokens"
            )
        if last > self.index.windows:
            self._close(last)
        return self.index

    def _take(self, batch: Batch) -> None:
        stored = None if self.store == "same" else getattr(torch, self.store)

        def keep(site: str, states: Tensor) -> None:
            if not bool(torch.isfinite(states).all()):
                raise BadInput(
                    f"{self.source.name} gives NaN or infinite values at site {site}; nothing of "
                    "it was stored."
                )
            copy = states.detach().to("cpu", stored or states.dtype, copy=True)
            if not bool(torch.isfinite(copy).all()):
                raise BadInput(
                    f"Values at site {site} are too large for {self.store}: choose --store float32."
                )
            self.held.setdefault(site, []).append(copy.flatten(0, 1) if self.source.alone else copy)

        self.source.visit(batch, self.sites, keep)
        for name, values in (("token_ids", batch.ids), ("documents", batch.documents)):
            numbers = torch.from_numpy(values).int()
            self.held.setdefault(name, []).append(
                numbers.flatten() if self.source.alone else numbers
            )
        if self.source.alone:
            self.held.setdefault("lengths", []).append(
                torch.full((len(batch.ids),), batch.ids.shape[1], dtype=torch.int32)
            )

    def _close(self, last: int) -> None:
        """Write what is held as a shard that ends before window `last`."""
        tensors = {name: torch.cat(parts) for name, parts in self.held.items()}
        if not self.index.sites:
            dtypes = {site: str(tensors[site].dtype).removeprefix("torch.") for site in self.sites}
            sites = [
                StoredSite(site, tensors[site].shape[-1], dtype) for site, dtype in dtypes.items()
            ]
            self.index = replace(self.index, sites=sites)
        with uninterrupted():
            self.index = self.index.shard(
                self.folder, self.index.windows, last, tensors, self.source.mark()
            )
        self.held = {}


# ---- What a verb that reads vectors will take in memory, disk and time, said before weights are read; for `--dry-run`.


BEGINNING = 2**16
"""Characters of the text by which its tokens are counted."""
ITEM = {"same": 4, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Estimate:
    """What a verb will take.

    `seconds` are those of all tokens (of a million where `tokens` is None) on this machine as it is
    now: the operations of the forward pass and of the sums, at the speed of a product that was
    timed. Good to a factor of two or three.
    """

    name: str  # of the source
    tokens: int | None  # that will be read; None for a folder of packed files and a stream
    weights: float  # bytes of the model
    memory: float  # a bound of what is held beside it, in bytes
    seconds: float
    written: float = 0.0  # bytes on the disk
    note: str = ""  # what is not in it

    @property
    def held(self) -> str:
        return (
            f"at most {self.memory / 1e9:.2g} GB beside the model"
            if self.weights
            else f"{self.memory / 1e9:.2g} GB"
        )

    def __str__(self) -> str:
        of = f"{self.tokens:,} tokens" if self.tokens is not None else "each million tokens"
        model = f"{self.weights / 1e9:.2g} GB of weights and " if self.weights else ""
        disk = f", {self.written / 1e9:.2g} GB on the disk" if self.written else ""
        end = f" {self.note}" if self.note else ""
        return (
            f"{self.name}: {model}{self.held}{disk}; about {duration(self.seconds)} for {of}.{end}"
        )


@dataclass(frozen=True)
class ExpectedReader:
    """A source before it is read."""

    name: str
    tokens: int | None  # in all, where that is known
    weights: float  # bytes
    forward: float  # operations of the forward pass a token
    widths: Mapping[str, int]  # by site
    batch: int  # tokens
    context: int  # tokens of a window
    alone: bool = False  # whether each document is a window

    @property
    def counted(self) -> int:
        return self.tokens or 1_000_000


def expected_reader(given: SourceLike, settings: Any) -> ExpectedReader:
    """A source as it is known without its weights; raises BadInput as the verb does for what can be
    known so.
    """
    reading = {
        name: getattr(settings, name) for name in ("context", "batch", "max_tokens", "field")
    }
    if (stored := stored_source(given, **reading)) is not None:
        widths = {site: stored.width(site) for site in _sites(stored, settings)}
        batch = stored.batch * stored.context
        return ExpectedReader(
            stored.name, stored.tokens, 0.0, 0.0, widths, batch, stored.context, stored.alone
        )
    ready = prepare_model(cast(ModelLike, given), Loading(**settings.part(Loading)))
    if settings.text is None:
        raise BadInput("A model reads a text: say which, by --text.")
    check_text(settings.text)
    if isinstance(ready, Preparation):
        name = ready.source.name
        entries = ready.size.entries
        weights = ready.bytes
        width = int(ready.config.get_text_config().hidden_size)
        blocks = ready.size.blocks
        sites: Sequence[str] = [f"site.{k}" for k in range(blocks + 2)]
        if settings.sites is not None:
            asked = match_sites(settings.sites, possible_sites(blocks), name)
            sites = [
                site for site in asked if not site.startswith(("encoder.", "decoder."))
            ] or asked
        widths = dict.fromkeys(sites, width)
    else:
        parameters = list(ready.model.parameters())
        name = ready.name
        entries = sum(one.numel() for one in parameters)
        weights = sum(one.numel() * one.element_size() for one in parameters)
        widths = {site: ready.width(site) for site in _sites(ready, settings)}
    tokens = _tokens(settings, require_tokenizer(ready.tokenizer, name))
    alone, context = reading_window(ready, settings.context)
    batch = (settings.batch or max(1, 2048 // context)) * context
    return ExpectedReader(
        name, tokens, float(weights), 2.0 * entries, widths, batch, context, alone
    )


@estimates(run)
def estimate_states(given: Given) -> list[Estimate]:
    """What `headscan states` will take, and write, without reading weights and without writing
    anything.

    Raises BadInput as `headscan.states.run` does for what can be known without the weights.

    >>> one, = estimate_states("gpt-vanilla", "stories", max_tokens=1280, context=64, sites="block.0", out="states")
    >>> one.tokens, one.written == 1280 * (128 + 2) * 4
    (1280, True)
    """
    settings = given.chosen(Storing)
    reader = expected_reader(given["model"], settings)
    # token id and document beside the vectors
    each = ITEM[settings.store] * sum(reader.widths.values()) + 8
    seconds = reader.forward * reader.counted / operations_a_second(settings.device)
    memory = 2.0 * SHARD_BYTES + 2.0 * each * reader.batch
    return [
        Estimate(
            reader.name,
            reader.tokens,
            reader.weights,
            memory,
            seconds,
            written=float(each) * reader.counted,
        )
    ]


def operations_a_second(device: str | Mapping[str, str | int] = "cpu") -> float:
    """How fast a device (of several, the first) multiplies in float32 as it is now: the best of
    three short tries.
    """
    place = choose_device(device if isinstance(device, str) and device != "balanced" else "auto")
    side = 512 if place.type == "cpu" else 8192
    best = 0.0
    matrix = torch.ones(side, side, device=place)
    for _ in range(3):
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # which waits for a card
        best = max(best, 2.0 * side**3 / (time.perf_counter() - start))
    return best


def duration(seconds: float) -> str:
    """In words: 40 seconds, 12 minutes, 3.5 hours, 20 days."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:.2g} {unit}"
                if seconds < 100 * size
                else f"{seconds / size:,.0f} {unit}"
            )
    return f"{max(1.0, seconds):.0f} seconds"


def _sites(source: Lens | VectorSource, settings: Any) -> tuple[str, ...]:
    return source.default_sites if settings.sites is None else source.match(settings.sites)


def _tokens(settings: Any, tokenizer: object) -> int | None:
    """Tokens of the text: by its bytes and those that the beginning takes a token; None where its
    size is not known.
    """
    text: Any = settings.text
    most: int | None = settings.max_tokens
    assert text is not None
    files = find_files(text) if isinstance(text, str) or hasattr(text, "__fspath__") else None
    if files is None or any(file.suffix not in (".txt", ".jsonl") for file in files):
        return most
    first = next(documents(text, documents=settings.documents, field=settings.field), None)
    beginning = "" if first is None else first.beginning(BEGINNING)
    known = sum(
        len(stretch.ids) for stretch in tokenise([Document("beginning", [beginning])], tokenizer)
    )
    whole = int(
        sum(file.stat().st_size for file in files) * known / max(1, len(beginning.encode()))
    )
    return whole if most is None else min(whole, most)
