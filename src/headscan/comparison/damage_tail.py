"""The tail of a second model's damage: quantiles, perplexity, and the worst predictions."""

from functools import partial

import numpy as np

from headscan.comparison.clusters import NOT_NEGATIVE, SHARE, Clusters, Statistic
from headscan.comparison.exchange import Divergences, ExchangeWindows, Models, Path
from headscan.comparison.moved_contexts import LISTED_CONTEXTS, PredictionText, moved_tokens
from headscan.comparison.result import DamagedContext
from headscan.run import Row
from headscan.statistics.uncertainty import Cells, Floats

LEVELS = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "99.9 %": 0.999, "maximum": 1.0}
"""The quantiles of a tail by their names."""


def tail_rows(divergences: Divergences, clusters: Clusters) -> list[Row]:
    """Return a row for each level: quantiles of the divergence, and of the fall of the probability
    of the token that follows.

    Args:
        clusters: of the same tokens.
    """
    columns = {"kl": divergences.kl, "probability_fall": -divergences.probability_change}
    rows = []
    for name, level in LEVELS.items():
        cells: Cells = {"level": name}
        for column, values in columns.items():
            cells[column] = float(np.quantile(values, level))
            cells[f"{column}_interval"] = quantile_interval(values, level, clusters)
        rows.append(Row(cells))
    return rows


def quantile_interval(values: Floats, level: float, clusters: Clusters) -> list[float] | None:
    """Return the 95 % interval of a quantile of values [n] (Woodruff 1952).

    Its ends are the quantiles at the ends of the interval of the share of values above the
    estimate. None where the text is too short: where the upper end is beyond the largest value.
    """
    above = (values > np.quantile(values, level)).astype(np.float64)
    ends = Row(clusters.means({"above": above}, {"above": SHARE})).interval("above")
    if ends is None or ends[0] * len(values) < 1:
        return None
    return [float(np.quantile(values, 1 - end)) for end in (ends[1], ends[0])]


def perplexity_cells(divergences: Divergences, clusters: Clusters) -> Cells:
    """Return the perplexity of both models, their ratio, and the root mean square of the change of
    the probability of the token that follows, with intervals.
    """
    first = divergences.first_loss
    second = first + divergences.loss_change
    squares = divergences.probability_change**2
    count = np.ones(len(first))
    sums = np.stack([first, second, divergences.loss_change, squares, count], axis=1)
    statistics = {"probability_rms": Statistic(_root_mean_square, NOT_NEGATIVE)}
    for column, name in enumerate(("first", "second", "ratio")):
        perplexity = partial(_exponential_mean, column)
        statistics[f"perplexity_{name}"] = Statistic(perplexity, NOT_NEGATIVE)
    return clusters.cells(sums, statistics)


def _exponential_mean(column: int, sums: Floats) -> float:
    return float(np.exp(sums[column] / sums[-1]))


def _root_mean_square(sums: Floats) -> float:
    return float((sums[3] / sums[-1]) ** 0.5)


def worst_contexts(
    models: Models, path: Path, windows: ExchangeWindows, divergences: Divergences
) -> list[DamagedContext]:
    """Return the predictions on a path that diverge most, the largest first.

    `windows`: those that the first model and the path have read up to the last block.
    """
    numbers = np.argsort(-divergences.kl, kind="stable")[:LISTED_CONTEXTS]
    first_path = (0,) * len(path)
    before = windows.log_probabilities_at(models, first_path, numbers)
    after = windows.log_probabilities_at(models, path, numbers)
    moved = moved_tokens(before, after)
    tokenizer = models[0].lens.require_tokenizer()
    text = PredictionText(windows.ids, windows.documents, windows.skipped, tokenizer, windows.added)
    contexts = []
    for row, number in enumerate(numbers.tolist()):
        context = text.context(number, float(divergences.kl[number]), moved.at(row))
        probability = float(np.exp(-divergences.first_loss[number]))
        contexts.append(
            DamagedContext(
                **vars(context),
                before=probability,
                after=probability + float(divergences.probability_change[number]),
            )
        )
    return contexts
