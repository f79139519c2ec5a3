"""What remedies are fitted on and judged by, and the judgement: a row a remedy and set of pairs,
and its words.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from headscan.measures.pairs import encode, mean_states, sentence_ids
from headscan.model.inputs import SENTENCE, declared_pooling
from headscan.model.lens import ModelLike, open_model
from headscan.remedies import retrieval
from headscan.remedies.remedy import Remedy
from headscan.remedies.result import NONE, RemedySettings
from headscan.remedies.retrieval import HeldOutPairs, Ids
from headscan.run import BadInput, Finding, ModelRecord, Row, Run, TextRecord
from headscan.states import VectorSource, stored_source
from headscan.statistics import Cloud, Sums
from headscan.statistics.uncertainty import Floats
from headscan.text import Batch, PairSet, documents, read_pair_files


@dataclass(frozen=True)
class RemedyData:
    """Vectors to fit on and to judge by."""

    name: str  # whose vectors
    record: ModelRecord
    site: str
    cloud: Cloud  # of the vectors that are fitted on
    vectors: Floats  # to judge by [n, d]
    groups: npt.NDArray[np.int64]  # vectors of one number err together [n]
    sets: list[HeldOutPairs]  # pairs of rows of `vectors`; empty where there are none
    text: TextRecord | None = None  # what the vectors are of
    other: Floats | None = None  # another version of `vectors` [n, d'], where there is one
    source: VectorSource | None = None  # the stored vectors, where they are stored
    folder: str | None = None  # the model's, where it has one
    notes: tuple[str, ...] = ()  # what a reader must know


def data_of_model(given: ModelLike, settings: RemedySettings, run: Run) -> RemedyData:
    """The vectors of texts under a model: fitted on `--text` or on half of the pairs' texts, judged
    by the (other) pairs.
    """
    if not (sets := read_pair_files(settings.pairs)):
        raise BadInput(
            "Say by what a model's remedies are judged: --pairs FILE of texts that mean the same."
        )
    embedder = _TextEmbedder(given, settings)
    links = [link for given_set in sets for link in _links(given_set)]
    texts = list(dict.fromkeys(chain.from_iterable(links)))
    row = {text: k for k, text in enumerate(texts)}
    ends = tuple(np.array([(row[a], row[b]) for a, b in links]).T)
    graph = coo_array((np.ones(len(links)), ends), shape=(len(texts), len(texts)))
    group = np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
    if settings.text is None:
        chosen = np.random.default_rng(settings.seed).permutation(int(group.max()) + 1) % 2 == 0
        held = ~chosen[group]
        train = [text for text, judged in zip(texts, held.tolist(), strict=True) if not judged]
    else:
        held = np.ones(len(texts), dtype=bool)
        read = documents(settings.text, documents=settings.documents, field=settings.field)
        train = [
            text
            for text in dict.fromkeys(piece.text().strip() for piece in read)
            if text and text not in row
        ]
    if len(train) < 2 or held.sum() < 2:
        raise BadInput(
            f"There are {len(train)} texts to fit on and {int(held.sum())} to judge by: give more."
        )
    judged = [text for text, kept in zip(texts, held.tolist(), strict=True) if kept]
    every = len(train) + len(judged)
    run.progress("texts", 0, every, "texts")
    fit = embedder.vectors(train)
    run.progress("texts", len(train), every, "texts")
    vectors = embedder.vectors(judged)
    own = group[held]
    place = {text: k for k, text in enumerate(judged)}
    pairs = [
        held_out for given_set in sets if (held_out := _pairs(given_set, place, own)) is not None
    ]
    if not pairs:
        raise BadInput("No pair of two different texts is left to judge by: give more pairs.")
    other = (
        None
        if settings.against is None
        else _TextEmbedder(settings.against, settings).vectors(judged)
    )
    whole = "half of the texts of the pairs" if settings.text is None else "the text's documents"
    return RemedyData(
        embedder.name,
        embedder.record,
        embedder.site,
        Cloud.of_rows(fit),
        vectors,
        own,
        pairs,
        other=other,
        folder=embedder.folder,
        notes=(
            f"Fitted on {whole} ({len(fit):,}); judged by texts that were not among them. "
            f"{embedder.sentence}",
        ),
    )


class _TextEmbedder:
    """Texts to vectors as a sentence encoder does it, or tokens' states at a site, pooled."""

    def __init__(self, given: ModelLike, settings: RemedySettings) -> None:
        self.live: Any = (
            given if isinstance(given, nn.Module) and hasattr(given, "encode") else None
        )
        self.lens = open_model(given, settings)
        self.name, self.record = self.lens.name, self.lens.provenance()
        self.folder = self.lens.origin.source
        self.head = (
            None
            if settings.pooling or settings.site not in (None, SENTENCE)
            else self.lens.sentence
        )
        own = (
            self.lens.match(settings.site)[-1]
            if settings.site and self.head is None
            else self.lens.default_sites[-1]
        )
        self.site = own if self.head is None else SENTENCE
        self.pooling = settings.pooling or declared_pooling(self.folder) or "mean"
        self.live = None if settings.site or settings.pooling else self.live
        way = (
            f"{self.site}, {self.pooling} of a text's tokens"
            if self.head is None
            else "as the model's folder says how to encode"
        )
        self.sentence = (
            f"Vectors: {way}." if self.live is None else "Vectors: the model's own encode."
        )

    def vectors(self, texts: Sequence[str]) -> Floats:
        if self.live is not None:
            vectors = np.asarray(
                self.live.encode(list(texts), convert_to_numpy=True), dtype=np.float64
            )
        elif self.head is not None:
            vectors = encode(self.lens, self.head, texts)
        else:
            ids = sentence_ids(self.lens, texts)
            if empty := next(
                (text for text, tokens in zip(texts, ids, strict=True) if not tokens), None
            ):
                raise BadInput(f"The text {empty[:60]!r} has no tokens.")
            vectors = mean_states(self.lens, ids, [self.site], pooling=self.pooling)[self.site]
        if not np.isfinite(vectors).all():
            raise BadInput(f"{self.name} gives NaN or infinite values at {self.site}.")
        return vectors


