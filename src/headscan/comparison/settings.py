"""What a comparison is asked for, and its sources: models that read a text, or stored vectors, all
checked.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, count
from typing import Literal, cast

import torch
from torch import Tensor

from headscan.comparison.covariance import SIMILARITIES, SimilarityMeasure
from headscan.comparison.nulls import NULLS, NullModel
from headscan.model import Lens
from headscan.model.lens import ModelLike, prepare_model
from headscan.model.load import Preparation
from headscan.model.rounding import RoundingName
from headscan.model.settings import Loading
from headscan.model.weights import check_quantization
from headscan.run import BadInput, Run
from headscan.scanner.settings import SiteReading
from headscan.scanner.sources import Subject, check_all
from headscan.states import (
    SourceLike,
    SourcesLike,
    StoredSource,
    VectorSource,
    given_sources,
    stored_source,
)
from headscan.text.source import check_text

BITS = ("8bit", "4bit")  # by bitsandbytes, when a model is loaded
Against = Literal["8bit", "4bit"] | RoundingName


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings(SiteReading):
    """The options of a comparison; see each one's help."""

    measures: str
    nulls: str
    draws: int
    sample: int
    against: Against | None

    def check(self) -> None:
        super().check()
        SIMILARITIES.match(self.measures)
        NULLS.match(self.nulls)
        if self.against is not None:
            if self.against not in BITS and find_spec("gguf") is None:
                raise BadInput(
                    'Blocks of a .gguf file need the package gguf: pip install "headscan[gguf]".'
                )
            if self.against in BITS:
                check_quantization()
            if self.quantize is not None:
                raise BadInput(
                    f"--dtype {self.dtype} rounds all models: --against is for models of whole "
                    "weights."
                )

    def chosen(self) -> dict[str, SimilarityMeasure]:
        """The measures that are asked for, by name, in their order."""
        measures = {name: SIMILARITIES[name]() for name in SIMILARITIES.match(self.measures)}
        return dict(sorted(measures.items(), key=lambda item: item[1].words.order))

    def chance(self) -> dict[str, NullModel]:
        """The nulls that are asked for, by name, in the order in which they were named."""
        named = [name for glob in self.nulls.split(",") for name in NULLS.match(glob.strip())]
        return {name: NULLS[name]() for name in dict.fromkeys(named)}


def compared_subjects(given: SourcesLike, settings: ComparisonSettings, run: Run) -> list[Subject]:
    """Those that are compared, all checked. One may be named twice, and is called "NAME (2)" then;
    with `against` 8 or 4 bits every model is followed by itself in so few bits.

    Raises BadInput where fewer than two are named, one cannot be read as asked, models have no
    text, or stored vectors are not of the same tokens.
    """
    loading = settings.part(Loading)
    subjects = list[Subject]()
    for source in given_sources(given):
        for bits in dict.fromkeys([None, settings.against if settings.against in BITS else None]):
            how = loading if bits is None else loading | {"dtype": bits}
            ready = _ready(source, Loading(**how), settings)
            name = ready.source.name if isinstance(ready, Preparation) else ready.name
            name = _apart(name if bits is None else f"{name} ({bits})", subjects)
            subjects.append(
                Subject(name, ready, settings, run, renamed=not isinstance(source, Lens))
            )
    if len(subjects) < 2 and settings.against in (None, *BITS):
        raise BadInput("Name two at least to compare, or one model and --against 8bit.")
    if settings.text is not None and any(subject.reads for subject in subjects):
        check_text(settings.text)
    counts = {one.name: one.ready.tokens for one in subjects if isinstance(one.ready, VectorSource)}
    known = {name: count for name, count in counts.items() if count is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name} {count:,}" for name, count in known.items())
        raise BadInput(
            f"Stored vectors are compared row by row, and these are of different numbers: {listed}."
        )
    if few := [name for name, count in known.items() if count < 8]:
        raise BadInput(
            f"Eight vectors are needed at least to compare, and {few[0]} holds {known[few[0]]}."
        )
    check_all(subjects, settings.text)
    return subjects


def _ready(
    given: SourceLike, how: Loading, settings: ComparisonSettings
) -> Preparation | Lens | VectorSource:
    """Stored vectors that are open, or a model whose weights wait to be read."""
    limits = {"batch": settings.batch, "max_tokens": settings.max_tokens}
    stored = stored_source(given, context=settings.context, field=settings.field, **limits)
    if (
        isinstance(stored, StoredSource)
        and stored.vectors.window is None
        and stored.vectors.ids is None
    ):
        # Rows of a table: each is a window and a document of its own.
        own = stored.vectors
        if own.documents is None:
            own = replace(own, documents=_RowNumbers(own.count))
        stored = StoredSource(
            own, context=1, where=stored.where, **limits | {"batch": settings.batch or 2048}
        )
    return stored or prepare_model(cast(ModelLike, given), how)


class _RowNumbers:
    """Rows numbered as they come; see `Rows`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.width = 1
        self.dtype = torch.int64

    def read(self, first: int, last: int) -> Tensor:
        return torch.arange(first, last)[:, None]


def _apart(name: str, before: list[Subject]) -> str:
    """The name, with a number where it is taken."""
    taken = {subject.name for subject in before}
    free = chain([name], (f"{name} ({number})" for number in count(2)))
    return next(one for one in free if one not in taken)
