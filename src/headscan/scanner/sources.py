"""The sources of a scan or a comparison: named and checked, all of them, before the first forward
pass over the text.
"""

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from headscan.model import Lens
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.load import Preparation, load_tokenizer
from headscan.model.settings import Loading
from headscan.model.sites import match_sites, possible_sites
from headscan.model.tokenizer import load_tokenizer
from headscan.run import BadInput, Run
from headscan.scanner.settings import Scanning, SiteReading
from headscan.states import (
    ModelSource,
    SourceLike,
    SourcesLike,
    StoredSource,
    VectorSource,
    stored_source,
)
from headscan.states.source import reading_window
from headscan.text.prompts import require_tokenizer
from headscan.text.source import TextLike

KEPT_BYTES = 2 * 2**30
"""Weights of several models that are read at once; beyond, a model's are read when its turn comes.
"""


@dataclass
class Subject:
    """One source: `name` in tables, the model as it was prepared or given, its Lens while it is in
    memory; or stored states.

    A live model goes by its own name where it is a Lens (`renamed` is False). `number` counts the
    sources from 1, in the order in which they were given: a resumed run compares them by it.
    """

    name: str
    ready: Preparation | Lens | VectorSource
    settings: SiteReading
    run: Run
    renamed: bool = True
    lens: Lens | None = None
    number: int = 1

    @property
    def reads(self) -> bool:
        return not isinstance(self.ready, VectorSource) or self.ready.lens is not None

    def load(self) -> Lens:
        """The Lens; its weights are read where they are not in memory, and must be those of a run
        that is resumed.
        """
        assert not isinstance(self.ready, VectorSource)
        if self.lens is None:
            self.lens = Lens.of(self.ready) if isinstance(self.ready, Preparation) else self.ready
        if self.renamed:
            self.lens.name = self.name
        self.lens.identify(self.run, f"model {self.number}", named=False)
        return self.lens

    def release(self) -> None:
        """Give back the memory of the weights, unless whoever called holds the model."""
        self.lens = None
        if isinstance(self.ready, Preparation):
            gc.collect()  # the modules of a model point to one another

    def source(self, text: TextLike | None, *, ends: bool = False) -> VectorSource:
        """The model reading the text, or the stored states; `ends`: say where tokens end."""
        return (
            self.ready
            if isinstance(self.ready, VectorSource)
            else self.reading(self.load(), text, ends=ends)
        )

    def reading(self, lens: Lens, text: TextLike | None, *, ends: bool = False) -> ModelSource:
        settings = self.settings
        assert text is not None  # by `check_text_of`
        return ModelSource(
            lens, text, settings, context=settings.context, batch=settings.batch, ends=ends
        )

    def control(
        self, source: VectorSource, text: TextLike | None
    ) -> Callable[[], VectorSource | None]:
        """Makes the random-weight control; nothing of stored states."""
        if source.lens is None:
            return lambda: None
        make = source.lens.twin(self.settings.seed)
        return lambda: self.reading(make(), text)

    def sites(self, source: VectorSource) -> tuple[str, ...]:
        return (
            source.default_sites
            if self.settings.sites is None
            else source.match(self.settings.sites)
        )

    @property
    def bytes(self) -> float:
        if isinstance(self.ready, Preparation):
            return float(self.ready.bytes)
        if isinstance(self.ready, VectorSource):
            return 0.0
        return float(sum(p.numel() * p.element_size() for p in self.ready.model.parameters()))

    def check(self, *, weights: bool) -> None:
        """See that the source can be read as asked; with `weights`, they are read for it.

        Raises BadInput for a model without a tokenizer, a site that it has not, a context that it
        cannot read, and on a resumed run for weights, a tokenizer or states that are not those of
        before. Without the weights, sites are held against those that a model of so many blocks can
        have.
        """
        if isinstance(self.ready, VectorSource):
            self.sites(self.ready)
            if self.run.folder is not None:
                self.run.identify(f"the states of source {self.number}", self.ready.identity())
            return
        ready = self.load() if weights else self.ready
        name = self.name
        wanted = self.settings.sites
        require_tokenizer(ready.tokenizer, name)
        if isinstance(ready, Lens):
            # a source of its sites, whose text is not read
            self.sites(self.reading(ready, self.name))
        elif wanted is not None:
            match_sites(wanted, possible_sites(ready.size.blocks), name)
        alone, context = reading_window(ready, self.settings.context)
        self.settings.check_window(context, alone=alone)
        longest = ready.context_length
        wanted_context = self.settings.context or context
        if longest is not None and wanted_context > longest:
            raise BadInput(
                f"{name} reads at most {longest} tokens at once, less than {wanted_context}: give "
                f"--context {longest}."
            )
        if isinstance(ready, Preparation):
            ready.identify(self.run, f"model {self.number}")
        else:
            ready.identify(self.run, f"model {self.number}", named=False)