def _links(found: PairSet) -> list[tuple[str, str]]:
    return [
        *zip(found.one, found.other, strict=True),
        *((one, other) for one, other, _ in found.scored if one and other),
    ]


def _pairs(
    found: PairSet, place: dict[str, int], group: npt.NDArray[np.int64]
) -> HeldOutPairs | None:
    every = zip(found.one, found.other, strict=True)
    pairs = list(
        dict.fromkeys(
            (place[a], place[b]) for a, b in every if a in place and b in place and a != b
        )
    )
    if len(pairs) < 2:
        return None
    queries, answers = np.array(pairs).T
    items = np.unique([place[other] for _, other in _links(found) if other in place])
    scored = [
        (place[a], place[b], score) for a, b, score in found.scored if a in place and b in place
    ]
    return HeldOutPairs(
        found.name,
        queries,
        answers,
        items,
        group[queries],
        np.array(scored) if len(scored) > 2 else None,
    )


# ---- Of stored vectors, in one pass over each store.


def data_of_store(source: VectorSource, settings: RemedySettings, run: Run) -> RemedyData:
    """Some vectors, drawn by document (by row where there are none), are held out; all others are
    fitted on. Memory: that of the held-out ones, of sums, and a byte a vector. Raises BadInput
    where stores do not go together, or values are not finite.
    """
    if settings.pairs:
        raise BadInput("--pairs are of texts, for a model: stored vectors take --partners SOURCE.")
    site = read_site(source, settings.site)
    assert source.tokens is not None  # of a store
    portion = min(0.5, settings.held_out / source.tokens)
    width = source.width(site)
    sums = Sums(width)
    held = list[Tensor]()
    groups = list[npt.NDArray[np.int64]]()
    masks = list[Tensor]()
    several = getattr(getattr(source, "vectors", None), "documents", None) is not None
    for batch, rows, first in rows_of(source, site):
        units = batch.documents.ravel() if several else np.arange(first, first + len(rows))
        out = torch.from_numpy(_held_out(units, portion, settings.seed))
        masks.append(out)
        held.append(rows[out])
        groups.append(units[out.numpy()])
        sums.merge(Sums.of_rows(rows[~out]))
        run.progress("fit", first + len(rows), source.tokens, "vectors")
    vectors = torch.cat(held).numpy()
    own = np.concatenate(groups)
    if len(vectors) < 2 or sums.count < 2:
        few = (
            "vectors of too few documents (--documents lines, when they are stored)"
            if several
            else "too few vectors"
        )
        raise BadInput(
            f"{source.name} has {few} to fit on some and judge by others: {source.tokens:,} "
            "vectors in all."
        )
    sets = list[HeldOutPairs]()
    other = None
    mask = torch.cat(masks)
    if settings.partners is not None:
        queries = _beside(settings.partners, source, mask, settings, "--partners")
        if queries.shape[1] != width:
            raise BadInput(f"--partners are of width {queries.shape[1]}, {source.name} of {width}.")
        many = np.arange(len(vectors))
        sets = [HeldOutPairs(source.name, len(vectors) + many, many, many, own)]
        vectors = np.concatenate([vectors, queries])
    if settings.against is not None:
        other = _beside(settings.against, source, mask, settings, "--against")
    unit = "documents" if several else "rows"
    notes = [
        f"Fitted on {sums.count:,} vectors in one pass; judged by {len(own):,} others, drawn by "
        f"{unit}."
    ]
    if not sets:
        notes.append("Without --partners no recall is known: only the shape of what was held out.")
    return RemedyData(
        source.name,
        source.record(),
        site,
        Cloud.of_sums(sums),
        vectors,
        own,
        sets,
        text=source.text(),
        other=other,
        source=source,
        notes=tuple(notes),
    )


