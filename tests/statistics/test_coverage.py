"""A scan's intervals cover what they promise on text whose windows depend on each other, at several
widths.
"""

import numpy as np
import pytest
import torch

from headscan.measures import MEASURES
from headscan.measures.measure import Measure, MeasureWords
from headscan.scanner.site_cells import site_cells
from headscan.statistics import SiteStatistics, Sums
from headscan.statistics.cloud import Cloud
from headscan.statistics.errors import Errors
from headscan.statistics.uncertainty import StandardError, deviations

NAMES = ("average_cosine", "mean_norm", "top_direction_share", "effective_rank", "isoscore")
CORE = [MEASURES[name] for name in NAMES]
LENGTH = 8


def text(windows: int, width: int, document: int, generator: torch.Generator) -> torch.Tensor:
    """Windows [n, LENGTH, width]: each document has a direction and a scale of its own; position 0
    is a giant.
    """
    spectrum = torch.arange(1, width + 1, dtype=torch.float64) ** -0.7
    documents = -(-windows // document)
    document_means = (
        0.5 * torch.randn(documents, width, generator=generator, dtype=torch.float64) * spectrum
    )
    loud = 1 + 0.1 * torch.randn(documents, generator=generator, dtype=torch.float64)
    document_means, loud = (
        part.repeat_interleave(document, 0)[:windows] for part in (document_means, loud)
    )
    noise = torch.randn(windows, LENGTH, width, generator=generator, dtype=torch.float64) * spectrum
    x = loud[:, None, None] * (noise + document_means[:, None] + 0.5 * spectrum)
    x[:, 0] = 20 * spectrum + 0.1 * x[:, 0]
    return x


def statistics(x: torch.Tensor, intervals: bool = True, document: int = 0) -> SiteStatistics:
    site_statistics = SiteStatistics(x.shape[2], intervals=intervals)
    for start in range(0, len(x), 64):
        windows = torch.arange(start, min(start + 64, len(x)))
        documents = windows // document if document else torch.zeros_like(windows)
        site_statistics.update(
            x[windows], windows.tolist(), documents[:, None].expand(-1, x.shape[1])
        )
    return site_statistics


@pytest.mark.parametrize(
    ("width", "windows", "document", "known", "texts"),
    [(8, 64, 4, True, 120), (8, 700, 4, True, 30), (32, 60, 3, True, 60), (8, 64, 4, False, 60)],
)
def test_intervals_cover_texts_of_the_same_length(width, windows, document, known, texts):
    """95 % nominal: of 120 texts a binomial standard deviation of 2 %. Of 700 windows 4,096 of
    5,600 tokens are sampled.
    """
    generator = torch.Generator().manual_seed(windows)
    all_texts = [text(windows, width, document, generator) for _ in range(texts)]
    cell_rows = [
        site_cells("text", statistics(x, document=known and document), CORE)[0] for x in all_texts
    ]
    hits = {}
    for name in (n + end for n in NAMES for end in ("", "_without_first")):
        truth = np.mean([cells[name] for cells in cell_rows])
        intervals = [cells[f"{name}_interval"] for cells in cell_rows]
        hits[name] = sum(low <= truth <= high for low, high in intervals)
    for name, hit in hits.items():
        assert hit / texts >= 0.95 - 4 * (0.95 * 0.05 / texts) ** 0.5, (name, hit / texts)
    assert 0.90 <= sum(hits.values()) / texts / len(hits) <= (0.985 if known else 1)


def test_documents_of_very_different_sizes_are_covered():
    """The mean over tokens of documents that each have a value of their own; sizes spread by a
    factor of ten.
    """
    generator = np.random.default_rng(0)
    for documents in (5, 10, 40):
        hits = 0
        for _ in range(1000):
            n = np.exp(0.8 * generator.standard_normal(documents)) * 100
            document_sums = n * generator.standard_normal(
                documents
            ) + n**0.5 * 3 * generator.standard_normal(documents)
            low, high = StandardError.of_documents(document_sums, n).interval(
                document_sums.sum() / n.sum(), bounds=(None, None)
            )
            hits += low <= 0 <= high
        assert 0.92 <= hits / 1000 <= (0.985 if documents > 5 else 0.995), documents


def test_running_text_of_long_memory_is_covered_and_the_naive_error_is_not():
    """Fractional noise of Hurst exponent ¾, with as much noise that has no memory on top of it."""
    generator = np.random.default_rng(0)
    length = 160
    lags = np.arange(length)
    cov = 0.5 * ((lags + 1.0) ** 1.5 - 2 * lags**1.5 + np.abs(lags - 1.0) ** 1.5)
    root = np.linalg.cholesky(cov[np.abs(lags[:, None] - lags)])
    x = generator.standard_normal((600, length)) @ root.T + generator.standard_normal((600, length))
    hits = 0
    naive = 0
    for row in x:
        low, high = StandardError.of_text(row, np.ones(length)).interval(
            row.mean(), bounds=(None, None)
        )
        hits += low <= 0 <= high
        naive += abs(row.mean()) <= 1.98 * row.std(ddof=1) / length**0.5
    assert 0.93 <= hits / 600 <= 0.985
    assert naive / 600 < 0.7


def test_documents_in_an_order_that_matters_are_taken_as_running_text():
    generator = np.random.default_rng(0)
    slow = np.repeat(generator.standard_normal(10), 12)
    x = slow + 0.3 * generator.standard_normal(120)
    shuffled = generator.permutation(x)
    assert StandardError.of_documents(x, np.ones(120)) == StandardError.of_text(x, np.ones(120))
    assert StandardError.of_documents(shuffled, np.ones(120)).freedom == pytest.approx(119)


@pytest.mark.parametrize(
    "name", [name for name in MEASURES.names() if MEASURES[name].gradient is not None]
)
def test_the_derivative_is_what_a_heavier_window_does(name):
    """ψ of every window against differences of the measure itself: of all tokens, without the
    first, without sinks.
    """
    x = text(12, 6, 3, torch.Generator().manual_seed(0)).repeat(1, 40, 1)  # many tokens: n − 1 is n
    x[:, 1:] += 0.1 * torch.randn(x[:, 1:].shape, generator=torch.Generator().manual_seed(1))
    x[::2, 7] *= 20
    x[:, 0] *= torch.linspace(0.05, 20, 12)[:, None]
    measures = [MEASURES[name]]
    errors = Errors.of(statistics(x), [MEASURES[name]])
    site_cells("x", statistics(x), measures, errors=errors)
    first = torch.zeros(x.shape[:2], dtype=torch.bool)
    norms = x.norm(dim=-1)
    first[:, 0] = True
    sinks = norms > 3 * norms.median(dim=1, keepdim=True).values
    assert all(map(torch.any, (sinks & ~first, sinks & first, first & ~sinks)))
    for group, in_group in enumerate((first | ~first, ~first, ~sinks)):
        sums = Sums.of_rows(x[in_group])
        changes = []
        for window in (rows[window_mask] for rows, window_mask in zip(x, in_group, strict=True)):
            values = []
            for weight in (1e-2, -1e-2):
                moved = sums.weighed(Sums.of_rows(window), weight)
                values.append(MEASURES[name].function(_cloud(moved)))
            changes.append((values[0] - values[1]) / 2e-2 * sums.count)
        influence = deviations(errors.influences[group, 0], errors.counts[group])
        np.testing.assert_allclose(influence, changes, atol=0.02 * np.abs(changes).max(), rtol=0)


def _cloud(sums: Sums) -> Cloud:
    """Return a cloud whose count is no whole number."""
    cloud = Cloud.of_sums(sums)
    object.__setattr__(cloud, "count", float(sums.scalars[0]))
    return cloud


def test_a_measure_without_a_gradient_says_why_it_has_no_interval():
    description = MeasureWords(
        title="",
        group="spectra",
        sentence="",
        formula="",
        range=(None, None),
        source="",
        undefined="",
        spectral=True,
    )
    measure = Measure("corner", lambda cloud: float(cloud.second_moment[0, 1]), description)
    cells, _ = site_cells(
        "x", statistics(text(60, 8, 3, torch.Generator().manual_seed(0))), [measure]
    )
    assert cells["corner_interval"] is None
    assert "corner has no interval: its derivative is not known" in str(cells["notes"])


def test_what_weighs_the_weakest_directions_has_an_interval_from_ten_tokens_a_dimension_on():
    for windows in (12, 13):  # 9.6 and 10.4 tokens a dimension
        cells, _ = site_cells(
            "x",
            statistics(text(windows, 10, 3, torch.Generator().manual_seed(0))),
            [MEASURES["rankme"]],
        )
        assert (cells["rankme_interval"] is None) == (cells["tokens"] < 10 * 10), cells["tokens"]
        assert ("rankme has no interval" in str(cells["notes"])) == (windows == 12)


def test_wide_sites_have_intervals_of_spectral_measures_that_agree_with_all_directions(monkeypatch):
    x = text(80, 48, 4, torch.Generator().manual_seed(0))
    exact, _ = site_cells("x", statistics(x), CORE)
    monkeypatch.setattr("headscan.statistics.linearisation.DENSE", 16)
    monkeypatch.setattr("headscan.statistics.linearisation.DIRECTIONS", 24)
    few, _ = site_cells("x", statistics(x), CORE)
    for name in NAMES:
        for end in ("_interval", "_without_first_interval"):
            low, high = exact[name + end]
            few_low, few_high = few[name + end]
            assert (few_high - few_low) / (high - low) == pytest.approx(1, abs=0.25), name + end


def test_too_few_windows_and_statistics_without_influences_say_so():
    x = text(2, 6, 1, torch.Generator().manual_seed(0))
    cells, _ = site_cells("x", statistics(x), CORE)
    assert cells["isoscore_interval"] is None
    assert (
        "isoscore has no interval: three windows of text are needed, there are 2" in cells["notes"]
    )
    cells, _ = site_cells("x", statistics(x, intervals=False), CORE)
    assert "isoscore has no interval: it was not asked for before the pass" in cells["notes"]


def test_intervals_of_a_mean_direction_of_few_documents_cover():
    """A weak cone, six documents with a direction of their own each: of so few documents the mean
    is longer than of many, and an interval is for texts of as few.
    """
    generator = torch.Generator().manual_seed(1)
    measures = [MEASURES[name] for name in ("average_cosine", "mean_vector_norm", "drift")]

    def weak(documents: int) -> torch.Tensor:
        document_means = 0.5 * torch.randn(
            documents, 24, generator=generator, dtype=torch.float64
        ).repeat_interleave(4, 0)
        return (
            torch.randn(4 * documents, LENGTH, 24, generator=generator, dtype=torch.float64)
            + document_means[:, None]
            + 0.15
        )

    endless, _ = site_cells("truth", statistics(weak(3000), intervals=False), measures)
    cell_rows = [
        site_cells("text", statistics(weak(6), document=4), measures)[0] for _ in range(40)
    ]
    for measure in measures:
        truth = np.mean([cells[measure.name] for cells in cell_rows])
        assert truth > 1.1 * endless[measure.name]  # or the test says nothing
        intervals = [cells[f"{measure.name}_interval"] for cells in cell_rows]
        assert sum(low <= truth <= high for low, high in intervals) >= 35, measure.name


@pytest.mark.parametrize("width", [3, 12, 40])
@pytest.mark.parametrize("windows", [3, 5, 40])
def test_no_interval_leaves_its_range(width, windows):
    """Of every measure, on round clouds, on needles, on one outlying document, in few windows and
    in many.
    """
    generator = torch.Generator().manual_seed(width * windows)
    round_ = torch.randn(windows, LENGTH, width, generator=generator, dtype=torch.float64)
    needle = 1 + 1e-4 * round_
    outlying = round_.clone()
    outlying[0] = 100 + round_[0]
    measures = list(MEASURES.values())
    for x in (round_, needle, outlying):
        cells, _ = site_cells("x", statistics(x, document=1), measures)
        for measure in measures:
            for suffix in ("", "_without_first", "_without_sinks"):
                interval = cells[f"{measure.name}{suffix}_interval"]
                if interval is None:
                    continue
                left_out = {"_without_first": windows, "_without_sinks": cells["sinks"]}.get(
                    suffix, 0
                )
                least, most = measure.ends(cells["tokens"] - left_out, width)
                low, high = interval
                assert low <= cells[measure.name + suffix] <= high
                assert least is None or low >= least - 1e-12, measure.name
                assert most is None or high <= most + 1e-12, measure.name
