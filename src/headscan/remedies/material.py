"""What a remedy is fitted on, and what it is judged by: vectors of a model's texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from headscan.geometry.sentences import mean_states, sentence_ids
from headscan.model.opening import ModelLike, open_model
from headscan.model.pooling import declared_pooling, declares_unit_length
from headscan.remedies.remedy import FittingData
from headscan.remedies.retrieval import HeldOutPairs
from headscan.remedies.settings import RemedySettings
from headscan.run import BadInput, ModelRecord, Run, TextRecord
from headscan.states import VectorSource
from headscan.text import PairSet
from headscan.text.documents import documents

__all__ = ["RemedyMaterial", "material_of_model"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RemedyMaterial:
    """Vectors to fit on and to judge by.

    Attributes:
        name, record, site: whose vectors. text: what they are of.
        fitting: of those that are fitted on; fitted: how many these are.
        vectors: those to judge by [n, d]. groups: those of one number err together [n].
        sets: of their rows the pairs; empty where there are none.
        other: another version of `vectors` [n, d'], where there is one.
        source: the stored vectors, where they are some. folder: the model's, where it has one.
        notes: what a reader must know.
    """

    name: str
    record: ModelRecord
    site: str
    fitting: FittingData
    fitted: int
    vectors: Floats
    groups: npt.NDArray[np.int64]
    sets: list[HeldOutPairs]
    text: TextRecord | None = None
    other: Floats | None = None
    source: VectorSource | None = None
    folder: str | None = None
    notes: tuple[str, ...] = ()


def material_of_model(given: ModelLike, settings: RemedySettings, run: Run) -> RemedyMaterial:
    """The vectors of texts under a model: fitted on `--text` or on half of the pairs' texts, judged by the (other) pairs."""
    sets = settings.pair_sets()
    if not sets:
        raise BadInput("Say by what a model's remedies are judged: --pairs FILE of texts that mean the same.")
    embedder = _TextEmbedder(given, settings)
    texts = list(dict.fromkeys(text for found in sets for text in _texts(found)))
    row = {text: k for k, text in enumerate(texts)}
    group = _connected(len(texts), [(row[a], row[b]) for found in sets for a, b in _links(found)])
    if settings.text is None:
        chosen = np.random.default_rng(settings.seed).permutation(int(group.max()) + 1) % 2 == 0
        held = ~chosen[group]
        train = [text for text, judged in zip(texts, held.tolist(), strict=True) if not judged]
    else:
        held = np.ones(len(texts), dtype=bool)
        read = (one.text() for one in documents(settings.text, documents=settings.documents, field=settings.field))
        train = [text for text in dict.fromkeys(one.strip() for one in read) if text and text not in row]
    if len(train) < 2 or held.sum() < 2:
        raise BadInput(f"There are {len(train)} texts to fit on and {int(held.sum())} to judge by: give more.")
    judged = [text for text, one in zip(texts, held.tolist(), strict=True) if one]
    run.progress("texts", 0, len(train) + len(judged), "texts")
    fit = embedder.vectors(train)
    run.progress("texts", len(train), len(train) + len(judged), "texts")
    vectors = embedder.vectors(judged)
    run.progress("texts", len(train) + len(judged), len(train) + len(judged), "texts")
    place = {text: k for k, text in enumerate(judged)}
    own = group[held]
    made = [one for found in sets if (one := _pairs(found, place, own)) is not None]
    if not made:
        raise BadInput("No pair of two different texts is left to judge by: give more pairs.")
    other = None if settings.against is None else _TextEmbedder(settings.against, settings).vectors(judged)
    whole = "half of the texts of the pairs" if settings.text is None else "the text's documents"
    return RemedyMaterial(
        embedder.name, embedder.record, embedder.site, FittingData.of_rows(fit), len(fit), vectors, own, made, other=other,
        folder=embedder.folder,
        notes=(f"Fitted on {whole} ({len(fit):,}); judged by texts that were not among them. {embedder.said}",),
    )  # fmt: skip


class _TextEmbedder:
    """Texts to vectors as a sentence encoder does it: tokens' states at a site, pooled, at unit length where it says so."""

    def __init__(self, given: ModelLike, settings: RemedySettings) -> None:
        self.live: Any = given if isinstance(given, nn.Module) and hasattr(given, "encode") else None
        self.lens = open_model(given, settings)
        self.name, self.record = self.lens.name, self.lens.provenance()
        self.folder = self.lens.origin.source
        self.site = self.lens.match(settings.site)[-1] if settings.site else self.lens.default_sites[-1]
        self.pooling = settings.pooling or declared_pooling(self.folder) or "mean"
        self.unit = settings.site is None and declares_unit_length(self.folder)
        self.live = None if settings.site or settings.pooling else self.live
        self.said = (
            "Vectors: the model's own encode."
            if self.live is not None
            else f"Vectors: {self.site}, {self.pooling} of a text's tokens{', at unit length' if self.unit else ''}."
        )

    def vectors(self, texts: Sequence[str]) -> Floats:
        """One a text [n, d]. Raises BadInput for a text without tokens, and for values that are not finite."""
        if self.live is not None:
            found = np.asarray(self.live.encode(list(texts), convert_to_numpy=True), dtype=np.float64)
        else:
            ids = sentence_ids(self.lens, texts)
            if empty := next((text for text, tokens in zip(texts, ids, strict=True) if not tokens), None):
                raise BadInput(f"The text {empty[:60]!r} has no tokens.")
            found = mean_states(self.lens, ids, [self.site], pooling=self.pooling)[self.site]
        if not np.isfinite(found).all():
            raise BadInput(f"{self.name} gives NaN or infinite values at {self.site}.")
        if self.unit and self.live is None:
            found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found


def _texts(found: PairSet) -> Iterable[str]:
    for one, other in _links(found):
        yield one
        yield other


def _links(found: PairSet) -> list[tuple[str, str]]:
    """Pairs whose texts must stand on one side of the split: those that mean the same, and those that were scored."""
    return [
        *zip(found.one, found.other, strict=True),
        *((one, other) for one, other, _ in found.scored if one and other),
    ]


def _connected(many: int, links: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The number of each node's component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(links).T
    graph = coo_array((np.ones(len(links)), (ends[0], ends[1])), shape=(many, many))
    found: npt.NDArray[np.int64] = connected_components(graph, directed=False)[1].astype(np.int64)
    return found


def _pairs(found: PairSet, place: dict[str, int], group: npt.NDArray[np.int64]) -> HeldOutPairs | None:
    """The pairs of a set that may be judged by; partners are searched among the second texts of all its pairs."""
    pairs = [
        (place[a], place[b])
        for a, b in zip(found.one, found.other, strict=True)
        if a in place and b in place and a != b
    ]
    pairs = list(dict.fromkeys(pairs))
    if len(pairs) < 2:
        return None
    queries, answers = np.array(pairs).T
    items = np.unique([place[other] for _, other in _links(found) if other in place])
    scored = [(place[a], place[b], score) for a, b, score in found.scored if a in place and b in place]
    return HeldOutPairs(
        found.name, queries, answers, items, group[queries], np.array(scored) if len(scored) > 2 else None
    )
