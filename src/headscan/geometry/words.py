"""How contextual are the vectors? Similarity within and between contexts, of one word with itself, of a text with its
words; all less the baseline that anisotropy alone would give (Ethayarajh 2019, arXiv:1909.00512)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells
from headscan.statistics import ClassSums, Tally

__all__ = ["contexts", "maximum_explainable_variance", "self_similarity", "words"]

OCCURRENCES = 5
"""A word counts as a word in context from so many occurrences on, as published."""


def contexts(tally: Tally) -> dict[str, float | None]:
    """Cosines within a window, between windows, and of tokens to their window's mean; exact, from five sums.

    With s_w = Σû over window w and n_w its directions: within = (Σ‖s_w‖² − N)/(Σn_w² − N), over ordered pairs of distinct
    tokens of one window; between = (‖Σs_w‖² − Σ‖s_w‖²)/(N² − Σn_w²); both in [−1, 1]. The baseline is `between`: what
    two tokens share that no context explains. Intra-sentence similarity is the mean over windows of the mean cosine of a
    token to its window's mean vector, in [0, 1] for windows whose tokens all have directions.
    """
    tokens, squares, own = (float(tally[name]) for name in ("tokens", "square_tokens", "own"))
    windows, total = float(tally["windows"]), tally["unit"]
    pairs, across = squares - tokens, tokens**2 - squares
    within = (own - tokens) / pairs if pairs > 0 else None
    between = (float(total @ total) - own) / across if across > 0.5 else None
    intra = float(tally["intra"]) / windows if windows > 0 else None
    return {
        "within_cosine": within,
        "between_cosine": between,
        "within_adjusted": None if within is None or between is None else within - between,
        "intra_similarity": intra,
        "intra_adjusted": None if intra is None or between is None else intra - between,
    }


def self_similarity(
    sums: ClassSums, *, least: int = OCCURRENCES
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Labels and mean pairwise cosine of each class with at least `least` directions: (‖Σû‖² − n)/(n(n − 1)), exact.

    In [−1/(n − 1), 1]. With classes = token ids, the self-similarity of a word over its contexts.

    >>> import torch
    >>> sums = ClassSums(2)
    >>> sums.update(torch.tensor([4, 4]), torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    >>> self_similarity(sums, least=2)[1].round(4).tolist()
    [0.7071]
    """
    directions = (sums.counts - sums.zeros).double()
    kept = directions >= max(least, 2)
    n = directions[kept]
    values = (sums.units[kept].square().sum(-1) - n) / (n * (n - 1))
    return sums.labels[kept].cpu().numpy(), values.cpu().numpy()


def words(sums: ClassSums, baseline: float | None, *, least: int = OCCURRENCES) -> Cells:
    """Mean self-similarity over words (each word counts once), the same less the baseline, and how many words that is.

    The interval is mean ± 1.96·sd/√words, words taken as the sample; it does not cover the choice of the text.
    """
    labels, values = self_similarity(sums, least=least)
    found: Cells = {
        "self_similarity": None,
        "self_similarity_interval": None,
        "self_adjusted": None,
        "self_adjusted_interval": None,
        "words": len(labels),
    }
    if not len(values):
        return found
    mean = float(values.mean())
    if len(values) > 1:
        reach = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
        found["self_similarity_interval"] = [max(-1.0, mean - reach), min(1.0, mean + reach)]
        if baseline is not None:
            # The baseline is a mean over nearly all pairs of tokens: its own error is far below that of some hundred words.
            found["self_adjusted_interval"] = [mean - baseline - reach, mean - baseline + reach]
    return found | {"self_similarity": mean, "self_adjusted": None if baseline is None else mean - baseline}


def maximum_explainable_variance(
    rows: npt.NDArray[np.float64], labels: npt.NDArray[np.float64], *, least: int = OCCURRENCES
) -> Cells:
    """MEV: the share of a word's occurrences' energy along their one best direction, averaged over words, and adjusted.

    Uncentred for words and for the baseline alike: σ₁²/Σσ² of a word's n occurrences, less the mean of the same for n
    vectors drawn without regard to the word (the rows cut into consecutive lots of n, which are in hash order and so
    random). Intervals are mean ± 1.96·sd/√words, words taken as the sample. The published code centres for words and
    not for its baseline, so the two could not be compared. In [1/n, 1].
    Cost O(Σ n_w²·d) through the n_w x n_w Gram matrices.

    >>> x = np.random.default_rng(0).standard_normal((40, 6)); x[:20] = x[0]
    >>> found = maximum_explainable_variance(x, np.array([0] * 20 + list(range(1, 21))))
    >>> found["mev"], found["mev_words"]
    (1.0, 1)
    """
    rows, labels = np.asarray(rows, dtype=np.float64), np.asarray(labels)
    own, counts = np.unique(labels, return_counts=True)
    kept = counts >= max(least, 2)
    values, baselines = [], []
    for label, count in zip(own[kept], counts[kept], strict=True):
        share = _top_share(rows[labels == label])
        lots = [_top_share(rows[k * count : (k + 1) * count]) for k in range(min(8, len(rows) // count))]
        known = [lot for lot in lots if lot is not None]
        if share is not None and known:
            values.append(share)
            baselines.append(float(np.mean(known)))
    found: Cells = dict.fromkeys(("mev", "mev_interval", "mev_adjusted", "mev_adjusted_interval"))
    for name, numbers in (("mev", np.array(values)), ("mev_adjusted", np.array(values) - np.array(baselines))):
        if len(numbers):
            mean = float(numbers.mean())
            found[name] = mean
        if len(numbers) > 1:
            reach = 1.96 * float(numbers.std(ddof=1)) / len(numbers) ** 0.5
            found[f"{name}_interval"] = [max(0.0 if name == "mev" else -1.0, mean - reach), min(1.0, mean + reach)]
    return found | {"mev_words": len(values)}


def _top_share(rows: npt.NDArray[np.float64]) -> float | None:
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    total = float(np.trace(gram))
    return min(1.0, float(np.linalg.eigvalsh(gram)[-1]) / total) if total > 0 else None
