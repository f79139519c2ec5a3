"""The sources of a comparison: models that read a text, or stored vectors, all of them checked."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Literal, TypeGuard, cast

import torch
from torch import Tensor

from headscan.model import Lens
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.load import Preparation
from headscan.model.rounding import RoundingName
from headscan.model.settings import Loading
from headscan.model.weights import check_quantization
from headscan.run import BadInput, Run
from headscan.scanner.sources import OpenedSource, Subject, check_all
from headscan.states import (
    SourceLike,
    SourcesLike,
    StoredSource,
    VectorSource,
    given_sources,
    stored_source,
)
from headscan.states.plan import ReadingPlan
from headscan.text.source import check_text

LoadedBits = Literal["8bit", "4bit"]
"""Roundings of weights by bitsandbytes while a model is loaded."""

Against = LoadedBits | RoundingName
"""The roundings with which a model is compared; those of .gguf files round blocks."""

FEWEST_VECTORS = 8
ROWS_A_BATCH = 2048


def is_loaded_bits(against: Against | None) -> TypeGuard[LoadedBits]:
    """Return whether models are rounded while they are loaded, not block by block."""
    return against in ("8bit", "4bit")


def check_against(against: Against | None, loading: Loading, *, damage: bool) -> None:
    """Raise BadInput where bitsandbytes is missing for a rounding, or all models are rounded.

    `damage`: whether the damage is measured, for which alone blocks are rounded.
    """
    if against is None:
        return
    if is_loaded_bits(against):
        check_quantization()
    elif not damage:
        raise BadInput(f"--against {against} is not used without --damage.")
    if loading.quantize is not None:
        raise BadInput(
            f"--dtype {loading.dtype} rounds all models: --against is for models of whole weights."
        )


def compared_subjects(
    sources: SourcesLike, plan: ReadingPlan, run: Run, against: Against | None = None
) -> list[Subject]:
    """Return the sources of a comparison, all checked.

    A source may be named twice; the second is then called "NAME (2)". With `against` 8bit or 4bit
    every model is followed by itself, rounded.

    Raises BadInput where fewer than two are named, one cannot be read as planned, models have no
    text, or stored vectors are not of the same tokens.
    """
    subjects: list[Subject] = []
    for source in given_sources(sources):
        _add_subject(subjects, source, plan, run, None)
        if is_loaded_bits(against):
            _add_subject(subjects, source, plan, run, against)
    if len(subjects) < 2 and (against is None or is_loaded_bits(against)):
        raise BadInput("Name two at least to compare, or one model and --against 8bit.")
    if plan.text is not None and any(subject.reads for subject in subjects):
        check_text(plan.text)
    _check_counts(subjects)
    check_all(subjects, plan.text)
    return subjects


def _add_subject(
    subjects: list[Subject],
    source: SourceLike,
    plan: ReadingPlan,
    run: Run,
    bits: LoadedBits | None,
) -> None:
    """Add a source, rounded to so many bits, under a name that no other has."""
    loading = plan.loading if bits is None else plan.loading.but(dtype=bits)
    opened = _opened(source, loading, plan)
    name = opened.source.name if isinstance(opened, Preparation) else opened.name
    if bits is not None:
        name = f"{name} ({bits})"
    name = _unused_name(name, subjects)
    renamed = not isinstance(source, Lens)
    subjects.append(Subject(name, opened, plan, run, renamed=renamed))


def _unused_name(name: str, subjects: Sequence[Subject]) -> str:
    """Return the name, with a number where another subject has it."""
    used = {subject.name for subject in subjects}
    if name not in used:
        return name
    numbered = (f"{name} ({number})" for number in count(2))
    return next(free for free in numbered if free not in used)


def _check_counts(subjects: Sequence[Subject]) -> None:
    """Raise BadInput where stored vectors are of different numbers, or too few."""
    counts: dict[str, int] = {}
    for subject in subjects:
        states = subject.ready
        if isinstance(states, VectorSource) and states.tokens is not None:
            counts[subject.name] = states.tokens
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in counts.items())
        raise BadInput(
            f"Stored vectors are compared row by row, and these are of different numbers: {listed}."
        )
    for name, tokens in counts.items():
        if tokens < FEWEST_VECTORS:
            raise BadInput(
                f"Eight vectors are needed at least to compare, and {name} holds {tokens}."
            )


def _opened(source: SourceLike, loading: Loading, plan: ReadingPlan) -> OpenedSource:
    """Return opened stored vectors, or a model whose weights are not read yet."""
    batch = plan.windowing.batch
    max_tokens = plan.reading.max_tokens
    stored = stored_source(
        source,
        context=plan.windowing.context,
        batch=batch,
        max_tokens=max_tokens,
        field=plan.reading.field,
    )
    if stored is None:
        return prepare_model(cast(ModelLike, source), loading)
    if not isinstance(stored, StoredSource) or not _is_table(stored):
        return stored

    # Rows of a table: each is a window and a document of its own.
    vectors = stored.vectors
    if vectors.documents is None:
        vectors = replace(vectors, documents=_RowNumbers(vectors.count))
    return StoredSource(
        vectors,
        context=1,
        batch=batch or ROWS_A_BATCH,
        max_tokens=max_tokens,
        where=stored.where,
    )


def _is_table(source: StoredSource) -> bool:
    """Return whether vectors are rows without windows and token ids."""
    return source.vectors.window is None and source.vectors.ids is None


class _RowNumbers:
    """The numbers of rows in their order; see `Rows`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.width = 1
        self.dtype = torch.int64

    def read(self, first: int, last: int) -> Tensor:
        """Return the numbers of the rows first ... last − 1."""
        return torch.arange(first, last)[:, None]
