"""Relevance judgements (qrels): several documents a query, with grades; nDCG@10, MRR, recall."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from headscan.remedies.retrieval import directions
from headscan.run import BadInput
from headscan.states import VectorSource
from headscan.statistics.uncertainty import Floats

CUT = 10
"""Documents that are looked at for nDCG@10 and recall@10."""

MEASURES = ("recall_at_1", "recall_at_10", "ndcg_at_10", "mrr")
ID_COLUMNS = ("id", "_id", "query_id", "doc_id")


@dataclass(frozen=True)
class Relevance:
    """Which documents are relevant to which query.

    Attributes:
        name: of the documents.
        documents: the number of vectors that are documents; queries follow them.
        queries: row of each query among all vectors.
        grades: for each query its relevant documents and their grades, all above 0.
    """

    name: str
    documents: int
    queries: Sequence[int]
    grades: Sequence[Mapping[int, float]]


def read_qrels(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    """Return (query, document, grade) of a file of relevance judgements.

    TREC's four columns (query, 0, document, grade) and BEIR's three (query, document, grade, with
    a heading) are read, apart by tabs or spaces.

    Raises:
        BadInput: where the file cannot be read or has other lines.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--qrels: {path} cannot be read: {error}.") from None
    judgements = []
    for number, line in enumerate(lines, 1):
        columns = line.split("\t") if "\t" in line else line.split()
        if not columns:
            continue
        grade = _grade(columns)
        if grade is not None:
            judgements.append((columns[0], columns[-2], grade))
        elif number > 1:  # the first line may be a heading
            raise BadInput(
                f"--qrels: line {number} of {path} is not 'query 0 document grade' or 'query "
                "document grade'."
            )
    if not judgements:
        raise BadInput(f"--qrels: {path} holds no judgement.")
    return judgements


def _grade(columns: Sequence[str]) -> float | None:
    """Return the grade in the last of three or four columns; None of any other line."""
    if len(columns) not in (3, 4):
        return None
    try:
        return float(columns[-1])
    except ValueError:
        return None


def row_ids(source: VectorSource) -> dict[str, int]:
    """Return the row of each id: of a column `id`, `_id`, `query_id` or `doc_id` of a Parquet file,
    else the row numbers themselves.
    """
    where = Path(str(getattr(source, "where", "") or ""))
    ids: Sequence[object] = range(source.tokens or 0)
    if where.suffix == ".parquet" and where.is_file():
        import pyarrow.parquet as pq

        names = pq.ParquetFile(where).schema_arrow.names
        column = next((name for name in ID_COLUMNS if name in names), None)
        if column is not None:
            ids = pq.read_table(where, columns=[column])[column].to_pylist()
    return {str(name): row for row, name in enumerate(ids)}


def relevance_of(
    path: str | os.PathLike[str], documents: VectorSource, queries: VectorSource
) -> Relevance:
    """Return the judgements of a file, by rows of documents and queries.

    Raises:
        BadInput: for an id that neither store has, and for fewer than two queries.
    """
    document_rows = row_ids(documents)
    query_rows = row_ids(queries)
    total = documents.tokens or 0
    grades: dict[int, dict[int, float]] = {}
    for query, document, grade in read_qrels(path):
        for name, rows, store in (
            (query, query_rows, queries),
            (document, document_rows, documents),
        ):
            if name not in rows:
                raise BadInput(
                    f"--qrels: {store.name} has no {name!r}. Ids are row numbers from 0, or a "
                    f"column of the Parquet file called {', '.join(ID_COLUMNS)}."
                )
        if grade > 0:
            grades.setdefault(total + query_rows[query], {})[document_rows[document]] = grade
    if len(grades) < 2:
        raise BadInput(f"--qrels: {path} names fewer than two queries with a relevant document.")
    return Relevance(documents.name, total, list(grades), list(grades.values()))


def retrieval_scores(
    vectors: Floats, relevance: Relevance, searching: Floats | None = None
) -> dict[str, Floats]:
    """Return, of each query, recall@1, recall@10, nDCG@10 and the reciprocal rank by cosine.

    `recall_at_1` is 1 where the first document is relevant. Documents that are as near as a
    relevant one count as nearer. Cost O(queries·documents·d). With `searching` [n, d], the queries
    are its rows, and documents are compared by their products with them.

    >>> vectors = np.array([[1.0, 0.0], [0.9, 0.5], [0.0, 1.0], [1.0, 0.1], [0.0, 1.0]])
    >>> relevance = Relevance("x", 3, [3, 4], [{0: 1.0, 2: 1.0}, {2: 1.0}])
    >>> scores = retrieval_scores(vectors, relevance)
    >>> scores["mrr"].tolist(), scores["ndcg_at_10"].round(2).tolist()
    ([1.0, 1.0], [0.92, 1.0])
    """
    searched = torch.from_numpy(directions(vectors) if searching is None else vectors)
    query_vectors = searched if searching is None else torch.from_numpy(searching)
    documents = searched[: relevance.documents]
    rows = []
    for query, grades in zip(relevance.queries, relevance.grades, strict=True):
        cosines = documents @ query_vectors[query]
        rows.append(_scores_of(cosines.numpy(), grades))
    return dict(zip(MEASURES, np.array(rows).T, strict=True))


def _scores_of(cosines: Floats, grades: Mapping[int, float]) -> tuple[float, ...]:
    """Return the numbers of `MEASURES` of one query."""
    relevant = np.array(list(grades))
    by_cosine = np.lexsort((list(grades.values()), -cosines[relevant]))
    others = np.delete(cosines, relevant)
    nearer = np.array([(others >= cosines[relevant[index]]).sum() for index in by_cosine])
    ranks = nearer + 1 + np.arange(len(relevant))

    gains = np.array(list(grades.values()))
    found = ranks <= CUT
    discounted = (gains[by_cosine] / np.log2(ranks + 1))[found].sum()
    ideal = np.sort(gains)[::-1][:CUT]
    best = (ideal / np.log2(np.arange(len(ideal)) + 2)).sum()
    return float(ranks[0] == 1), float(found.mean()), float(discounted / best), 1 / float(ranks[0])
