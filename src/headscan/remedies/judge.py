"""The judgement of remedies: a row a remedy and set of pairs, and what the rows say in words."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from headscan.remedies import retrieval
from headscan.remedies.data import RemedyData
from headscan.remedies.remedy import Remedy
from headscan.remedies.result import NONE
from headscan.remedies.retrieval import HeldOutPairs, Ids
from headscan.run import Finding, Row
from headscan.statistics.uncertainty import Floats

CUTS = (1, 10)


def judged(data: RemedyData, remedies: Mapping[str, Remedy], *, level: float, progress: Callable[[int, int], None]) -> list[Row]:
    """The vectors as they are, then each remedy's, on every set of pairs; of what has no pairs their shape alone."""
    before: dict[str, Ids] = {}
    rows: dict[str, list[Row]] = {pairs.name: [] for pairs in data.sets}
    for number, (name, remedy) in enumerate([(NONE, None), *remedies.items()]):
        progress(number + 1, len(remedies) + 1)
        vectors = data.vectors if remedy is None else remedy(data.vectors)
        for pairs in data.sets:
            rank = retrieval.ranks(vectors, pairs)
            before.setdefault(pairs.name, rank)
            cells = {"remedy": name, "pairs": pairs.name, "queries": len(rank), "items": len(pairs.items)}
            recall = _recall(rank, before[pairs.name], pairs, level)
            rows[pairs.name].append(Row(cells | recall | _shape(vectors[pairs.items]) | _scored(vectors, pairs)))
        if not data.sets:
            rows.setdefault("", []).append(Row({"remedy": name, "pairs": "", "items": len(vectors)} | _shape(vectors)))
    return [row for some in rows.values() for row in some]


def _recall(rank: Ids, before: Ids, pairs: HeldOutPairs, level: float) -> dict[str, object]:
    cells: dict[str, object] = {}
    for cut in CUTS:
        cells[f"recall_at_{cut}"], cells[f"recall_at_{cut}_interval"] = retrieval.share(rank <= cut, pairs.groups)
    cells["interval"] = cells["recall_at_1_interval"]
    if rank is not before:
        cells["recall_at_1_gain"], cells["recall_at_1_gain_interval"] = retrieval.gain(
            before <= 1, rank <= 1, pairs.groups, level=level
        )
    return cells


def _shape(vectors: Floats) -> dict[str, object]:
    cosine, hubs = retrieval.average_cosine_of(vectors), retrieval.hub_skewness(vectors)
    names = ("hubness", "hubness_interval", "average_cosine", "average_cosine_interval")
    return dict(zip(names, (*hubs, *cosine), strict=True))


def _scored(vectors: Floats, pairs: HeldOutPairs) -> dict[str, object]:
    """Spearman's correlation of cosines with people's scores."""
    if pairs.scored is None:
        return {}
    one, other = (vectors[pairs.scored[:, side].astype(int)] for side in (0, 1))
    cosines, scores = retrieval.paired_cosines(one, other), pairs.scored[:, 2]

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
    """The remedy whose gain of recall@1 is largest among those that are above 0 for certain and below it nowhere."""
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
        sure = [(row, ends) for row in own if (ends := row.interval("recall_at_1_gain")) is not None]
        if not sure:
            continue
        plain = own[0].number("recall_at_1") or 0.0
        better = sorted((pair for pair in sure if pair[1][0] > 0), key=lambda pair: -_gain(pair[0]))
        worse = [row for row, ends in sure if ends[1] < 0]
        if better:
            row, (low, high) = better[0]
            rise = _gain(row)
            others = f"; {len(better) - 1} other{'s' * (len(better) > 2)} improve it too" if len(better) > 1 else ""
            text = f"{row['remedy']} improves recall@1 of {name} from {plain:.3f} by {rise:.3f} [{low:.3f}, {high:.3f}]{others}."
            found.append(Finding(code="HELPS", level="good", model=model, site=site, value=rise, sentence=text))
        else:
            text = f"No remedy improves recall@1 of {name}, {plain:.3f}, by an interval clear of 0."
            found.append(Finding(code="NO_HELP", level="notice", model=model, site=site, value=plain, sentence=text))
        if worse:
            row = min(worse, key=_gain)
            names = ", ".join(one.text("remedy") for one in worse)
            text = f"Recall@1 of {name} falls under {names}; most, by {-_gain(row):.3f}, under {row['remedy']}."
            found.append(Finding(code="HARMS", level="alert", model=model, site=site, value=_gain(row), sentence=text))
    if fitted < 4 * width:
        text = f"Only {fitted:,} vectors of width {width:,} were fitted on: covariances are mostly noise; fit on more (--text)."
        found.append(Finding(code="FEW", level="notice", model=model, site=site, value=float(fitted), sentence=text))
    return found
