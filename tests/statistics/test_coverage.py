"""A scan's intervals cover what they promise on text whose windows depend on each other, at several widths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscan.measures import MEASURES
from headscan.measures.measure import Measure, MeasureWords
from headscan.measures.spectrum import entropy_bias
from headscan.scanner.examine import site_cells
from headscan.statistics import Pieces, SiteStatistics, Sums
from headscan.statistics.cloud import Cloud
from headscan.statistics.errors import Noise
from headscan.statistics.linearisation import Linearisation
from headscan.statistics.uncertainty import StandardError

NAMES = ("average_cosine", "mean_norm", "top_direction_share", "effective_rank", "isoscore")
CORE = [MEASURES[name] for name in NAMES]
LENGTH = 8


def text(windows: int, width: int, document: int, generator: torch.Generator) -> torch.Tensor:
    """Windows [n, LENGTH, width]: each document has a direction and a scale of its own; position 0 is a giant."""
    spectrum = torch.arange(1, width + 1, dtype=torch.float64) ** -0.7
    documents = -(-windows // document)
    own = 0.5 * torch.randn(documents, width, generator=generator, dtype=torch.float64) * spectrum
    loud = 1 + 0.1 * torch.randn(documents, generator=generator, dtype=torch.float64)
    own, loud = (part.repeat_interleave(document, 0)[:windows] for part in (own, loud))
    noise = torch.randn(windows, LENGTH, width, generator=generator, dtype=torch.float64) * spectrum
    x = loud[:, None, None] * (noise + own[:, None] + 0.5 * spectrum)
    x[:, 0] = 20 * spectrum + 0.1 * x[:, 0]
    return x


def statistics(x: torch.Tensor, measures=CORE, derive: bool = True, document: int = 0) -> SiteStatistics:
    found = SiteStatistics(x.shape[2], derive=Linearisation(measures) if derive else None)
    for start in range(0, len(x), 64):
        windows = torch.arange(start, min(start + 64, len(x)))
        documents = windows // document if document else torch.zeros_like(windows)
        found.update(x[windows], windows.tolist(), documents[:, None].expand(-1, x.shape[1]))
    return found


@pytest.mark.parametrize(
    ("width", "windows", "document", "known", "texts"),
    [(8, 64, 4, True, 120), (8, 700, 4, True, 30), (32, 60, 3, True, 60), (8, 64, 4, False, 60)],
)
def test_intervals_cover_text_of_documents(width, windows, document, known, texts):
    """95 % nominal: of 120 texts a binomial standard deviation of 2 %. With 700 windows the pilot is 512 of them."""
    generator = torch.Generator().manual_seed(windows)
    truth, _ = site_cells("truth", statistics(text(40_000, width, document, generator), derive=False), CORE)
    hits = dict.fromkeys((n + end for n in NAMES for end in ("", "_without_first")), 0)
    for _ in range(texts):
        cells, _ = site_cells(
            "text", statistics(text(windows, width, document, generator), document=known and document), CORE
        )
        for name in hits:
            low, high = cells[f"{name}_interval"]
            assert low <= cells[name] <= high
            hits[name] += low <= truth[name] <= high
    for name, hit in hits.items():
        assert hit / texts >= 0.95 - 4 * (0.95 * 0.05 / texts) ** 0.5, (name, hit / texts)
    assert 0.90 <= sum(hits.values()) / texts / len(hits) <= (0.985 if known else 1)


def test_documents_of_very_different_sizes_are_covered():
    """The mean over tokens of documents that each have a value of their own; sizes spread by a factor of ten."""
    generator = np.random.default_rng(0)
    for documents in (5, 10, 40):
        hits = 0
        for _ in range(1000):
            n = np.exp(0.8 * generator.standard_normal(documents)) * 100
            own = n * generator.standard_normal(documents) + n**0.5 * 3 * generator.standard_normal(documents)
            low, high = StandardError.of_documents(own, n).interval(own.sum() / n.sum(), bounds=(None, None))
            hits += low <= 0 <= high
        assert 0.92 <= hits / 1000 <= (0.985 if documents > 5 else 0.995), documents


def test_running_text_of_long_memory_is_covered_and_the_naive_error_is_not():
    """Fractional noise of Hurst exponent ¾, with as much noise that has no memory on top of it."""
    generator, length = np.random.default_rng(0), 160
    lags = np.arange(length)
    cov = 0.5 * ((lags + 1.0) ** 1.5 - 2 * lags**1.5 + np.abs(lags - 1.0) ** 1.5)
    root = np.linalg.cholesky(cov[np.abs(lags[:, None] - lags)])
    x = generator.standard_normal((600, length)) @ root.T + generator.standard_normal((600, length))
    hits, naive = 0, 0
    for row in x:
        low, high = StandardError.of_text(row, np.ones(length)).interval(row.mean(), bounds=(None, None))
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


@pytest.mark.parametrize("name", list(MEASURES.names()))
def test_the_derivative_is_what_a_heavier_window_does(name, monkeypatch):
    """ψ of every window against differences of the measure itself: of all tokens, without the first, without sinks."""
    monkeypatch.setattr("headscan.statistics.linearisation.SPREAD", 0.0)
    x = text(12, 6, 3, torch.Generator().manual_seed(0)).repeat(1, 40, 1)  # many tokens: n − 1 is n
    x[:, 1:] += 0.1 * torch.randn(x[:, 1:].shape, generator=torch.Generator().manual_seed(1))
    x[::2, 7] *= 20
    x[:, 0] *= torch.linspace(0.05, 20, 12)[:, None]
    aside, documents = SiteStatistics(6)._aside, torch.zeros(x.shape[:2], dtype=torch.int64)
    numbers = Linearisation([MEASURES[name]])(x, aside).of(Pieces.of(x, documents, aside(x)))[2]
    found = numbers.reshape(len(x), 3, -1)[:, :, 1]
    first, norms = torch.zeros(x.shape[:2], dtype=torch.bool), x.norm(dim=-1)
    first[:, 0] = True
    sinks = norms > 3 * norms.median(dim=1, keepdim=True).values
    assert all(map(torch.any, (sinks & ~first, sinks & first, first & ~sinks)))
    for group, chosen in enumerate((first | ~first, ~first, ~sinks)):
        whole, seen = Sums.of_rows(x[chosen]), []
        for window in (rows[own] for rows, own in zip(x, chosen, strict=True)):
            values = []
            for weight in (1e-2, -1e-2):
                moved = whole.weighed(Sums.of_rows(window), weight)
                values.append(MEASURES[name].function(_cloud(moved)))
            seen.append((values[0] - values[1]) / 2e-2 * whole.count)
        influence = found[:, group].numpy()
        influence = influence - influence.mean()
        np.testing.assert_allclose(influence, seen, atol=0.02 * np.abs(seen).max(), rtol=0)


def _cloud(sums: Sums) -> Cloud:
    """Of a count that is no whole number."""
    cloud = Cloud.of_sums(sums)
    object.__setattr__(cloud, "count", float(sums.scalars[0]))
    return cloud


def test_a_measure_without_a_gradient_says_why_it_has_no_interval():
    words = MeasureWords(
        title="", group="spectra", sentence="", formula="", range=(None, None), source="", undefined="", spectral=True
    )
    made = Measure("corner", lambda cloud: float(cloud.second_moment[0, 1]), words)
    cells, _ = site_cells("x", statistics(text(60, 8, 3, torch.Generator().manual_seed(0)), [made]), [made])
    assert cells["corner_interval"] is None
    assert "corner has no interval: its derivative is not known" in str(cells["notes"])


def test_wide_sites_have_intervals_of_spectral_measures_that_agree_with_all_directions(monkeypatch):
    x = text(80, 48, 4, torch.Generator().manual_seed(0))
    exact, _ = site_cells("x", statistics(x), CORE)
    monkeypatch.setattr("headscan.statistics.linearisation.DENSE", 16)
    monkeypatch.setattr("headscan.statistics.linearisation.DIRECTIONS", 24)
    few, _ = site_cells("x", statistics(x), CORE)
    for name in NAMES:
        for end in ("_interval", "_without_first_interval"):
            (a, b), (c, d) = exact[name + end], few[name + end]
            assert (d - c) / (b - a) == pytest.approx(1, abs=0.25), name + end


def test_too_few_windows_and_statistics_without_influences_say_so():
    x = text(2, 6, 1, torch.Generator().manual_seed(0))
    cells, _ = site_cells("x", statistics(x), CORE)
    assert cells["isoscore_interval"] is None
    assert "isoscore has no interval: three windows of text are needed, there are 2" in cells["notes"]
    cells, _ = site_cells("x", statistics(x, derive=False), CORE)
    assert "isoscore has no interval: it was not asked for before the pass" in cells["notes"]


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_bias_is_that_of_gaussian_tokens(power):
    generator = np.random.default_rng(0)
    spectrum = np.arange(1, 11) ** -0.5
    share = spectrum ** (2 * power) / (spectrum ** (2 * power)).sum()
    truth = float(-(share * np.log(share)).sum())
    found = []
    for _ in range(400):
        values = np.linalg.eigvalsh(np.cov((generator.standard_normal((200, 10)) * spectrum).T, bias=True)) ** power
        share = values / values.sum()
        found.append(float(-(share * np.log(share)).sum()) - truth)
    error = np.std(found) / 20
    told = entropy_bias(spectrum**2, 200.0, power)
    assert told == pytest.approx(np.mean(found), abs=4 * error + 0.1 * abs(np.mean(found)))


@pytest.mark.parametrize("name", ["alpha_req", "effective_rank", "participation_ratio", "isoscore"])
def test_the_bias_of_a_spectrum_of_independent_tokens_is_told(name):
    """Within a fifth, or a quarter of the standard error, where the spectrum falls; of one that is nearly flat, half at least."""
    generator, measure, width, tokens = np.random.default_rng(0), MEASURES[name], 12, 100
    for steep in (0.1, 0.7):
        spectrum = np.arange(1, width + 1) ** -steep
        both = np.sqrt(width) * np.concatenate([np.diag(spectrum), -np.diag(spectrum)])  # of mean 0
        truth = measure.function(Cloud.of_rows(both))
        clouds = [Cloud.of_rows(generator.standard_normal((tokens, width)) * spectrum) for _ in range(400)]
        errors = np.array([measure.function(cloud) for cloud in clouds]) - truth
        noise = Noise(unit=0.0, mean=0.0, tokens=float(tokens), error=float(errors.std()))
        told = np.mean([measure.bias(cloud, noise) for cloud in clouds])
        if steep > 0.5:
            assert told == pytest.approx(errors.mean(), rel=0.2, abs=0.25 * errors.std())
        else:
            assert 0.5 < told / errors.mean() < 1.2


def test_the_bias_of_a_mean_direction_of_few_documents_is_told():
    """A weak cone, six documents with a direction of their own each: their mean is too long, and the intervals know it."""
    generator = torch.Generator().manual_seed(1)
    chosen = [MEASURES[name] for name in ("average_cosine", "mean_vector_norm", "drift")]

    def weak(documents: int) -> torch.Tensor:
        own = 0.5 * torch.randn(documents, 24, generator=generator, dtype=torch.float64).repeat_interleave(4, 0)
        return torch.randn(4 * documents, LENGTH, 24, generator=generator, dtype=torch.float64) + own[:, None] + 0.15

    truth, _ = site_cells("truth", statistics(weak(3000), chosen, derive=False), chosen)
    found = [site_cells("text", statistics(weak(6), chosen, document=4), chosen)[0] for _ in range(20)]
    for measure in chosen:
        errors = [cells[measure.name] - truth[measure.name] for cells in found]
        told = [cells[f"{measure.name}_bias"] for cells in found]
        assert 0.75 < np.mean(told) / np.mean(errors) < 1.35
        assert abs(np.mean(errors)) > 4 * np.std(errors) / 20**0.5  # or the test says nothing
        intervals = [cells[f"{measure.name}_interval"] for cells in found]
        assert sum(low <= truth[measure.name] <= high for low, high in intervals) >= 18
