"""The sources of a scan or a comparison, all checked before the first forward pass."""

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from headscan.model import Lens
from headscan.model.finding import revisions_of
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.load import Preparation
from headscan.model.sites import match_sites, possible_sites
from headscan.model.tokenizer import load_tokenizer
from headscan.run import BadInput, Run
from headscan.states import (
    ModelSource,
    SourceLike,
    SourcesLike,
    StoredSource,
    VectorSource,
    given_sources,
    stored_source,
)
from headscan.states.plan import ReadingPlan
from headscan.states.source import reading_window
from headscan.text.prompts import require_tokenizer
from headscan.text.source import TextLike
from headscan.text.tokens import frame_of

KEPT_BYTES = 2 * 2**30
"""The weights of several models are loaded at once up to this size; those of further models are
loaded when their turn comes.
"""

OpenedSource: TypeAlias = Preparation | Lens | VectorSource
"""A model whose weights are not read yet, a model in memory, or opened stored states."""


@dataclass
class Subject:
    """One source of a verb, by the name that it has in tables.

    Attributes:
        name: in tables and messages.
        ready: the model as it was prepared or given, or the stored states.
        plan: how it is loaded and read.
        run: the run that it is identified to.
        renamed: whether the Lens takes this name; not where the user gave a Lens with a name.
        lens: the model while it is in memory.
        number: counts the sources from 1 in their order; a resumed run compares them by it.
    """

    name: str
    ready: OpenedSource
    plan: ReadingPlan
    run: Run
    renamed: bool = True
    lens: Lens | None = None
    number: int = 1

    @property
    def reads(self) -> bool:
        """Return whether the source is a model that reads a text."""
        return not isinstance(self.ready, VectorSource) or self.ready.lens is not None

    def load(self) -> Lens:
        """Return the Lens; the weights are read where they are not in memory.

        Raises BadInput on a resumed run where they are not those of the interrupted one.
        """
        assert not isinstance(self.ready, VectorSource)
        if self.lens is None:
            self.lens = Lens.of(self.ready) if isinstance(self.ready, Preparation) else self.ready
        if self.renamed:
            self.lens.name = self.name
        self.lens.identify(self.run, f"model {self.number}", named=False)
        return self.lens

    def release(self) -> None:
        """Give back the memory of the weights, unless the caller holds the model."""
        self.lens = None
        if isinstance(self.ready, Preparation):
            gc.collect()  # the modules of a model point to one another

    def source(self, text: TextLike | None, *, ends: bool = False) -> VectorSource:
        """Return the model as it reads the text, or the stored states.

        `ends`: whether batches have the characters at which tokens end.
        """
        if isinstance(self.ready, VectorSource):
            return self.ready
        return self.reading(self.load(), text, ends=ends)

    def reading(self, lens: Lens, text: TextLike | None, *, ends: bool = False) -> ModelSource:
        """Return a model as it reads the text in the windows of the plan."""
        assert text is not None  # `check_all` has seen to that
        windowing = self.plan.windowing
        return ModelSource(
            lens,
            text,
            self.plan.reading,
            context=windowing.context,
            batch=windowing.batch,
            ends=ends,
        )

    def control(
        self, source: VectorSource, text: TextLike | None
    ) -> Callable[[], VectorSource | None]:
        """Return a function that makes the random-weight control; None for stored states."""
        if source.lens is None:
            return lambda: None
        make = source.lens.twin(self.plan.seed)
        return lambda: self.reading(make(), text)

    def sites(self, source: VectorSource) -> tuple[str, ...]:
        """Return the sites of the source that are read."""
        return self.plan.sites_of(source)

    @property
    def bytes(self) -> float:
        """Return the size of the weights; 0 for stored states."""
        if isinstance(self.ready, Preparation):
            return float(self.ready.bytes)
        if isinstance(self.ready, VectorSource):
            return 0.0
        parameters = self.ready.model.parameters()
        return float(sum(tensor.numel() * tensor.element_size() for tensor in parameters))

    def check(self, *, weights: bool) -> None:
        """Check that the source can be read as planned.

        Raises BadInput for a model without a tokenizer, a site that it lacks, a context that it
        cannot read, and on a resumed run for weights, a tokenizer or states that have changed.

        `weights`: read the weights for it. Without them sites are compared with those that a model
        of so many blocks can have.
        """
        if isinstance(self.ready, VectorSource):
            self._check_states(self.ready)
            return
        model = self.load() if weights else self.ready
        require_tokenizer(model.tokenizer, self.name)
        self._check_sites(model)
        self._check_context(model)
        if isinstance(model, Preparation):
            model.identify(self.run, f"model {self.number}")
        else:
            model.identify(self.run, f"model {self.number}", named=False)

    def _check_states(self, states: VectorSource) -> None:
        self.sites(states)
        if self.run.folder is not None:
            self.run.identify(f"the states of source {self.number}", states.identity())

    def _check_sites(self, model: Preparation | Lens) -> None:
        if isinstance(model, Lens):
            self.sites(self.reading(model, []))  # any text: none is read
        elif self.plan.sites is not None:
            match_sites(self.plan.sites, possible_sites(model.size.blocks), self.name)

    def _check_context(self, model: Preparation | Lens) -> None:
        context = self.plan.windowing.context
        alone, window = reading_window(model, context)
        self.plan.check_window(window, alone=alone)
        longest = model.context_length
        if longest is None:
            return
        added = 0
        if not alone and (context is not None or window > longest):
            added = frame_of(model.tokenizer, self.plan.reading.start).length
        if window > longest - added:
            beside = f" beside {added} added ones (--start)" if added else ""
            raise BadInput(
                f"{self.name} reads at most {longest - added} tokens at once{beside}, less than "
                f"{window}: give --context {longest - added}."
            )


