"""The jackknife covers what it promises, agrees with the textbook form, and the null has its known law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from headscan.geometry import MEASURES, Cloud, Jackknife, average_cosine, mean_norm
from headscan.geometry.null import gaussian_cloud
from headscan.statistics import Sums


def blocks(x: np.ndarray, count: int) -> list[Sums]:
    return [Sums.of_rows(torch.from_numpy(part)) for part in np.array_split(x, count)]


def test_of_a_mean_over_equal_blocks_it_is_the_textbook_interval():
    x = np.random.default_rng(0).standard_normal((120, 3)) + 2
    low, high = Jackknife(blocks(x, 12)).interval(mean_norm)
    means = np.linalg.norm(x, axis=1).reshape(12, 10).mean(1)
    reach = student.ppf(0.975, 11) * means.std(ddof=1) / 12**0.5
    assert (low, high) == pytest.approx((means.mean() - reach, means.mean() + reach), rel=1e-10)


@pytest.mark.parametrize("name", ["average_cosine", "effective_rank", "mean_vector_norm"])
def test_it_covers_the_truth_about_as_often_as_it_says(name):
    """400 samples of 8 blocks; 95 % nominal. Binomial standard deviation of the coverage: 1.1 %."""
    generator = np.random.default_rng(1)
    mixing, mean = generator.standard_normal((4, 4)), np.array([1.0, 0.5, 0, 0])
    measure = MEASURES[name]
    truth = measure(Cloud.of_rows(generator.standard_normal((400_000, 4)) @ mixing + mean))
    covered = 0
    for _ in range(400):
        interval = Jackknife(blocks(generator.standard_normal((800, 4)) @ mixing + mean, 8)).interval(measure)
        covered += interval[0] <= truth <= interval[1]
    assert 0.90 <= covered / 400 <= 0.99


def test_too_few_blocks_have_no_interval():
    x = np.random.default_rng(0).standard_normal((20, 3))
    assert Jackknife(blocks(x, 2)).interval(average_cosine) is None
    assert Jackknife([]).interval(average_cosine) is None
    assert Jackknife(blocks(np.zeros((20, 3)), 5)).interval(average_cosine) is None


def test_it_is_cut_to_the_measures_range():
    x = np.random.default_rng(0).standard_normal((30, 3))
    low, high = Jackknife(blocks(x, 3)).interval(average_cosine, bounds=(-0.001, 0.001))
    assert low >= -0.001
    assert high <= 0.001


@pytest.mark.parametrize(("n", "d"), [(3000, 12), (50, 12)])
def test_the_gaussian_null_has_the_law_of_drawn_gaussians(n, d):
    """Means over 200 draws of the shortcut and of plain draws agree within 5 standard errors, for every measure."""
    generator = np.random.default_rng(0)
    short = [gaussian_cloud(n, d, mean_square_norm=5.0, generator=generator) for _ in range(200)]
    plain = [Cloud.of_rows(generator.standard_normal((n, d)) * (5.0 / d) ** 0.5) for _ in range(200)]
    for name, measure in MEASURES.items():
        a, b = (np.array([measure(cloud) for cloud in clouds]) for clouds in (short, plain))
        error = np.sqrt((a.var() + b.var()) / 200) + 1e-12
        # Σ‖x‖ of the shortcut is its expectation, so only its mean is compared.
        assert abs(a.mean() - b.mean()) < 5 * error, name
        if name != "mean_norm":
            assert a.std() == pytest.approx(b.std(), rel=0.3), name
