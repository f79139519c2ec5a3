"""Words in context: similarity within and between contexts, and of one word with itself, all less
the baseline that anisotropy alone would give (Ethayarajh 2019, arXiv:1909.00512).
"""

import numpy as np

from headscan.measures.measure import WITHOUT_FIRST, Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup, suffixed, tally_row
from headscan.statistics import Accumulator, ClassSums, ContextTally, SiteBatch, Tally
from headscan.statistics.uncertainty import Cells, Floats, bounded, normal_reach, number

ONE_WINDOW = "fewer than two windows"

OCCURRENCES = 5
"""The fewest occurrences of a word in context, as published."""


def contexts(tally: Tally) -> dict[str, float | None]:
    """Return cosines within a window, between windows, and of tokens to their window's mean.

    They are exact, from five sums.

    With s_w = Σû over window w and n_w its directions: within = (Σ‖s_w‖² − N)/(Σn_w² − N), over
    ordered pairs of distinct tokens of one window; between = (‖Σs_w‖² − Σ‖s_w‖²)/(N² − Σn_w²); both
    in [−1, 1]. The baseline is `between`: what two tokens share that no context explains.
    Intra-sentence similarity is the mean over windows of the mean cosine of a token to its window's
    mean vector, in [0, 1] for windows whose tokens all have directions.
    """
    tokens = float(tally["tokens"])
    squares = float(tally["square_tokens"])
    own_square = float(tally["own"])
    windows = float(tally["windows"])
    total = tally["unit"]
    pairs = squares - tokens
    across = tokens**2 - squares
    within = (own_square - tokens) / pairs if pairs > 0 else None
    between = (float(total @ total) - own_square) / across if across > 0.5 else None
    intra = float(tally["intra"]) / windows if windows > 0 else None
    return {
        "within_cosine": within,
        "between_cosine": between,
        "within_adjusted": None if within is None or between is None else within - between,
        "intra_similarity": intra,
        "intra_adjusted": None if intra is None or between is None else intra - between,
    }


def self_similarity(sums: ClassSums, *, least: int = OCCURRENCES) -> tuple[Floats, Floats]:
    """Return the labels and mean pairwise cosines of the classes with at least `least` directions.

    The mean is exact: (‖Σû‖² − n)/(n(n − 1)).

    In [−1/(n − 1), 1]. With classes = token ids, the self-similarity of a word over its contexts.

    >>> import torch
    >>> sums = ClassSums(2)
    >>> sums.update(torch.tensor([4, 4]), torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    >>> self_similarity(sums, least=2)[1].round(4).tolist()
    [0.7071]
    """
    directions = (sums.counts - sums.zeros).double()
    frequent = directions >= max(least, 2)
    n = directions[frequent]
    values = (sums.units[frequent].square().sum(-1) - n) / (n * (n - 1))
    return sums.labels[frequent].cpu().numpy(), values.cpu().numpy()


def words(sums: ClassSums, baseline: float | None, *, least: int = OCCURRENCES) -> Cells:
    """Return the mean self-similarity over words, the same less the baseline, and the number of
    words.

    Each word counts once. The interval is normal, words taken as the sample; it does not cover the
    choice of the text.
    """
    labels, values = self_similarity(sums, least=least)
    cells: Cells = {
        "self_similarity": None,
        "self_similarity_interval": None,
        "self_adjusted": None,
        "self_adjusted_interval": None,
        "words": len(labels),
    }
    if not len(values):
        return cells
    mean = float(values.mean())
    if len(values) > 1:
        reach = normal_reach(values)
        cells["self_similarity_interval"] = list(bounded(mean - reach, mean + reach, (-1.0, 1.0)))
        if baseline is not None:
            # The baseline is a mean over nearly all pairs of tokens: its own error is far below
            # that of some hundred words.
            cells["self_adjusted_interval"] = [mean - baseline - reach, mean - baseline + reach]
    return cells | {
        "self_similarity": mean,
        "self_adjusted": None if baseline is None else mean - baseline,
    }


