"""What a scan will take in memory and time, said before anything is read but the beginning of the text; for `--dry-run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

from headscan.geometry.choose import choose
from headscan.geometry.estimate import Memory, operations_a_second
from headscan.geometry.settings import Scanning
from headscan.model import Lens
from headscan.model.load import Preparation
from headscan.model.opening import ModelLike, prepare_model
from headscan.model.tokenizers import require_tokenizer
from headscan.run import BadInput, takes
from headscan.states import SourceLike, SourcesLike, VectorSource, given_sources, stored_source
from headscan.text import check_text
from headscan.text.documents import Document, documents
from headscan.text.source import find_files
from headscan.text.tokens import tokenise

__all__ = ["ScanEstimate", "estimate_scan"]

BEGINNING = 2**16
"""Characters of the text by which its tokens are counted."""


@dataclass(frozen=True)
class ScanEstimate:
    """What one source of a scan will take.

    Attributes:
        name: of the source. tokens: that will be read, None where that is not known (a folder of packed files, a stream).
        weights: bytes of the model. memory: the bound of what is held beside it.
        seconds: of all tokens on this machine as it is now, by the operations of the forward pass and of the sums, at the speed
            of a product that was timed; of a million where `tokens` is None. Good to a factor of two or three.
    """

    name: str
    tokens: int | None
    weights: float
    memory: Memory
    seconds: float

    def __str__(self) -> str:
        of = f"{self.tokens:,} tokens" if self.tokens is not None else "each million tokens"
        model = f"{self.weights / 1e9:.2g} GB of weights and " if self.weights else ""
        return f"{self.name}: {model}{self.memory}; about {_duration(self.seconds)} for {of}."


@takes(Scanning)
def estimate_scan(sources: SourcesLike, settings: Scanning) -> list[ScanEstimate]:
    """An estimate for each source of a scan with these options, without reading weights and without writing anything.

    Raises BadInput as `scan` does for what can be known without the weights.

    >>> one, = estimate_scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> one.tokens, one.weights > 1e6, one.seconds > 0
    (1280, True, True)
    """
    rate = operations_a_second()
    return [_estimate(one, settings, rate) for one in given_sources(sources)]


def _estimate(given: SourceLike, settings: Scanning, rate: float) -> ScanEstimate:
    stored = stored_source(
        given, context=settings.context, batch=settings.batch, max_tokens=settings.max_tokens, field=settings.field
    )  # fmt: skip
    if stored is not None:
        return _of_store(stored, settings, rate)
    ready = prepare_model(cast(ModelLike, given), settings)
    if settings.text is None:
        raise BadInput("A model reads a text: say which, by --text.")
    check_text(settings.text)
    if isinstance(ready, Preparation):
        name, entries, weights, blocks = ready.source.name, ready.size.entries, ready.bytes, ready.size.blocks
        config = ready.config.get_text_config()
        widths = {f"site.{k}": int(config.hidden_size) for k in range(blocks + 2)}
    else:
        parameters = list(ready.model.parameters())
        name, entries = ready.name, sum(one.numel() for one in parameters)
        weights = float(sum(one.numel() * one.element_size() for one in parameters))
        widths = {site: ready.width(site) for site in _sites(ready, settings)}
    if settings.sites is not None and isinstance(ready, Preparation):
        from headscan.model.sites import match_sites, possible_sites

        asked = match_sites(settings.sites, possible_sites(ready.size.blocks), name)
        asked = tuple(one for one in asked if not one.startswith(("encoder.", "decoder."))) or asked
        widths = dict.fromkeys(asked, int(ready.config.get_text_config().hidden_size))
    tokens = _tokens(settings, require_tokenizer(ready.tokenizer, name))
    batch = (settings.batch or max(1, 2048 // settings.context)) * settings.context
    passes = 2 if settings.null else 1
    return _made(name, tokens, widths, batch, settings, weights, passes * 2.0 * entries, rate)


def _sites(source: Lens | VectorSource, settings: Scanning) -> tuple[str, ...]:
    return source.default_sites if settings.sites is None else source.match(settings.sites)


def _of_store(source: VectorSource, settings: Scanning, rate: float) -> ScanEstimate:
    widths = {site: source.width(site) for site in _sites(source, settings)}
    return _made(source.name, source.tokens, widths, source.batch * source.context, settings, 0.0, 0.0, rate)


def _made(
    name: str, tokens: int | None, widths: dict[str, int], batch: int, settings: Scanning, weights: float, forward: float,
    rate: float,
) -> ScanEstimate:  # fmt: skip
    """`forward`: operations a token of the model; second moments take d² in float64, at half the speed, and as much again."""
    memory = Memory.of(
        widths, context=settings.context, batch=batch, tokens=tokens, measures=len(choose(settings.measures)[0])
    )
    each = forward + sum(4.0 * width**2 for width in widths.values())
    finish = sum(20.0 * width**3 for width in widths.values())
    return ScanEstimate(name, tokens, weights, memory, (each * (tokens or 1_000_000) + finish) / rate)


def _tokens(settings: Scanning, tokenizer: object) -> int | None:
    """Tokens of the text: by its bytes and those that the beginning takes a token; None where its size is not known."""
    text, most = settings.text, settings.max_tokens
    assert text is not None
    files = find_files(text) if isinstance(text, str) or hasattr(text, "__fspath__") else None
    if files is None or any(file.suffix not in (".txt", ".jsonl") for file in files):
        return most
    first = next(_beginnings(settings), "")
    known = sum(len(stretch.ids) for stretch in tokenise([Document("beginning", [first])], tokenizer))
    whole = int(sum(file.stat().st_size for file in files) * known / max(1, len(first.encode())))
    return whole if most is None else min(whole, most)


def _beginnings(settings: Scanning) -> Iterator[str]:
    assert settings.text is not None
    for one in islice(documents(settings.text, documents=settings.documents, field=settings.field), 1):
        yield one.beginning(BEGINNING)


def _duration(seconds: float) -> str:
    """In words: 40 seconds, 12 minutes, 3.5 hours, 20 days."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"
