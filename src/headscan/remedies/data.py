"""The vectors that remedies are fitted on and judged by: of a model's texts, or of a store."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from headscan.measures.pairs import encode, mean_states, sentence_ids
from headscan.model.lens import ModelLike, open_model
from headscan.model.sentence import SENTENCE, Pooling, declared_pooling
from headscan.model.settings import Loading
from headscan.remedies.relevance import Relevance, relevance_of
from headscan.remedies.retrieval import HeldOutPairs
from headscan.run import BadInput, ModelRecord, Run, TextRecord
from headscan.states import VectorSource, stored_source
from headscan.statistics import Cloud, Sums
from headscan.statistics.uncertainty import Floats
from headscan.text import Batch, PairSet, documents
from headscan.text.source import Reading, TextLike

Groups = npt.NDArray[np.int64]
"""For each vector the number of its group; vectors of one group err together."""

SAMPLE = 8192
"""Vectors that codebooks are fitted on, at most."""


@dataclass(frozen=True)
class RemedyData:
    """Vectors to fit on and to judge by.

    Attributes:
        name, record: whose vectors they are.
        cloud: of the vectors that are fitted on.
        sample: some of them, at most `SAMPLE` [s, d].
        vectors: to judge by [n, d].
        groups: vectors of one number err together [n].
        sets: pairs of rows of `vectors`; empty where there are none.
        text: what the vectors are of.
        other: another version of `vectors` [n, d'].
        source: the stored vectors; None for a model.
        folder: the model's folder.
        notes: what a reader of the numbers must know.
        relevance: judgements of queries that follow the documents; None without --qrels.
    """

    name: str
    record: ModelRecord
    site: str
    cloud: Cloud
    sample: Floats
    vectors: Floats
    groups: Groups
    sets: list[HeldOutPairs]
    text: TextRecord | None = None
    other: Floats | None = None
    source: VectorSource | None = None
    folder: str | None = None
    notes: tuple[str, ...] = ()
    relevance: Relevance | None = None


@dataclass(frozen=True)
class Encoding:
    """How a model turns texts into vectors: how it is loaded, at which site, with which pooling."""

    loading: Loading
    site: str | None
    pooling: Pooling | None


def data_of_model(
    model: ModelLike,
    sets: Sequence[PairSet],
    encoding: Encoding,
    *,
    text: TextLike | None,
    reading: Reading,
    against: Any,
    seed: int,
    run: Run,
) -> RemedyData:
    """Return the vectors of texts under a model.

    Remedies are fitted on `text`, or on half of the pairs' texts, and judged by the (other) pairs.

    Raises:
        BadInput: without pairs, or with too few texts.
    """
    if not sets:
        raise BadInput(
            "Say by what a model's remedies are judged: --pairs FILE of texts that mean the same."
        )
    embedder = _TextEmbedder(model, encoding)
    run.limits.append(embedder.lens.limit)
    texts, groups = _grouped_texts(sets)
    if text is None:
        drawn = np.random.default_rng(seed).permutation(int(groups.max()) + 1) % 2 == 0
        held_out = ~drawn[groups]
        fitted_on = "half of the texts of the pairs"
        training = [item for item, out in zip(texts, held_out.tolist(), strict=True) if not out]
    else:
        held_out = np.ones(len(texts), dtype=bool)
        fitted_on = "the text's documents"
        training = _training_texts(text, reading, set(texts))
    if len(training) < 2 or held_out.sum() < 2:
        raise BadInput(
            f"There are {len(training)} texts to fit on and {int(held_out.sum())} to judge by: "
            "give more."
        )

    judged = [item for item, out in zip(texts, held_out.tolist(), strict=True) if out]
    total = len(training) + len(judged)
    run.progress("texts", 0, total, "texts")
    fit = embedder.vectors(training)
    run.progress("texts", len(training), total, "texts")
    vectors = embedder.vectors(judged)

    judged_groups = groups[held_out]
    row_of = {item: row for row, item in enumerate(judged)}
    pairs = []
    for pair_set in sets:
        held_out_pairs = _held_out_pairs(pair_set, row_of, judged_groups)
        if held_out_pairs is not None:
            pairs.append(held_out_pairs)
    if not pairs:
        raise BadInput("No pair of two different texts is left to judge by: give more pairs.")

    other_vectors = None
    if against is not None:
        other_vectors = _TextEmbedder(against, encoding).vectors(judged)
    note = (
        f"Fitted on {fitted_on} ({len(fit):,}); judged by texts that were not among them. "
        f"{embedder.sentence}"
    )
    return RemedyData(
        embedder.name,
        embedder.record,
        embedder.site,
        Cloud.of_rows(fit),
        _drawn_rows(fit, seed),
        vectors,
        judged_groups,
        pairs,
        other=other_vectors,
        folder=embedder.folder,
        notes=(note,),
    )


def _grouped_texts(sets: Sequence[PairSet]) -> tuple[list[str], Groups]:
    """Return the distinct texts of all pairs, and for each its group: texts that pairs connect."""
    links = []
    for pair_set in sets:
        links += _links(pair_set)
    texts = list(dict.fromkeys(text for link in links for text in link))
    row_of = {text: row for row, text in enumerate(texts)}
    firsts = np.array([row_of[first] for first, _ in links])
    seconds = np.array([row_of[second] for _, second in links])
    edges = (np.ones(len(links)), (firsts, seconds))
    graph = coo_array(edges, shape=(len(texts), len(texts)))
    _, components = connected_components(graph, directed=False)
    return texts, np.asarray(components, dtype=np.int64)


def _training_texts(text: TextLike, reading: Reading, judged: set[str]) -> list[str]:
    """Return the distinct documents of a text that do not judge."""
    pieces = documents(text, documents=reading.documents, field=reading.field)
    distinct = dict.fromkeys(piece.text().strip() for piece in pieces)
    return [document for document in distinct if document and document not in judged]


class _TextEmbedder:
    """Texts to vectors as a sentence encoder does it, or tokens' states at a site, pooled."""

    def __init__(self, model: ModelLike, encoding: Encoding) -> None:
        site = encoding.site
        pooling = encoding.pooling
        self.lens = open_model(model, encoding.loading)
        self.name = self.lens.name
        self.record = self.lens.provenance()
        self.folder = self.lens.origin.source
        self.pooling = pooling or declared_pooling(self.folder) or "mean"

        self.head = None
        if not pooling and site in (None, SENTENCE):
            self.head = self.lens.sentence
        if self.head is not None:
            self.site = SENTENCE
        elif site:
            self.site = self.lens.match(site)[-1]
        else:
            self.site = self.lens.default_sites[-1]

        self.live: Any = None
        if not site and not pooling and isinstance(model, nn.Module) and hasattr(model, "encode"):
            self.live = model

    @property
    def sentence(self) -> str:
        """Return how texts become vectors, as a sentence."""
        if self.live is not None:
            return "Vectors: the model's own encode."
        if self.head is not None:
            return "Vectors: as the model's folder says how to encode."
        return f"Vectors: {self.site}, {self.pooling} of a text's tokens."

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts [n, d].

        Raises:
            BadInput: for a text without tokens, and for values that are not finite.
        """
        if self.live is not None:
            encoded = self.live.encode(list(texts), convert_to_numpy=True)
            vectors = np.asarray(encoded, dtype=np.float64)
        elif self.head is not None:
            vectors = encode(self.lens, self.head, texts)
        else:
            vectors = self._pooled(texts)
        if not np.isfinite(vectors).all():
            raise BadInput(f"{self.name} gives NaN or infinite values at {self.site}.")
        return vectors

    def _pooled(self, texts: Sequence[str]) -> Floats:
        token_ids = sentence_ids(self.lens, texts)
        for text, tokens in zip(texts, token_ids, strict=True):
            if not tokens:
                raise BadInput(f"The text {text[:60]!r} has no tokens.")
        states = mean_states(self.lens, token_ids, [self.site], pooling=self.pooling)
        return states[self.site]


def _links(pair_set: PairSet) -> list[tuple[str, str]]:
    """Return all pairs of texts of a set, those with scores included."""
    links = list(zip(pair_set.one, pair_set.other, strict=True))
    for first, second, _ in pair_set.scored:
        if first and second:
            links.append((first, second))
    return links


def _held_out_pairs(
    pair_set: PairSet, row_of: dict[str, int], groups: Groups
) -> HeldOutPairs | None:
    """Return the pairs of a set whose texts judge, as rows; None where fewer than two are left."""
    pairs = []
    for first, second in zip(pair_set.one, pair_set.other, strict=True):
        if first in row_of and second in row_of and first != second:
            pairs.append((row_of[first], row_of[second]))
    pairs = list(dict.fromkeys(pairs))
    if len(pairs) < 2:
        return None

    queries, answers = np.array(pairs).T
    items = np.unique([row_of[second] for _, second in _links(pair_set) if second in row_of])
    scored = []
    for first, second, score in pair_set.scored:
        if first in row_of and second in row_of:
            scored.append((row_of[first], row_of[second], score))
    return HeldOutPairs(
        pair_set.name,
        queries,
        answers,
        items,
        groups[queries],
        np.array(scored) if len(scored) > 2 else None,
    )


def data_of_judgements(
    source: VectorSource,
    queries: Any,
    qrels: Any,
    *,
    site: str | None,
    field: str | None,
    seed: int,
    run: Run,
) -> RemedyData:
    """Return all documents, on which remedies are fitted, and the queries that judge.

    No judgement is used to fit, and no query is among what is fitted on.

    Raises:
        BadInput: where stores do not go together, values are not finite, or ids are unknown.
    """
    name = read_site(source, site)
    second_store = stored_source(queries, context=source.context, field=field)
    if second_store is None or second_store.width(second_store.sites[0]) != source.width(name):
        raise BadInput(
            f"--partners must hold the queries' vectors, of width {source.width(name)} as in "
            f"{source.name}."
        )
    relevance = relevance_of(qrels, source, second_store)
    documents = []
    sums = Sums(source.width(name))
    for _, rows, first in rows_of(source, name):
        documents.append(rows)
        sums.merge(Sums.of_rows(rows))
        run.progress("fit", first + len(rows), source.tokens, "vectors")
    query_rows = [rows for _, rows, _ in rows_of(second_store, read_site(second_store, None))]
    note = (
        f"Fitted on the {relevance.documents:,} documents, without the judgements; judged by "
        f"{len(relevance.queries):,} queries."
    )
    vectors = torch.cat([*documents, *query_rows]).numpy()
    return RemedyData(
        source.name,
        source.record(),
        name,
        Cloud.of_sums(sums),
        _drawn_rows(vectors[: relevance.documents], seed),
        vectors,
        np.arange(relevance.documents),
        [],
        text=source.text(),
        source=source,
        notes=(note,),
        relevance=relevance,
    )


@dataclass(frozen=True)
class HeldOutRows:
    """The rows of a store that judge, and the sums and a sample of all others."""

    sums: Sums
    sample: Floats
    vectors: Floats
    groups: Groups
    mask: Tensor


def data_of_store(
    source: VectorSource,
    *,
    site: str | None,
    field: str | None,
    partners: Any,
    against: Any,
    held_out: int,
    seed: int,
    run: Run,
) -> RemedyData:
    """Return some vectors of a store that judge, drawn by document (by row where there are none);
    all others are fitted on.

    Memory: the held-out vectors, sums, and a byte a vector.

    Raises:
        BadInput: where stores do not go together, or values are not finite.
    """
    name = read_site(source, site)
    by_document = getattr(getattr(source, "vectors", None), "documents", None) is not None
    rows = _held_out_rows(source, name, by_document, held_out, seed, run)
    if len(rows.vectors) < 2 or rows.sums.count < 2:
        few = "too few vectors"
        if by_document:
            few = "vectors of too few documents (--documents lines, when they are stored)"
        raise BadInput(
            f"{source.name} has {few} to fit on some and judge by others: {source.tokens:,} "
            "vectors in all."
        )

    def rows_beside(store: Any, flag: str) -> Floats:
        return _rows_beside(store, source, rows.mask, site=site, field=field, flag=flag)

    vectors = rows.vectors
    sets = []
    if partners is not None:
        queries = rows_beside(partners, "--partners")
        width = source.width(name)
        if queries.shape[1] != width:
            raise BadInput(f"--partners are of width {queries.shape[1]}, {source.name} of {width}.")
        numbers = np.arange(len(vectors))
        pairs = (len(vectors) + numbers, numbers, numbers)
        sets = [HeldOutPairs(source.name, *pairs, rows.groups)]
        vectors = np.concatenate([vectors, queries])
    other_vectors = None if against is None else rows_beside(against, "--against")

    unit = "documents" if by_document else "rows"
    notes = [
        f"Fitted on {rows.sums.count:,} vectors in one pass; judged by {len(rows.groups):,} "
        f"others, drawn by {unit}."
    ]
    if not sets:
        notes.append("Without --partners no recall is known: only the shape of what was held out.")
    return RemedyData(
        source.name,
        source.record(),
        name,
        Cloud.of_sums(rows.sums),
        rows.sample,
        vectors,
        rows.groups,
        sets,
        text=source.text(),
        other=other_vectors,
        source=source,
        notes=tuple(notes),
    )


def _held_out_rows(
    source: VectorSource, site: str, by_document: bool, held_out: int, seed: int, run: Run
) -> HeldOutRows:
    """Read a store once; return the rows that judge, and the sums and a sample of all others."""
    assert source.tokens is not None  # of a store
    share = min(0.5, held_out / source.tokens)
    sampled = np.zeros(source.tokens, dtype=bool)
    sampled[np.random.default_rng(seed).permutation(source.tokens)[: 2 * SAMPLE]] = True
    sample: list[Tensor] = []
    sums = Sums(source.width(site))
    vectors: list[Tensor] = []
    groups: list[Groups] = []
    masks: list[Tensor] = []
    for batch, rows, first in rows_of(source, site):
        row_numbers = np.arange(first, first + len(rows))
        units = batch.documents.ravel() if by_document else row_numbers
        mask = torch.from_numpy(_held_out(units, share, seed))
        masks.append(mask)
        vectors.append(rows[mask])
        groups.append(units[mask.numpy()])
        sums.merge(Sums.of_rows(rows[~mask]))
        sample.append(rows[~mask & torch.from_numpy(sampled[row_numbers])])
        run.progress("fit", first + len(rows), source.tokens, "vectors")
    return HeldOutRows(
        sums,
        _drawn_rows(torch.cat(sample).numpy(), seed),
        torch.cat(vectors).numpy(),
        np.concatenate(groups),
        torch.cat(masks),
    )


def _drawn_rows(rows: Floats, seed: int) -> Floats:
    """Return at most `SAMPLE` rows of a matrix, drawn without replacement."""
    return rows[np.random.default_rng(seed).permutation(len(rows))[:SAMPLE]]


def read_site(source: VectorSource, site: str | None) -> str:
    """Return the site that is meant.

    Raises:
        BadInput: where several might be.
    """
    sites = source.sites if site is None else source.match(site)
    if len(sites) != 1:
        raise BadInput(
            f"{source.name} has several sites: choose one with --site ({', '.join(sites[:6])})."
        )
    return sites[0]


def rows_of(source: VectorSource, site: str) -> Iterator[tuple[Batch, Tensor, int]]:
    """Yield each batch, its vectors at a site [n, d] in float64, and the number of the first.

    Raises:
        BadInput: for values that are not finite.
    """
    first = 0
    for batch in source.batches():
        states: dict[str, Tensor] = {}
        source.visit(batch, (site,), states.__setitem__)
        rows = states[site].flatten(0, 1).double().cpu()
        last = first + len(rows)
        if not bool(torch.isfinite(rows).all()):
            raise BadInput(
                f"{source.name} holds NaN or infinite values at {site}, among vectors {first:,} "
                f"to {last:,}."
            )
        yield batch, rows, first
        first = last


def _held_out(units: Groups, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return for each row whether its unit (row or document) is held out.

    It is decided by a hash of the unit's number, so that every store has the same.
    """
    distinct, indices = np.unique(units, return_inverse=True)
    hashes = np.array([zlib.crc32(f"{seed}/{unit}".encode()) for unit in distinct.tolist()])
    return np.asarray((hashes < share * 2**32)[indices])


def _rows_beside(
    store: Any,
    source: VectorSource,
    mask: Tensor,
    *,
    site: str | None,
    field: str | None,
    flag: str,
) -> Floats:
    """Return the held-out rows of a store that goes row by row with the source."""
    second_store = stored_source(store, context=source.context, field=field)
    if second_store is None or second_store.tokens != source.tokens:
        many = "a model" if second_store is None else f"{second_store.tokens:,} vectors"
        raise BadInput(
            f"{flag} must hold as many vectors as {source.name}, {source.tokens:,}, not {many}."
        )
    name = read_site(second_store, site if site in second_store.sites else None)
    parts = []
    for _, rows, first in rows_of(second_store, name):
        parts.append(rows[mask[first : first + len(rows)]])
    return np.asarray(torch.cat(parts))
