"""The judgement of remedies on held-out vectors: a row a remedy and set of pairs, and findings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from headscan.remedies import relevance, retrieval
from headscan.remedies.data import RemedyData
from headscan.remedies.kinds import FEW, HARMS, HELPS, NO_HELP
from headscan.remedies.remedy import Remedy
from headscan.remedies.result import NONE
from headscan.remedies.retrieval import HeldOutPairs, Ids
from headscan.run import Finding, Interval, Row
from headscan.statistics.uncertainty import Floats

CUTS = (1, 10)


def judged(
    data: RemedyData,
    remedies: Mapping[str, Remedy],
    *,
    level: float,
    progress: Callable[[int, int], None],
) -> list[Row]:
    """Return a row for the vectors as they are, then for each remedy's, on every set of pairs.

    Vectors without pairs have their shape alone.
    """
    ranks_before: dict[str, Ids] = {}
    plain_scores: dict[str, Floats] = {}
    rows: dict[str, list[Row]] = {pairs.name: [] for pairs in data.sets}
    for number, (name, remedy) in enumerate([(NONE, None), *remedies.items()]):
        progress(number + 1, len(remedies) + 1)
        vectors = data.vectors if remedy is None else remedy(data.vectors)
        if data.relevance is not None:
            scores = relevance.retrieval_scores(vectors, data.relevance)
            plain_scores = scores if remedy is None else plain_scores
            cells = {"remedy": name, "pairs": data.name, "queries": len(data.relevance.queries)}
            cells |= {"items": data.relevance.documents}
            cells |= relevance_cells(scores, plain_scores, level)
            documents = vectors[: data.relevance.documents]
            rows.setdefault(data.name, []).append(Row(cells | _shape(documents)))
        elif not data.sets:
            cells = {"remedy": name, "pairs": "", "items": len(vectors)}
            rows.setdefault("", []).append(Row(cells | _shape(vectors)))
        for pairs in data.sets:
            ranks = retrieval.ranks(vectors, pairs)
            plain_ranks = ranks_before.setdefault(pairs.name, ranks)
            cells = {
                "remedy": name,
                "pairs": pairs.name,
                "queries": len(ranks),
                "items": len(pairs.items),
            }
            cells |= recall_cells(ranks, plain_ranks, pairs, level)
            cells |= _shape(vectors[pairs.items])
            cells |= _scored(vectors, pairs)
            rows[pairs.name].append(Row(cells))

    result = []
    for rows_of_set in rows.values():
        result += rows_of_set
    return result


def recall_cells(
    ranks: Ids, plain_ranks: Ids, pairs: HeldOutPairs, level: float
) -> dict[str, object]:
    """Return recall at 1 and 10, and the gain of recall at 1 over the plain vectors."""
    cells: dict[str, object] = {}
    for cut in CUTS:
        recall, interval = retrieval.share(ranks <= cut, pairs.groups)
        cells[f"recall_at_{cut}"] = recall
        cells[f"recall_at_{cut}_interval"] = interval
    cells["interval"] = cells["recall_at_1_interval"]
    if ranks is not plain_ranks:
        gain, interval = retrieval.gain(plain_ranks <= 1, ranks <= 1, pairs.groups, level=level)
        cells["recall_at_1_gain"] = gain
        cells["recall_at_1_gain_interval"] = interval
    return cells


def relevance_cells(
    scores: Mapping[str, Floats], plain: Mapping[str, Floats], level: float
) -> dict[str, object]:
    """Return the mean of each number over the queries, and the gain of nDCG@10, with intervals."""
    cells: dict[str, object] = {}
    for name, values in scores.items():
        cells[name], cells[f"{name}_interval"] = retrieval.mean_of(values)
    cells["interval"] = cells["ndcg_at_10_interval"]
    if scores is not plain:
        change = scores["ndcg_at_10"] - plain["ndcg_at_10"]
        cells["ndcg_at_10_gain"], cells["ndcg_at_10_gain_interval"] = retrieval.mean_of(
            change, level=level, bounds=(-1.0, 1.0)
        )
    return cells


def _shape(vectors: Floats) -> dict[str, object]:
    """Return hubness and average cosine of vectors, with intervals."""
    cosine, cosine_interval = retrieval.average_cosine_of(vectors)
    hubness, hubness_interval = retrieval.hub_skewness(vectors)
    return {
        "hubness": hubness,
        "hubness_interval": hubness_interval,
        "average_cosine": cosine,
        "average_cosine_interval": cosine_interval,
    }


def _scored(vectors: Floats, pairs: HeldOutPairs) -> dict[str, object]:
    """Return Spearman's correlation of cosines with people's scores; {} without scores."""
    if pairs.scored is None:
        return {}
    firsts = vectors[pairs.scored[:, 0].astype(int)]
    seconds = vectors[pairs.scored[:, 1].astype(int)]
    cosines = retrieval.paired_cosines(firsts, seconds)
    scores = pairs.scored[:, 2]

    spearman, interval = retrieval.with_interval(
        partial(_spearman, cosines, scores), len(scores), (-1.0, 1.0)
    )
    return {"spearman": spearman, "spearman_interval": interval}


def _spearman(cosines: Floats, scores: Floats, indices: npt.NDArray[np.int64]) -> float | None:
    """Return the rank correlation of some pairs; None where either does not vary."""
    if np.ptp(cosines[indices]) == 0 or np.ptp(scores[indices]) == 0:
        return None
    from scipy.stats import spearmanr  # a third of a second to import

    return float(spearmanr(cosines[indices], scores[indices]).statistic)


def deciding(row: Row) -> str:
    """Return the number that decides: nDCG@10 where there are relevance judgements."""
    return "ndcg_at_10" if "ndcg_at_10" in row else "recall_at_1"


WORDS = {
    "ndcg_at_10": "nDCG@10",
    "recall_at_1": "recall@1",
    "neighbours_kept": "share of neighbours kept",
}


def _gain(row: Row) -> float:
    return row.number(f"{deciding(row)}_gain") or 0.0


def _gains(rows: Sequence[Row]) -> list[tuple[Row, Interval]]:
    """Return the rows whose gain has an interval, with it."""
    gains = []
    for row in rows:
        interval = row.interval(f"{deciding(row)}_gain")
        if interval is not None:
            gains.append((row, interval))
    return gains


def best_of(rows: Sequence[Row]) -> str | None:
    """Return the remedy with the largest gain of recall@1 (or nDCG@10); None where there is none.

    Its gain is significantly above 0 on some set of pairs and significantly below it on none.
    """
    total_gains: dict[str, float] = {}
    for name in dict.fromkeys(row.text("remedy") for row in rows):
        rows_of_remedy = [row for row in rows if row["remedy"] == name]
        intervals = [interval for _, interval in _gains(rows_of_remedy)]
        improves = any(low > 0 for low, _ in intervals)
        harms = any(high < 0 for _, high in intervals)
        if improves and not harms:
            total_gains[name] = sum(_gain(row) for row in rows_of_remedy)
    if not total_gains:
        return None
    return max(total_gains, key=total_gains.__getitem__)


def findings(rows: Sequence[Row], model: str, site: str, fitted: int, width: int) -> list[Finding]:
    """Return HELPS or NO_HELP (one of the two a set of pairs), HARMS, FEW."""
    where = {"model": model, "site": site}
    result = []
    for name in dict.fromkeys(row.text("pairs") for row in rows):
        rows_of_set = [row for row in rows if row["pairs"] == name]
        gains = _gains(rows_of_set)
        if not gains:
            continue
        number = deciding(rows_of_set[0])
        plain = rows_of_set[0].number(number) or 0.0
        words = f"{WORDS[number]} of {name}"
        better = [(row, interval) for row, interval in gains if interval[0] > 0]
        worse = [row for row, interval in gains if interval[1] < 0]
        if better:
            better.sort(key=lambda pair: -_gain(pair[0]))
            value = _gain(better[0][0])
            sentence = _helps(words, plain, better)
            result.append(HELPS.finding("fine", sentence, value=value, **where))
        else:
            sentence = f"No remedy improves {words} ({plain:.3f}) significantly."
            result.append(NO_HELP.finding("notice", sentence, value=plain, **where))
        if worse:
            worst = min(worse, key=_gain)
            names = ", ".join(row.text("remedy") for row in worse)
            verb = "lower" if len(worse) > 1 else "lowers"
            sentence = (
                f"{names} {verb} {words} ({worst['remedy']} by {-_gain(worst):.3f}): do "
                "not use them here."
            )
            value = _gain(worst)
            result.append(HARMS.finding("notice", sentence, value=value, **where))
    if fitted < 4 * width:
        sentence = (
            f"Only {fitted:,} vectors of width {width:,} were fitted on: covariances are mostly "
            "noise; fit on more (--text)."
        )
        result.append(FEW.finding("notice", sentence, value=float(fitted), **where))
    return result


def _helps(words: str, plain: float, better: Sequence[tuple[Row, Interval]]) -> str:
    """Return the sentence of HELPS; `better` has the largest gain first."""
    row, (low, high) = better[0]
    suffix = ""
    if len(better) > 1:
        plural = "s" if len(better) > 2 else ""
        suffix = f"; {len(better) - 1} other{plural} improve it too"
    return (
        f"{row['remedy']} improves {words} from {plain:.3f} by {_gain(row):.3f} "
        f"[{low:.3f}, {high:.3f}]{suffix}."
    )
