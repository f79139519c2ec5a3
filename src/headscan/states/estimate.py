"""What a verb that reads vectors will take in memory, disk and time, said before weights are read; for `--dry-run`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from headscan.model import Lens
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.load import Preparation
from headscan.model.settings import Loading, choose_device
from headscan.model.sites import match_sites, possible_sites
from headscan.model.tokenizers import require_tokenizer
from headscan.run import BadInput, Given, estimates
from headscan.states.source import VectorSource
from headscan.states.stored import SourceLike, stored_source
from headscan.states.writing import SHARD_BYTES, Storing, run
from headscan.text import Document, check_text, documents, tokenise
from headscan.text.source import find_files

BEGINNING = 2**16
"""Characters of the text by which its tokens are counted."""
ITEM = {"same": 4, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Estimate:
    """What a verb will take.

    `seconds` are those of all tokens (of a million where `tokens` is None) on this machine as it is now: the operations of
    the forward pass and of the sums, at the speed of a product that was timed. Good to a factor of two or three.
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
        return f"at most {self.memory / 1e9:.2g} GB beside the model" if self.weights else f"{self.memory / 1e9:.2g} GB"

    def __str__(self) -> str:
        of = f"{self.tokens:,} tokens" if self.tokens is not None else "each million tokens"
        model = f"{self.weights / 1e9:.2g} GB of weights and " if self.weights else ""
        disk = f", {self.written / 1e9:.2g} GB on the disk" if self.written else ""
        end = f" {self.note}" if self.note else ""
        return f"{self.name}: {model}{self.held}{disk}; about {duration(self.seconds)} for {of}.{end}"


@dataclass(frozen=True)
class ExpectedReader:
    """A source before it is read."""

    name: str
    tokens: int | None  # in all, where that is known
    weights: float  # bytes
    forward: float  # operations of the forward pass a token
    widths: Mapping[str, int]  # by site
    batch: int  # tokens

    @property
    def counted(self) -> int:
        return self.tokens or 1_000_000


def expected_reader(given: SourceLike, settings: Any) -> ExpectedReader:
    """A source as it is known without its weights; raises BadInput as the verb does for what can be known so."""
    reading = {name: getattr(settings, name) for name in ("context", "batch", "max_tokens", "field")}
    if (stored := stored_source(given, **reading)) is not None:
        widths = {site: stored.width(site) for site in _sites(stored, settings)}
        return ExpectedReader(stored.name, stored.tokens, 0.0, 0.0, widths, stored.batch * stored.context)
    ready = prepare_model(cast(ModelLike, given), Loading(**settings.part(Loading)))
    if settings.text is None:
        raise BadInput("A model reads a text: say which, by --text.")
    check_text(settings.text)
    if isinstance(ready, Preparation):
        name, entries, weights = ready.source.name, ready.size.entries, ready.bytes
        width, blocks = int(ready.config.get_text_config().hidden_size), ready.size.blocks
        sites: Sequence[str] = [f"site.{k}" for k in range(blocks + 2)]
        if settings.sites is not None:
            asked = match_sites(settings.sites, possible_sites(blocks), name)
            sites = [site for site in asked if not site.startswith(("encoder.", "decoder."))] or asked
        widths = dict.fromkeys(sites, width)
    else:
        parameters = list(ready.model.parameters())
        name, entries = ready.name, sum(one.numel() for one in parameters)
        weights = sum(one.numel() * one.element_size() for one in parameters)
        widths = {site: ready.width(site) for site in _sites(ready, settings)}
    tokens = _tokens(settings, require_tokenizer(ready.tokenizer, name))
    batch = (settings.batch or max(1, 2048 // settings.context)) * settings.context
    return ExpectedReader(name, tokens, float(weights), 2.0 * entries, widths, batch)


@estimates(run)
def estimate_states(given: Given) -> list[Estimate]:
    """What `headscan states` will take, and write, without reading weights and without writing anything.

    Raises BadInput as `headscan.states.run` does for what can be known without the weights.

    >>> one, = estimate_states("gpt-vanilla", "stories", max_tokens=1280, context=64, sites="block.0", out="states")
    >>> one.tokens, one.written == 1280 * (128 + 2) * 4
    (1280, True)
    """
    settings = given.chosen(Storing)
    reader = expected_reader(given["model"], settings)
    each = ITEM[settings.store] * sum(reader.widths.values()) + 8  # token id and document beside the vectors
    seconds = reader.forward * reader.counted / operations_a_second(settings.device)
    memory = 2.0 * SHARD_BYTES + 2.0 * each * reader.batch
    return [Estimate(reader.name, reader.tokens, reader.weights, memory, seconds, written=float(each) * reader.counted)]


def operations_a_second(device: str | Mapping[str, str | int] = "cpu") -> float:
    """Of a product in float32 on a device (of several, the first) as it is now, the best of three short tries."""
    place = choose_device(device if isinstance(device, str) and device != "balanced" else "auto")
    side, best = 512 if place.type == "cpu" else 8192, 0.0
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
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"


def _sites(source: Lens | VectorSource, settings: Any) -> tuple[str, ...]:
    return source.default_sites if settings.sites is None else source.match(settings.sites)


def _tokens(settings: Any, tokenizer: object) -> int | None:
    """Tokens of the text: by its bytes and those that the beginning takes a token; None where its size is not known."""
    text: Any = settings.text
    most: int | None = settings.max_tokens
    assert text is not None
    files = find_files(text) if isinstance(text, str) or hasattr(text, "__fspath__") else None
    if files is None or any(file.suffix not in (".txt", ".jsonl") for file in files):
        return most
    first = next(documents(text, documents=settings.documents, field=settings.field), None)
    beginning = "" if first is None else first.beginning(BEGINNING)
    known = sum(len(stretch.ids) for stretch in tokenise([Document("beginning", [beginning])], tokenizer))
    whole = int(sum(file.stat().st_size for file in files) * known / max(1, len(beginning.encode())))
    return whole if most is None else min(whole, most)