def check_all(subjects: Sequence[Subject], text: TextLike | None) -> None:
    """Check every subject. The weights of a single model stay in memory, of several as long as they
    are small; those of the others are read when their turn comes, once.

    Raises BadInput where a model has no text to read, or a text is given and only stored states are
    there, which read none.
    """
    models = [subject.name for subject in subjects if subject.reads]
    if models and text is None:
        raise BadInput(f"Say which text {models[0]} is to read: --text TEXT.")
    if not models and text is not None:
        raise BadInput(
            f"--text is not used: {subjects[0].name} holds stored states, which have read their "
            "text."
        )
    if subjects:
        subjects[0].run.identify("the number of sources", len(subjects))
    held = 0.0
    for number, subject in enumerate(subjects, 1):
        subject.number = number
        subject.run.identify(f"the name of source {number}", subject.name)
        held += subject.bytes
        subject.check(weights=len(subjects) == 1 or held <= KEPT_BYTES)


def subjects(models: SourcesLike, settings: Scanning, run: Run) -> list[Subject]:
    """The sources of a scan by name, all checked.

    Raises BadInput where none is named, one twice, or one cannot be scanned as asked.
    """
    if not (sources := settings.sources(models)):
        raise BadInput("No model was named: name at least one model.")
    names = [_name(source) for source in sources]
    known = [name for name in names if name]
    if len(set(known)) < len(known):
        raise BadInput(f"A model is named twice: {', '.join(known)}.")
    every = list[Subject]()
    shorts = list[str]()
    for name, source in zip(
        names, sources, strict=True
    ):  # configurations of all, before the weights of any are read
        ready = _ready(source, settings)
        shorts.append(ready.source.name if isinstance(ready, Preparation) else ready.name)
        every.append(
            Subject(name or shorts[-1], ready, settings, run, renamed=not isinstance(source, Lens))
        )
    for subject, short in zip(every, shorts, strict=True):  # folders of one name go by their paths
        subject.name = short if shorts.count(short) == 1 else subject.name
        if isinstance(subject.ready, VectorSource):
            subject.ready.name = subject.name
            if settings.engine == "spark":
                readable(subject.ready)
            if settings.skip_first >= subject.ready.context:
                raise BadInput(
                    f"--skip-first must leave at least one of the {subject.ready.context} vectors "
                    "of a window."
                )
        elif settings.engine == "spark":
            raise BadInput(
                f"--engine spark reads stored states, and {subject.name} is a model: share its "
                "text by torchrun."
            )
    check_all(every, settings.text)
    return every


def _ready(given: SourceLike, settings: Scanning) -> Preparation | Lens | VectorSource:
    """Stored states that are open, or a model whose weights wait to be read."""
    stored = stored_source(
        given,
        context=settings.context,
        batch=settings.batch,
        max_tokens=settings.max_tokens,
        field=settings.field,
        tokenizer=load_tokenizer(settings.tokenizer) if settings.text is None else None,
    )
    return stored or prepare_model(cast(ModelLike, given), Loading(**settings.part(Loading)))


def readable(source: VectorSource) -> StoredSource:
    """The source, if the workers of a cluster can open it."""
    if not isinstance(source, StoredSource) or source.where is None:
        raise BadInput(
            "--engine spark reads what its workers can open themselves: give a path that all see, "
            "or a URL."
        )
    return source


def _name(model: SourceLike) -> str:
    return (
        model.name
        if isinstance(model, Lens)
        else os.fspath(model)
        if isinstance(model, str | os.PathLike)
        else ""
    )