def maximum_explainable_variance(
    rows: Floats, labels: Floats, *, least: int = OCCURRENCES
) -> Cells:
    """Return MEV: the share of a word's occurrences' energy along their one best direction.

    It is averaged over words. Uncentred for words and for the baseline alike: σ₁²/Σσ² of a word's n
    occurrences, less the mean of the same for n vectors drawn without regard to the word (the rows
    cut into consecutive lots of n, which are in hash order and so random). Intervals are normal,
    words taken as the sample. The published code centres for words and not for its baseline, so the
    two could not be compared. In [1/n, 1]. Cost O(Σ n_w²·d) through the n_w x n_w Gram matrices.

    >>> x = np.random.default_rng(0).standard_normal((40, 6))
    >>> x[:20] = x[0]
    >>> cells = maximum_explainable_variance(x, np.array([0] * 20 + list(range(1, 21))))
    >>> cells["mev"], cells["mev_words"]
    (1.0, 1)
    """
    rows = np.asarray(rows, dtype=np.float64)
    labels = np.asarray(labels)
    types, counts = np.unique(labels, return_counts=True)
    frequent = counts >= max(least, 2)
    by_chance = {count: _share_by_chance(rows, count) for count in np.unique(counts[frequent])}
    values = []
    baselines = []
    for label, count in zip(types[frequent], counts[frequent], strict=True):
        share = _top_share(rows[labels == label])
        baseline = by_chance[count]
        if share is not None and baseline is not None:
            values.append(share)
            baselines.append(baseline)

    cells: Cells = dict.fromkeys(("mev", "mev_interval", "mev_adjusted", "mev_adjusted_interval"))
    if values:
        adjusted = np.array(values) - np.array(baselines)
        cells |= _mean_cells("mev", np.array(values), 0.0)
        cells |= _mean_cells("mev_adjusted", adjusted, -1.0)
    return cells | {"mev_words": len(values)}


def _mean_cells(name: str, numbers: Floats, lowest: float) -> Cells:
    """Return the mean of the numbers, and its normal interval within [lowest, 1]."""
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return {name: mean}
    reach = normal_reach(numbers)
    interval = list(bounded(mean - reach, mean + reach, (lowest, 1.0)))
    return {name: mean, f"{name}_interval": interval}


