import numpy as np
import pytest
import torch
from headscan_lab.measures.collapse import collapse, nearest_mean_hits
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.statistics import ClassSums
from tests.measures.test_intervals_of_probes import ratio
from tests.reference import clouds as reference


def sums_of(x, labels):
    sums = ClassSums(x.shape[1])
    sums.update(torch.tensor(labels), torch.tensor(x))
    return sums


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(3, 8), st.integers(2, 6), st.sampled_from([1, 3, 1024]))
def test_every_metric_equals_its_definition_in_any_blocks(seed, classes, d, block):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes).repeat(2), rng.integers(0, classes + 3, 20)])
    x = rng.standard_normal((len(labels), d)) + 2 * rng.standard_normal((classes + 3, d))[labels]
    weight = rng.standard_normal((classes + 3, d))
    metrics = collapse(sums_of(x, labels), weight=torch.tensor(weight), block=block)
    for name, value in reference.collapse(x, labels, weight).items():
        assert metrics[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


def test_a_perfect_simplex_is_collapsed():
    d = 8
    simplex = np.eye(d) - 1 / d
    metrics = collapse(
        sums_of(simplex.repeat(3, axis=0), np.arange(d).repeat(3)), weight=torch.tensor(simplex)
    )
    assert metrics["cdnv"] == pytest.approx(0, abs=1e-12)
    assert metrics["equinorm"] == pytest.approx(0, abs=1e-9)
    assert metrics["interference"] == pytest.approx(-1 / (d - 1))
    assert metrics["spread"] == pytest.approx(0, abs=1e-6)
    assert metrics["duality"] == pytest.approx(1)


def test_noise_has_the_known_cdnv():
    """Class means all equal: E‖μ_c − μ_c'‖² = 2s/n, so CDNV → n/2·… = (s + s)/(2·2s/n) = n/2 up to
    the ratio's spread.
    """
    x = np.random.default_rng(0).standard_normal((20_000, 200))
    labels = np.arange(20_000) % 100
    assert collapse(sums_of(x, labels))["cdnv"] == pytest.approx(100, rel=0.03)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_too_few_classes(labels):
    metrics = collapse(sums_of(np.random.default_rng(0).standard_normal((3, 2)), np.array(labels)))
    assert metrics["cdnv"] is metrics["duality"] is metrics["spread"] is None


def test_equal_means_leave_no_nan():
    metrics = collapse(
        sums_of(np.ones((6, 3)), np.array([0, 0, 1, 1, 2, 2])), weight=torch.ones(3, 3)
    )
    assert all(value is None or np.isfinite(value) for value in metrics.values())
    assert metrics["cdnv"] is None
    assert metrics["equinorm"] is None


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1, 5, 2048]))
def test_nearest_mean_equals_the_loop(seed, block):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 0], rng.integers(0, 6, 40)])
    data = rng.standard_normal((42, 3))
    x = rng.standard_normal((15, 3))
    predicted = rng.integers(0, 3, 15)
    predicted[0] = 0
    hits = nearest_mean_hits(
        torch.tensor(x), torch.tensor(predicted), sums_of(data, labels), block=block
    )
    assert np.nanmean(hits) == pytest.approx(
        reference.nearest_mean_agreement(x, predicted, data, labels)
    )


def test_no_known_class():
    assert np.isnan(nearest_mean_hits(torch.ones(2, 1), torch.tensor([7, 8]), ClassSums(1))).all()
    assert np.isnan(
        nearest_mean_hits(
            torch.ones(1, 1), torch.tensor([7]), sums_of(np.ones((2, 1)), np.array([1, 1]))
        )
    ).all()


def cdnv(rng):
    means = 0.7 * rng.standard_normal((160, 6))
    labels = np.arange(160).repeat(6)
    sums = ClassSums(6)
    sums.update(
        torch.tensor(labels), torch.tensor(means[labels] + rng.standard_normal((len(labels), 6)))
    )
    metrics = collapse(sums)
    return metrics["cdnv"], metrics["cdnv_interval"]


def test_intervals_of_classes_are_as_wide_as_values_scatter():
    """Classes are independent draws; Student's quantile makes intervals up to 1.2 times as wide."""
    assert 0.75 < ratio(cdnv) < 1.6
