"""The memory, disk and time that a verb will take, known before any weights are read.

`--dry-run` prints an `Estimate` for each source.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from headscan.model.lens import Lens, ModelLike, prepare_model
from headscan.model.load import Preparation
from headscan.model.settings import choose_device
from headscan.model.sites import match_sites, possible_sites
from headscan.run import BadInput
from headscan.states.plan import ReadingPlan
from headscan.states.source import VectorSource, reading_window
from headscan.states.stored import SourceLike, stored_source
from headscan.text import Document, check_text, documents, tokenise
from headscan.text.prompts import require_tokenizer
from headscan.text.source import TextLike, find_files

COUNTED_CHARACTERS = 2**16
"""The tokens of a text are estimated from so many characters of its beginning."""

TRIED_ON_CPU = 2 * 10**10
TRIED_ON_DEVICE = 2 * 10**12
"""Operations of a pass that is timed, at most."""

TOKENS_OF_UNKNOWN_LENGTH = 1_000_000
"""Times are given for so many tokens where the length of the text is not known."""


@dataclass(frozen=True)
class Estimate:
    """The resources that a verb will take for one source.

    `seconds` are those of all tokens (of a million where `tokens` is None) on this machine as it is
    now: the operations of the forward pass and of the sums, at the speed of an MLP of the model's
    width that was timed. Four scans of models of 0.26 to 110 million weights took 1.1 to 1.5 times
    as long on a CPU, beside the start of Python.
    """

    name: str  # of the source
    tokens: int | None  # that will be read; None for a folder of packed files and a stream
    weights: float  # bytes of the model
    memory: float  # an upper bound of the bytes held beside the model
    seconds: float
    written: float = 0.0  # bytes on the disk
    note: str = ""  # what the estimate leaves out

    @property
    def held(self) -> str:
        """Return the memory in words."""
        gigabytes = f"{self.memory / 1e9:.2g} GB"
        return f"at most {gigabytes} beside the model" if self.weights else gigabytes

    def __str__(self) -> str:
        size = "each million tokens" if self.tokens is None else f"{self.tokens:,} tokens"
        model = f"{self.weights / 1e9:.2g} GB of weights and " if self.weights else ""
        disk = f", {self.written / 1e9:.2g} GB on the disk" if self.written else ""
        note = f" {self.note}" if self.note else ""
        time_needed = f"about {duration(self.seconds)} for {size}"
        return f"{self.name}: {model}{self.held}{disk}; {time_needed}.{note}"


@dataclass(frozen=True, kw_only=True)
class ExpectedReader:
    """A source as far as it is known before it is read."""

    name: str
    tokens: int | None  # of the text; None where its length is not known
    weights: float  # bytes
    forward: float  # operations of the forward pass of one token
    widths: Mapping[str, int]  # by site
    batch: int  # tokens of a forward pass
    context: int  # tokens of a window
    alone: bool = False  # whether each document is a window

    @property
    def counted(self) -> int:
        """Return the tokens that times are given for."""
        return self.tokens or TOKENS_OF_UNKNOWN_LENGTH

    def operations_a_second(self, device: str | Mapping[str, str | int]) -> float:
        """Return how many operations a device does in a second in a model of this size.

        Elsewhere than on a CPU a model of 16-bit weights is timed in 16 bits.
        """
        bytes_of_weight = 2.0 * self.weights / self.forward if self.forward else 4.0
        half = bytes_of_weight <= 2 and device != "cpu" and torch.cuda.is_available()
        dtype = torch.bfloat16 if half else torch.float32
        return operations_a_second(device, width=max(self.widths.values()), dtype=dtype)


@dataclass(frozen=True)
class _ModelSize:
    """The numbers of a model that an estimate needs."""

    name: str
    entries: int  # of the weights
    bytes: float
    widths: Mapping[str, int]  # by site


def expected_reader(source: SourceLike, plan: ReadingPlan) -> ExpectedReader:
    """Return what is known of a source before its weights are read.

    Raises BadInput as the verb does for what can be known without the weights.
    """
    windowing = plan.windowing
    stored = stored_source(
        source,
        context=windowing.context,
        batch=windowing.batch,
        max_tokens=plan.reading.max_tokens,
        field=plan.reading.field,
    )
    if stored is not None:
        return _of_stored(stored, plan)

    model = prepare_model(cast(ModelLike, source), plan.loading)
    if plan.text is None:
        raise BadInput("A model reads a text: say which, by --text.")
    check_text(plan.text)
    size = _size_of_live(model, plan) if isinstance(model, Lens) else _size_of_files(model, plan)
    tokenizer = require_tokenizer(model.tokenizer, size.name)
    alone, context = reading_window(model, windowing.context)
    windows = windowing.batch or max(1, 2048 // context)
    return ExpectedReader(
        name=size.name,
        tokens=_text_tokens(plan.text, plan, tokenizer),
        weights=float(size.bytes),
        forward=2.0 * size.entries,
        widths=size.widths,
        batch=windows * context,
        context=context,
        alone=alone,
    )


def _of_stored(source: VectorSource, plan: ReadingPlan) -> ExpectedReader:
    return ExpectedReader(
        name=source.name,
        tokens=source.tokens,
        weights=0.0,
        forward=0.0,
        widths={site: source.width(site) for site in plan.sites_of(source)},
        batch=source.batch * source.context,
        context=source.context,
        alone=source.alone,
    )


def _size_of_files(model: Preparation, plan: ReadingPlan) -> _ModelSize:
    """Return the size of a model whose weights are not read: its sites are those of its blocks."""
    name = model.source.name
    blocks = model.size.blocks
    if plan.sites is None:
        sites = [f"site.{number}" for number in range(blocks + 2)]
    else:
        matched = match_sites(plan.sites, possible_sites(blocks), name)
        decoder_only = [site for site in matched if not site.startswith(("encoder.", "decoder."))]
        sites = decoder_only or list(matched)
    width = int(model.config.get_text_config().hidden_size)
    return _ModelSize(name, model.size.entries, model.bytes, dict.fromkeys(sites, width))


def _size_of_live(lens: Lens, plan: ReadingPlan) -> _ModelSize:
    """Return the size of a model in memory."""
    entries = 0
    size_in_bytes = 0
    for parameter in lens.model.parameters():
        entries += parameter.numel()
        size_in_bytes += parameter.numel() * parameter.element_size()
    widths = {site: lens.width(site) for site in plan.sites_of(lens)}
    return _ModelSize(lens.name, entries, size_in_bytes, widths)


def _text_tokens(text: TextLike, plan: ReadingPlan, tokenizer: object) -> int | None:
    """Return about how many tokens of the text are read; None where its size is not known.

    The tokens of its beginning are counted, and those of all its bytes follow in proportion.
    """
    reading = plan.reading
    files = _files_of(text)
    if files is None or any(file.suffix not in (".txt", ".jsonl") for file in files):
        return reading.max_tokens

    document = next(documents(text, documents=reading.documents, field=reading.field), None)
    beginning = "" if document is None else document.beginning(COUNTED_CHARACTERS)
    stretches = tokenise([Document("beginning", [beginning])], tokenizer)
    tokens_of_beginning = sum(len(stretch.ids) for stretch in stretches)
    bytes_of_beginning = max(1, len(beginning.encode()))
    bytes_of_files = sum(file.stat().st_size for file in files)
    tokens = int(bytes_of_files * tokens_of_beginning / bytes_of_beginning)
    return tokens if reading.max_tokens is None else min(tokens, reading.max_tokens)


def _files_of(text: TextLike) -> list[Path] | None:
    if isinstance(text, str) or hasattr(text, "__fspath__"):
        return find_files(text)
    return None


def operations_a_second(
    device: str | Mapping[str, str | int] = "cpu",
    *,
    width: int = 512,
    dtype: torch.dtype = torch.float32,
) -> float:
    """Return how many operations a device does in a second in an MLP of this width: the best of
    three passes.

    Of a model that is spread over several devices, the default device is timed.
    """
    named = isinstance(device, str) and device != "balanced"
    timed_device = choose_device(device if named else "auto")  # type: ignore[arg-type]
    operations_of_row = 16 * width**2
    if timed_device.type == "cpu":
        rows = min(TRIED_ON_CPU // operations_of_row, 512)
    else:
        rows = min(TRIED_ON_DEVICE // operations_of_row, 8192)
    rows = max(rows, 16)
    states = torch.ones(rows, width, device=timed_device, dtype=dtype)
    up = torch.ones(width, 4 * width, device=timed_device, dtype=dtype)
    fastest = 0.0
    for _ in range(3):
        start = time.perf_counter()
        hidden = torch.nn.functional.gelu(states @ up)
        float((hidden @ up.T)[0, 0])  # reading an entry waits for a GPU
        seconds = time.perf_counter() - start
        fastest = max(fastest, rows * operations_of_row / seconds)
    return fastest


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(40.2), duration(720), duration(12_600), duration(1_728_000)
    ('40 seconds', '12 minutes', '3.5 hours', '20 days')
    """
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 100 * size:
            return f"{seconds / size:,.0f} {unit}"
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"
