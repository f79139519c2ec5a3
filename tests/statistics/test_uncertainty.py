"""Intervals from what is left out cover what it promises, agree with the textbook form, and the
null has its known law.
"""

import numpy as np
import pytest
from scipy.stats import t as student

from headscan.measures import MEASURES, average_cosine, mean_norm
from headscan.measures.measure import gaussian_cloud
from headscan.statistics.cloud import Cloud
from headscan.statistics.uncertainty import clustered, jackknife


def blocked(x: np.ndarray, count: int, measure, **options):
    """The interval of a measure from independent blocks left out."""
    [interval] = blocked_each(x, count, [measure], **options)
    return interval


def blocked_each(x: np.ndarray, count: int, measures, **options):
    """The intervals of several measures from the same blocks left out."""
    parts = np.array_split(np.arange(len(x)), count)
    whole = Cloud.of_rows(x)
    clouds = [Cloud.of_rows(np.delete(x, part, axis=0)) for part in parts]
    sizes = [len(part) for part in parts]
    return [
        jackknife(measure(whole), list(map(measure, clouds)), sizes, running=False, **options)
        for measure in measures
    ]


def test_of_a_mean_over_equal_blocks_it_is_the_textbook_interval():
    x = np.random.default_rng(0).standard_normal((120, 3)) + 2
    low, high = blocked(x, 12, mean_norm)
    means = np.linalg.norm(x, axis=1).reshape(12, 10).mean(1)
    reach = student.ppf(0.975, 11) * means.std(ddof=1) / 12**0.5
    assert (low, high) == pytest.approx((means.mean() - reach, means.mean() + reach), rel=1e-10)


def test_it_covers_the_truth_about_as_often_as_it_says():
    """400 samples of 8 blocks; 95 % nominal. Binomial standard deviation of the coverage: 1.1 %."""
    generator = np.random.default_rng(1)
    mixing = generator.standard_normal((4, 4))
    mean = np.array([1.0, 0.5, 0, 0])
    names = ["average_cosine", "effective_rank", "mean_vector_norm"]
    measures = [MEASURES[name] for name in names]
    cloud = Cloud.of_rows(generator.standard_normal((400_000, 4)) @ mixing + mean)
    truths = [measure(cloud) for measure in measures]
    covered = dict.fromkeys(names, 0)
    for _ in range(400):
        sample = generator.standard_normal((800, 4)) @ mixing + mean
        intervals = blocked_each(sample, 8, measures)
        for name, truth, (low, high) in zip(names, truths, intervals, strict=True):
            covered[name] += low <= truth <= high
    for name, count in covered.items():
        assert 0.90 <= count / 400 <= 0.99, name


def test_too_few_blocks_have_no_interval():
    x = np.random.default_rng(0).standard_normal((20, 3))
    assert blocked(x, 2, average_cosine) is None
    assert blocked(np.zeros((20, 3)), 5, average_cosine) is None
    assert jackknife(None, [1.0, 2.0, 3.0], [1, 1, 1]) is None
    assert jackknife(1.0, [1.0, None, 3.0], [1, 1, 1]) is None
    assert clustered(lambda items: 0.5, 2) is None


def test_it_is_cut_to_the_measures_range():
    x = np.random.default_rng(0).standard_normal((30, 3))
    low, high = blocked(x, 3, average_cosine, bounds=(-0.001, 0.001))
    assert low >= -0.001
    assert high <= 0.001


def test_blocks_of_a_text_of_long_memory_are_covered():
    """Of a mean over 64 blocks that drift slowly together; independent blocks would promise too
    much.
    """
    generator = np.random.default_rng(0)
    hits = 0
    naive = 0
    for _ in range(300):
        slow = np.repeat(generator.standard_normal(16), 4)
        x = slow + 0.3 * generator.standard_normal(64)
        left_out_means = (x.sum() - x) / 63
        for running in (True, False):
            low, high = jackknife(x.mean(), left_out_means.tolist(), np.ones(64), running=running)
            hits += running and low <= 0 <= high
            naive += (not running) and low <= 0 <= high
    assert hits / 300 >= 0.93
    assert naive / 300 < 0.75


def test_items_of_one_group_err_together():
    """Thirty items of ten questions, three wordings each with one answer: ten are what counts."""
    generator = np.random.default_rng(0)
    hits = 0
    naive = 0
    for _ in range(300):
        x = np.repeat(generator.standard_normal(10), 3)
        mean = lambda items, x=x: float(x[items].mean())  # noqa: E731
        low, high = clustered(mean, 30, groups=np.arange(30) // 3)
        hits += low <= 0 <= high
        low, high = clustered(mean, 30)
        naive += low <= 0 <= high
    assert 0.92 <= hits / 300 <= 0.98
    assert naive / 300 < 0.85


def test_the_order_of_items_says_nothing():
    """Items that come sorted have intervals as wide as they would in any order."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        x = np.sort((generator.random(640) < 0.6).astype(float))
        low, high = clustered(lambda items, x=x: float(x[items].mean()), 640, bounds=(0, 1))
        hits += low <= 0.6 <= high
    assert 0.9 <= hits / 200 <= 0.99


@pytest.mark.parametrize(("n", "d"), [(3000, 12), (50, 12)])
def test_the_gaussian_null_has_the_law_of_drawn_gaussians(n, d):
    """Means over 200 draws of the shortcut and of plain draws agree within 5 standard errors, for
    every measure.
    """
    generator = np.random.default_rng(0)
    short = [gaussian_cloud(n, d, mean_square_norm=5.0, generator=generator) for _ in range(200)]
    plain = [
        Cloud.of_rows(generator.standard_normal((n, d)) * (5.0 / d) ** 0.5) for _ in range(200)
    ]
    for name, measure in MEASURES.items():
        a, b = (np.array([measure(cloud) for cloud in clouds]) for clouds in (short, plain))
        error = np.sqrt((a.var() + b.var()) / 200) + 1e-12
        # Σ‖x‖ of the shortcut is its expectation, so only its mean is compared.
        assert abs(a.mean() - b.mean()) < 5 * error, name
        if name != "mean_norm":
            assert a.std() == pytest.approx(b.std(), rel=0.3), name