def check_all(subjects: Sequence[Subject], text: TextLike | None) -> None:
    """Check and number the subjects.

    The weights of a single model stay in memory, those of several as long as they are small. Those
    of the others are read once, when their turn comes.

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
    loaded_bytes = 0.0
    for number, subject in enumerate(subjects, 1):
        subject.number = number
        subject.run.identify(f"the name of source {number}", subject.name)
        loaded_bytes += subject.bytes
        subject.check(weights=len(subjects) == 1 or loaded_bytes <= KEPT_BYTES)


def listed_sources(sources: SourcesLike, revisions: str | Sequence[str] | None) -> list[SourceLike]:
    """Return the sources one by one; with revisions, those of the one model."""
    listed = given_sources(sources)
    if revisions is None:
        return listed
    if len(listed) != 1 or not isinstance(listed[0], str | os.PathLike):
        raise BadInput(
            "--revisions is for one model, named by its Hugging Face id or its folder of "
            "checkpoints."
        )
    return list(revisions_of(listed[0], revisions))


def open_subjects(
    sources: Sequence[SourceLike], plan: ReadingPlan, run: Run, *, cluster: bool = False
) -> list[Subject]:
    """Return the sources of a scan by name, all checked.

    `cluster`: the workers of a Spark cluster will read them.

    Raises BadInput where there is none, one is named twice, or one cannot be scanned as planned.
    """
    if not sources:
        raise BadInput("No model was named: name at least one model.")
    names = [_name(source) for source in sources]
    known_names = [name for name in names if name]
    if len(set(known_names)) < len(known_names):
        raise BadInput(f"A model is named twice: {', '.join(known_names)}.")

    # The configurations of all models are read before the weights of any.
    subjects = []
    short_names = []
    for name, source in zip(names, sources, strict=True):
        opened = _opened(source, plan)
        short_name = opened.source.name if isinstance(opened, Preparation) else opened.name
        short_names.append(short_name)
        renamed = not isinstance(source, Lens)
        subjects.append(Subject(name or short_name, opened, plan, run, renamed=renamed))

    for subject, short_name in zip(subjects, short_names, strict=True):
        if short_names.count(short_name) == 1:  # else folders of one name go by their paths
            subject.name = short_name
        _check_states(subject, plan, cluster=cluster)
    check_all(subjects, plan.text)
    return subjects


def _check_states(subject: Subject, plan: ReadingPlan, *, cluster: bool) -> None:
    """Check and name stored states; raise BadInput for a model that a cluster should read."""
    states = subject.ready
    if not isinstance(states, VectorSource):
        if cluster:
            raise BadInput(
                f"--engine spark reads stored states, and {subject.name} is a model: share its "
                "text by torchrun."
            )
        return
    states.name = subject.name
    if cluster:
        readable(states)
    uncut = isinstance(states, StoredSource) and not states.has_windows
    if plan.windowing.skip_first and uncut:
        raise BadInput(
            f"{states.name} holds vectors that nobody has cut into windows, so --skip-first has no "
            "first positions to leave out: --context gives the vectors of a window."
        )
    if plan.windowing.skip_first >= states.context:
        raise BadInput(
            f"--skip-first must leave at least one of the {states.context} vectors of a window."
        )


def _opened(source: SourceLike, plan: ReadingPlan) -> OpenedSource:
    """Return opened stored states, or a model whose weights are not read yet."""
    # The tokenizer of stored states turns their token ids into words; a model has its own.
    tokenizer = load_tokenizer(plan.loading.tokenizer) if plan.text is None else None
    stored = stored_source(
        source,
        context=plan.windowing.context,
        batch=plan.windowing.batch,
        max_tokens=plan.reading.max_tokens,
        field=plan.reading.field,
        tokenizer=tokenizer,
    )
    return stored or prepare_model(cast(ModelLike, source), plan.loading)


def readable(source: VectorSource) -> StoredSource:
    """Return the source; raise BadInput where the workers of a cluster cannot open it."""
    if not isinstance(source, StoredSource) or source.where is None:
        raise BadInput(
            "--engine spark reads what its workers can open themselves: give a path that all see, "
            "or a URL."
        )
    return source


def _name(source: SourceLike) -> str:
    """Return the name of a source that has one: a Lens, an id or a path."""
    if isinstance(source, Lens):
        return source.name
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return ""