def _share_by_chance(rows: Floats, count: int) -> float | None:
    """Return the mean top share of up to 8 consecutive lots of `count` rows."""
    shares = []
    for lot in range(min(8, len(rows) // count)):
        share = _top_share(rows[lot * count : (lot + 1) * count])
        if share is not None:
            shares.append(share)
    return float(np.mean(shares)) if shares else None


def _top_share(rows: Floats) -> float | None:
    """Return σ₁²/Σσ² of the rows; None where all are zero."""
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    total = float(np.trace(gram))
    return min(1.0, float(np.linalg.eigvalsh(gram)[-1]) / total) if total > 0 else None


class WordsProbe(Probe):
    """The similarity of tokens within windows, between windows, and of a word with itself."""

    needs = "tokens"
    words = ProbeWords(
        name="words",
        title="Words in context",
        group="words",
        sentence="How contextual are the vectors? Similarity within and between windows and of a "
        "word with itself, less what any two tokens share.",
        literature="Ethayarajh 2019, arXiv:1909.00512",
        position="Every number also without position 0 of each window.",
        docs="words.md",
        function="headscan.measures.words.contexts",
        sample=2000,
        order=3,
        fields={
            "within_cosine": Field(
                "within a window",
                "Mean cosine of two tokens of one window.",
                "(Σ‖s_w‖² − N)/(Σn_w² − N)",
                range=(-1, 1),
                undefined="fewer than two vectors that are not zero",
                first=True,
            ),
            "between_cosine": Field(
                "between windows",
                "Mean cosine of two tokens of different windows: the baseline.",
                "(‖Σs_w‖² − Σ‖s_w‖²)/(N² − Σn_w²)",
                range=(-1, 1),
                undefined=ONE_WINDOW,
                first=True,
            ),
            "within_adjusted": Field(
                "within, adjusted",
                "Within less between: what a shared context adds.",
                range=(-2, 2),
                undefined=ONE_WINDOW,
                first=True,
                plotted=True,
            ),
            "intra_similarity": Field(
                "intra-sentence similarity",
                "Mean cosine of a token to the mean vector of its window.",
                "mean cos(s̄, h_i)",
                range=(0, 1),
                undefined="fewer than two vectors that are not zero",
                first=True,
            ),
            "intra_adjusted": Field(
                "intra, adjusted",
                "The same less the baseline.",
                range=(-1, 2),
                undefined=ONE_WINDOW,
                first=True,
                plotted=True,
            ),
            "self_similarity": Field(
                "self-similarity",
                "Mean cosine of two occurrences of the same token, averaged over tokens with at "
                "least 5.",
                "(‖Σû‖² − n)/(n(n − 1))",
                range=(-1, 1),
                undefined="no token occurs 5 times",
                first=True,
            ),
            "self_adjusted": Field(
                "self-similarity, adjusted",
                "The same less the baseline: how much of the word survives its context.",
                range=(-2, 2),
                undefined="no token occurs 5 times, or fewer than two windows",
                first=True,
                plotted=True,
            ),
            "words": Field(
                "words",
                "Token types with at least 5 occurrences (at most 8,192 types are followed).",
                range=(0, None),
                unit="types",
                interval="a count",
                first=True,
            ),
            "mev": Field(
                "MEV",
                "Maximum explainable variance: a word's energy along its one best direction, on "
                "the sample (uncentred).",
                "σ₁²/Σσ²",
                range=(0, 1),
                undefined="no token occurs 5 times in the sample",
                first=True,
            ),
            "mev_adjusted": Field(
                "MEV, adjusted",
                "The same less that of as many vectors drawn without regard to the word.",
                range=(-1, 1),
                undefined="no token occurs 5 times in the sample",
                first=True,
                plotted=True,
            ),
            "mev_words": Field(
                "words in MEV",
                "Token types it is averaged over.",
                range=(0, None),
                unit="types",
                interval="a count",
                first=True,
            ),
        },
    )

    def cost(self, setup: ProbeSetup) -> Cost:
        types = min(8192, setup.source.vocabulary)
        return Cost(0, sum(16.0 * types * setup.width(site) for site in setup.sites))

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        accumulators: dict[str, Accumulator] = {}
        for site in setup.sites:
            width = setup.width(site)
            accumulators[site] = ContextTally(width, setup.device)
            for part in ("types", "first"):
                accumulators[f"{site}|{part}"] = ClassSums(width, limit=8192, device=setup.device)
        return accumulators

    def update(
        self, _setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        if isinstance(accumulator, ContextTally):
            accumulator.update(batch)
            return
        assert isinstance(accumulator, ClassSums)
        # Position 0 on its own: few rows, to be taken away from all.
        part = slice(None) if key.endswith("|types") else slice(0, batch.lead)
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.ids[:, part].reshape(-1),
            batch.norms[:, part].reshape(-1),
            batch.rows[:, part].reshape(flat),
            batch.unit[:, part].reshape(flat),
        )

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = []
        for site in data.clouds:
            tally = data.own[site]
            types = data.own[f"{site}|types"]
            first = data.own[f"{site}|first"]
            assert isinstance(tally, ContextTally)
            assert isinstance(types, ClassSums)
            assert isinstance(first, ClassSums)
            row: Cells = {"site": site, **tally_row(tally, contexts, self.fields)}
            baseline = number(row["between_cosine"])
            later_baseline = number(row[f"between_cosine{WITHOUT_FIRST}"])
            row |= words(types, baseline)
            row |= suffixed(words(types.without(first), later_baseline))
            rows.append(row | _sample_variance(data, site))
        return rows


def _sample_variance(data: ProbeData, site: str) -> Cells:
    """Return the MEV of a site's sampled vectors, with and without those at position 0."""
    states = data.sample.get(site)
    if states is None:
        undefined: Cells = {"mev": None, "mev_adjusted": None, "mev_words": 0}
        return undefined | suffixed(undefined)
    x = states.numpy()
    ids = data.sample["id"].numpy()
    later = ~data.first
    cells = maximum_explainable_variance(x, ids)
    return cells | suffixed(maximum_explainable_variance(x[later], ids[later]))