def read_site(source: VectorSource, site: str | None) -> str:
    """The site that is meant; BadInput where several might be."""
    found = source.sites if site is None else source.match(site)
    if len(found) != 1:
        raise BadInput(
            f"{source.name} has several sites: choose one with --site ({', '.join(found[:6])})."
        )
    return found[0]


def rows_of(source: VectorSource, site: str) -> Iterator[tuple[Batch, Tensor, int]]:
    """The vectors of a site batch by batch [n, d] float64, and the number of the first. BadInput:
    not finite.
    """
    first = 0
    for batch in source.batches():
        held = dict[str, Tensor]()
        source.visit(batch, (site,), held.__setitem__)
        rows = held[site].flatten(0, 1).double().cpu()
        last = first + len(rows)
        if not bool(torch.isfinite(rows).all()):
            raise BadInput(
                f"{source.name} holds NaN or infinite values at {site}, among vectors {first:,} "
                f"to {last:,}."
            )
        yield batch, rows, first
        first = last


def _held_out(units: npt.NDArray[np.int64], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which units (rows or documents) are held out: by a hash of their number, so that every store
    has the same.
    """
    known, place = np.unique(units, return_inverse=True)
    hashes = np.array([zlib.crc32(f"{seed}/{unit}".encode()) for unit in known.tolist()])
    return np.asarray((hashes < share * 2**32)[place])


def _beside(
    given: Any, source: VectorSource, mask: Tensor, settings: RemedySettings, flag: str
) -> Floats:
    """The held-out rows of a store that goes row by row with the source."""
    other = stored_source(given, context=source.context, field=settings.field)
    if other is None or other.tokens != source.tokens:
        many = "a model" if other is None else f"{other.tokens:,} vectors"
        raise BadInput(
            f"{flag} must hold as many vectors as {source.name}, {source.tokens:,}, not {many}."
        )
    site = read_site(other, settings.site if settings.site in other.sites else None)
    chosen = [rows[mask[first : first + len(rows)]] for _, rows, first in rows_of(other, site)]
    return np.asarray(torch.cat(chosen))


# ---- The judgement of remedies: a row a remedy and set of pairs, and what the rows say in words.


CUTS = (1, 10)


def judged(
    data: RemedyData,
    remedies: Mapping[str, Remedy],
    *,
    level: float,
    progress: Callable[[int, int], None],
) -> list[Row]:
    """The vectors as they are, then each remedy's, on every set of pairs; of what has no pairs
    their shape alone.
    """
    before: dict[str, Ids] = {}
    rows: dict[str, list[Row]] = {pairs.name: [] for pairs in data.sets}
    for number, (name, remedy) in enumerate([(NONE, None), *remedies.items()]):
        progress(number + 1, len(remedies) + 1)
        vectors = data.vectors if remedy is None else remedy(data.vectors)
        for pairs in data.sets:
            rank = retrieval.ranks(vectors, pairs)
            before.setdefault(pairs.name, rank)
            cells = {
                "remedy": name,
                "pairs": pairs.name,
                "queries": len(rank),
                "items": len(pairs.items),
            }
            recall = _recall(rank, before[pairs.name], pairs, level)
            rows[pairs.name].append(
                Row(cells | recall | _shape(vectors[pairs.items]) | _scored(vectors, pairs))
            )
        if not data.sets:
            rows.setdefault("", []).append(
                Row({"remedy": name, "pairs": "", "items": len(vectors)} | _shape(vectors))
            )
    return [row for some in rows.values() for row in some]


def _recall(rank: Ids, before: Ids, pairs: HeldOutPairs, level: float) -> dict[str, object]:
    cells: dict[str, object] = {}
    for cut in CUTS:
        cells[f"recall_at_{cut}"], cells[f"recall_at_{cut}_interval"] = retrieval.share(
            rank <= cut, pairs.groups
        )
    cells["interval"] = cells["recall_at_1_interval"]
    if rank is not before:
        cells["recall_at_1_gain"], cells["recall_at_1_gain_interval"] = retrieval.gain(
            before <= 1, rank <= 1, pairs.groups, level=level
        )
    return cells


def _shape(vectors: Floats) -> dict[str, object]:
    cosine = retrieval.average_cosine_of(vectors)
    hubs = retrieval.hub_skewness(vectors)
    names = ("hubness", "hubness_interval", "average_cosine", "average_cosine_interval")
    return dict(zip(names, (*hubs, *cosine), strict=True))


def _scored(vectors: Floats, pairs: HeldOutPairs) -> dict[str, object]:
    """Spearman's correlation of cosines with people's scores."""
    if pairs.scored is None:
        return {}
    one, other = (vectors[pairs.scored[:, side].astype(int)] for side in (0, 1))
    cosines = retrieval.paired_cosines(one, other)
    scores = pairs.scored[:, 2]

    def value(taken: npt.NDArray[np.int64]) -> float | None:
        if not (np.ptp(cosines[taken]) > 0 and np.ptp(scores[taken]) > 0):
            return None
        from scipy.stats import spearmanr  # a third of a second to import

        return float(spearmanr(cosines[taken], scores[taken]).statistic)

    spearman, interval = retrieval.with_interval(value, len(scores), (-1.0, 1.0))
    return {"spearman": spearman, "spearman_interval": interval}


def _gain(row: Row) -> float:
    return row.number("recall_at_1_gain") or 0.0


def best_of(rows: Sequence[Row]) -> str | None:
    """The remedy whose gain of recall@1 is largest among those that are above 0 for certain and
    below it nowhere.
    """
    sums: dict[str, float] = {}
    for name in dict.fromkeys(row.text("remedy") for row in rows):
        own = [row for row in rows if row["remedy"] == name]
        known = [ends for row in own if (ends := row.interval("recall_at_1_gain")) is not None]
        if any(low > 0 for low, _ in known) and not any(high < 0 for _, high in known):
            sums[name] = sum(_gain(row) for row in own)
    return max(sums, key=sums.__getitem__) if sums else None


def findings(rows: Sequence[Row], model: str, site: str, fitted: int, width: int) -> list[Finding]:
    """HELPS or NO_HELP (one of the two, a set of pairs), HARMS, FEW."""
    found = list[Finding]()
    for name in dict.fromkeys(row.text("pairs") for row in rows):
        own = [row for row in rows if row["pairs"] == name]
        sure = [
            (row, ends) for row in own if (ends := row.interval("recall_at_1_gain")) is not None
        ]
        if not sure:
            continue
        plain = own[0].number("recall_at_1") or 0.0
        better = sorted((pair for pair in sure if pair[1][0] > 0), key=lambda pair: -_gain(pair[0]))
        worse = [row for row, ends in sure if ends[1] < 0]
        if better:
            row, (low, high) = better[0]
            rise = _gain(row)
            others = (
                f"; {len(better) - 1} other{'s' * (len(better) > 2)} improve it too"
                if len(better) > 1
                else ""
            )
            text = (
                f"{row['remedy']} improves recall@1 of {name} from {plain:.3f} by {rise:.3f} "
                f"[{low:.3f}, {high:.3f}]{others}."
            )
            found.append(
                Finding(
                    code="HELPS", level="good", model=model, site=site, value=rise, sentence=text
                )
            )
        else:
            text = f"No remedy improves recall@1 of {name}, {plain:.3f}, by an interval clear of 0."
            found.append(
                Finding(
                    code="NO_HELP",
                    level="notice",
                    model=model,
                    site=site,
                    value=plain,
                    sentence=text,
                )
            )
        if worse:
            row = min(worse, key=_gain)
            names = ", ".join(one.text("remedy") for one in worse)
            text = (
                f"Recall@1 of {name} falls under {names}; most, by {-_gain(row):.3f}, under "
                f"{row['remedy']}."
            )
            found.append(
                Finding(
                    code="HARMS",
                    level="alert",
                    model=model,
                    site=site,
                    value=_gain(row),
                    sentence=text,
                )
            )
    if fitted < 4 * width:
        text = (
            f"Only {fitted:,} vectors of width {width:,} were fitted on: covariances are mostly "
            "noise; fit on more (--text)."
        )
        found.append(
            Finding(
                code="FEW",
                level="notice",
                model=model,
                site=site,
                value=float(fitted),
                sentence=text,
            )
        )
    return found
