"""The judgement of compressions: what retrieval loses by each, and the choice for a budget."""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from headscan.remedies import relevance, retrieval
from headscan.remedies.compress import Codes, Compression
from headscan.remedies.data import RemedyData
from headscan.remedies.judge import WORDS, recall_cells, relevance_cells
from headscan.remedies.kinds import COMPRESSED, LOSES
from headscan.remedies.result import NONE
from headscan.remedies.retrieval import Ids
from headscan.run import Finding, Row
from headscan.statistics.uncertainty import Floats

KEPT = "neighbours_kept"
NEIGHBOUR_QUERIES = 500
"""Vectors whose neighbours are looked up."""

TIMED = 4096
"""Vectors that are compressed and searched for the speed."""

REPEATS = 3


def judged_compressions(
    data: RemedyData,
    compressions: Iterable[Compression],
    *,
    level: float,
    seed: int,
) -> list[Row]:
    """Return a row for the vectors as they are, then for each compression, on every set of pairs.

    Documents are compressed, queries are not. `level` is that of the intervals of gains.
    """
    judge = _Judge(data, level, seed)
    rows = judge.rows(None)
    for compression in compressions:
        rows += judge.rows(compression)
    return rows


class _Judge:
    """The vectors by which compressions are judged, and what they find uncompressed."""

    def __init__(self, data: RemedyData, level: float, seed: int) -> None:
        self.data = data
        self.level = level
        self.items = _searched_rows(data)
        drawn = np.random.default_rng(seed).permutation(len(self.items))[:NEIGHBOUR_QUERIES]
        self.drawn = np.sort(drawn)
        self.plain_ranks = [retrieval.ranks(data.vectors, pairs) for pairs in data.sets]
        self.plain_scores: dict[str, Floats] = {}
        if data.relevance is not None:
            self.plain_scores = relevance.retrieval_scores(data.vectors, data.relevance)

    def rows(self, compression: Compression | None) -> list[Row]:
        """Return a row for each set of pairs; without pairs, for the neighbours alone."""
        data = self.data
        if compression is None:
            searched = retrieval.directions(data.vectors)
            searching = searched
            width = searched.shape[1]
            common: dict[str, object] = {
                "compression": NONE,
                "bytes": 4 * width,
                "dimensions": width,
            }
        else:
            codes = compression.encode(data.vectors)
            searched = compression.decode(codes)
            searching = compression.queries(data.vectors)
            common = {
                "compression": compression.name,
                "bytes": compression.bytes,
                "dimensions": compression.dimensions,
                **_speeds(compression, data.vectors[self.items], codes[self.items]),
            }

        kept = retrieval.neighbours_kept(
            data.vectors[self.items], searched[self.items], searching[self.items], self.drawn
        )
        value, interval = retrieval.mean_of(kept)
        common |= {KEPT: value, f"{KEPT}_interval": interval}

        rows = []
        if data.relevance is not None:
            scores = self.plain_scores
            if compression is not None:
                scores = relevance.retrieval_scores(searched, data.relevance, searching)
            cells = {"pairs": data.name, "queries": len(data.relevance.queries)}
            judged = relevance_cells(scores, self.plain_scores, self.level)
            rows.append(Row(common | cells | {"items": len(self.items)} | judged))
        for pairs, plain in zip(data.sets, self.plain_ranks, strict=True):
            ranks = plain
            if compression is not None:
                ranks = retrieval.ranks(searched, pairs, searching)
            cells = {"pairs": pairs.name, "queries": len(ranks), "items": len(pairs.items)}
            rows.append(Row(common | cells | recall_cells(ranks, plain, pairs, self.level)))
        if not rows:
            rows.append(Row(common | {"pairs": "", "items": len(self.items)}))
        return rows


def _searched_rows(data: RemedyData) -> Ids:
    """Return the rows of the vectors that are searched, ascending."""
    if data.relevance is not None:
        return np.arange(data.relevance.documents)
    if data.sets:
        return np.unique(np.concatenate([pairs.items for pairs in data.sets]))
    return np.arange(len(data.vectors))


def _speeds(compression: Compression, rows: Floats, codes: Codes) -> dict[str, float]:
    """Return vectors compressed, and vectors scored for one query, in a second of one processor."""
    rows = rows[:TIMED]
    codes = codes[:TIMED]
    query = compression.queries(rows[:1])[0]
    encoding = _seconds(lambda: compression.encode(rows))
    searching = _seconds(lambda: compression.scores(query, codes))
    return {"encode_rate": len(rows) / encoding, "search_rate": len(rows) / searching}


def _seconds(call: Callable[[], object]) -> float:
    """Return the least processor time of some calls."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return max(min(times), 1e-6)


def deciding_number(row: Row) -> str:
    """Return the number that decides: nDCG@10, recall@1, or without queries the neighbours kept."""
    for name in ("ndcg_at_10", "recall_at_1"):
        if name in row:
            return name
    return KEPT


def recommended(rows: Sequence[Row]) -> str:
    """Return the compression that finds most over all sets of pairs; of equals, the smallest.

    >>> rows = [Row(compression="a", bytes=2, neighbours_kept=0.5)]
    >>> rows += [Row(compression="b", bytes=1, neighbours_kept=0.5)]
    >>> recommended(rows)
    'b'
    """
    totals: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for row in rows:
        name = row.text("compression")
        if name != NONE:
            totals[name] = totals.get(name, 0.0) + (row.number(deciding_number(row)) or 0.0)
            sizes[name] = row.number("bytes") or 0.0
    return max(totals, key=lambda name: (totals[name], -sizes[name]))


def compression_findings(rows: Sequence[Row], model: str, site: str) -> list[Finding]:
    """Return COMPRESSED and, where some compressions find significantly less, LOSES, a set."""
    where = {"model": model, "site": site}
    best = recommended(rows)
    findings = []
    for pairs in dict.fromkeys(row.text("pairs") for row in rows):
        of_set = [row for row in rows if row["pairs"] == pairs]
        plain, *others = of_set
        [row] = [row for row in others if row["compression"] == best]
        number = deciding_number(row)
        words = f"{WORDS[number]} of {pairs}" if pairs else WORDS[number]
        sentence = (
            f"{best} finds most of the {len(others)} compressions tried: {row['bytes']} of "
            f"{plain['bytes']} bytes a vector, {words} {row.number(number):.3f}"
        )
        change = row.interval(f"{number}_gain")
        if change is not None:
            gain = row.number(f"{number}_gain")
            sentence += f", a change by {gain:.3f} [{change[0]:.3f}, {change[1]:.3f}]"
        value = row.number(number)
        findings.append(COMPRESSED.finding("fine", f"{sentence}.", value=value, **where))
        findings += _losses(others, number, words, where)
    return findings


def _losses(rows: Sequence[Row], number: str, words: str, where: dict[str, str]) -> list[Finding]:
    """Return LOSES for the compressions whose gain is significantly below 0."""
    losing = []
    for row in rows:
        interval = row.interval(f"{number}_gain")
        if interval is not None and interval[1] < 0:
            losing.append(row)
    if not losing:
        return []
    losing.sort(key=lambda row: row.number(f"{number}_gain") or 0.0)
    worst = losing[0].number(f"{number}_gain") or 0.0
    names = ", ".join(row.text("compression") for row in losing)
    sentence = f"Compression lowers {words}, by {-worst:.3f} at most: {names}."
    return [LOSES.finding("notice", sentence, value=worst, **where)]
