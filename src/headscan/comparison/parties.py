"""Who is compared: models that read a text, or stored vectors; named and checked before the first pass."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from headscan.comparison.settings import ComparisonSettings
from headscan.model import Lens
from headscan.model.load import Preparation
from headscan.model.opening import ModelLike, prepare_model
from headscan.model.settings import Loading, tokenizer_identity
from headscan.model.sites import match_sites, possible_sites
from headscan.model.tokenizers import require_tokenizer
from headscan.run import BadInput, ModelRecord, Run
from headscan.scanner.sources import KEPT_BYTES, checkpoints
from headscan.states import (
    ModelSource,
    SourceLike,
    SourcesLike,
    StoredSource,
    VectorSource,
    counted_source,
    given_sources,
)
from headscan.text.source import check_text


@dataclass
class Party:
    """One of those that are compared: its `name` in tables; a model, whose weights may wait to be read, or stored vectors."""

    name: str
    ready: Preparation | Lens | VectorSource
    settings: ComparisonSettings
    run: Run
    lens: Lens | None = None

    @property
    def tokenizer(self) -> str | None:
        """What identifies the tokenizer of a model; None of stored vectors."""
        if isinstance(self.ready, VectorSource):
            return None
        return tokenizer_identity(require_tokenizer(self.ready.tokenizer, self.name))

    @property
    def bytes(self) -> float:
        """The memory that a model's weights take."""
        if isinstance(self.ready, VectorSource):
            return 0.0
        if isinstance(self.ready, Preparation):
            return float(self.ready.bytes)
        return float(sum(p.numel() * p.element_size() for p in self.ready.model.parameters()))

    def load(self) -> Lens | None:
        """The Lens of a model, whose weights are read if they were not."""
        if self.lens is None and not isinstance(self.ready, VectorSource):
            self.lens = Lens.of(self.ready) if isinstance(self.ready, Preparation) else self.ready
        return self.lens

    def release(self) -> None:
        """Give back the memory of the weights, unless whoever called holds the model."""
        self.lens = None
        if isinstance(self.ready, Preparation):
            gc.collect()

    def source(self, *, ends: bool) -> VectorSource:
        """The model reading the text, or the stored vectors; `ends`: say where tokens end."""
        lens = self.load()
        if lens is None:
            assert isinstance(self.ready, VectorSource)
            return self.ready
        assert self.settings.text is not None  # by `parties`
        return ModelSource(
            lens, self.settings.text, self.settings, context=self.settings.context, batch=self.settings.batch, ends=ends
        )

    def sites(self, source: VectorSource) -> tuple[str, ...]:
        """The sites that are asked for, in the order of depth."""
        return source.default_sites if self.settings.sites is None else source.match(self.settings.sites)

    def record(self, source: VectorSource) -> ModelRecord:
        """What it is, under its name here."""
        return replace(source.record(), name=self.name)

    def check(self, *, weights: bool) -> None:
        """BadInput for a site that there is none of and a context that cannot be read; with `weights`, they are read."""
        if isinstance(self.ready, VectorSource):
            self.sites(self.ready)
            return
        wanted, context = self.settings.sites, self.settings.context
        lens = self.load() if weights else None
        if wanted is not None and lens is not None:
            lens.match(wanted)
        elif wanted is not None and isinstance(self.ready, Preparation):
            match_sites(wanted, possible_sites(self.ready.size.blocks), self.name)
        longest = self.ready.context_length
        if longest is not None and context > longest:
            raise BadInput(f"{self.name} reads at most {longest} tokens at once, less than {context}.")
        if self.run.folder is not None:
            identity = self.ready.identity()
            if identity is not None:
                self.run.identify(f"the weights of {self.name}", identity)


def parties(given: SourcesLike, settings: ComparisonSettings, run: Run) -> list[Party]:
    """Those that are compared, all checked. One may be named twice, and is called "NAME (2)" then; with `against`
    every model is followed by itself in so few bits.

    Raises BadInput where fewer than two are named, one cannot be read as asked, models have no text, or stored vectors
    are not of the same tokens.
    """
    sources, loading = given_sources(given), settings.part(Loading)
    if settings.revisions is not None:
        sources = checkpoints(sources, settings.revisions)
    wanted: list[tuple[str, SourceLike, Loading]] = []
    for source in sources:
        wanted.append(("", source, Loading(**loading)))
        if settings.against is not None:
            wanted.append((f" ({settings.against})", source, Loading(**loading | {"dtype": settings.against})))
    if len(wanted) < 2:
        raise BadInput("Name two at least to compare, or one model and --against 8bit, or its --revisions.")
    found: list[Party] = []
    for bits, source, loaded in wanted:
        ready = _ready(source, loaded, settings)
        own = ready.source.name if isinstance(ready, Preparation) else ready.name
        found.append(Party(_apart(own + bits, found), ready, settings, run))
    _check_together(found, settings)
    held = 0.0
    for party in found:
        held += party.bytes
        party.check(weights=held <= KEPT_BYTES)
    return found


def _ready(given: SourceLike, how: Loading, settings: ComparisonSettings) -> Preparation | Lens | VectorSource:
    """Stored vectors that are open, or a model whose weights wait to be read."""
    stored = counted_source(
        given, context=settings.context, batch=settings.batch, max_tokens=settings.max_tokens, field=settings.field
    )
    if isinstance(stored, StoredSource) and stored.vectors.window is None and stored.vectors.ids is None:
        # Rows of a table: each is a window and a document of its own.
        own = (
            stored.vectors
            if stored.vectors.documents is not None
            else replace(stored.vectors, documents=_RowNumbers(stored))
        )
        stored = StoredSource(
            own, context=1, batch=settings.batch or 2048, max_tokens=settings.max_tokens, where=stored.where
        )
    return stored or prepare_model(cast(ModelLike, given), how)


class _RowNumbers:
    """Rows numbered as they come."""

    def __init__(self, source: StoredSource) -> None:
        self.count, self.width = source.vectors.count, 1
        self.dtype = torch.int64

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        return torch.arange(first, last)[:, None]


def _check_together(found: list[Party], settings: ComparisonSettings) -> None:
    """A model needs a text to read; stored vectors must be as many."""
    models = [one for one in found if not isinstance(one.ready, VectorSource)]
    stored = [one for one in found if isinstance(one.ready, VectorSource)]
    if models and settings.text is None:
        raise BadInput(f"Say which text {models[0].name} is to read: give --text.")
    if settings.text is not None:
        if not models:
            raise BadInput(f"--text is not used: {found[0].name} holds stored vectors, which have read their text.")
        check_text(settings.text)
    counts = {one.name: one.ready.tokens for one in stored if isinstance(one.ready, VectorSource)}
    if len({count for count in counts.values() if count is not None}) > 1:
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count is not None)
        raise BadInput(f"Stored vectors are compared row by row, and these are of different numbers: {said}.")
    few = [name for name, count in counts.items() if count is not None and count < 8]
    if few:
        raise BadInput(f"Eight vectors are needed at least to compare, and {few[0]} holds {counts[few[0]]}.")


def _apart(name: str, before: list[Party]) -> str:
    """The name, with a number where it is taken."""
    taken, number, found = {party.name for party in before}, 2, name
    while found in taken:
        found, number = f"{name} ({number})", number + 1
    return found
