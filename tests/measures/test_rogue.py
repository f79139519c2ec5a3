import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import agreement_without, average_cosine, contributions
from headscan.measures.outliers import agreements, rogue, rogue_dimensions
from headscan.statistics import DirectionTally, SiteBatch
from headscan.statistics.cloud import Cloud
from tests.reference import words as reference


def tally_of(x):
    tally = DirectionTally(x.shape[-1])
    tally.update(
        SiteBatch("s", torch.tensor(x)[None], torch.zeros(1, len(x), dtype=torch.long), [0])
    )
    return tally.total()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 6))
def test_contributions_equal_the_mean_over_all_pairs_and_add_up(seed, n, d):
    x = np.random.default_rng(seed).standard_normal((n, d)) + 1
    tally = tally_of(x)
    actual = contributions(float(tally["tokens"]), tally["unit"].numpy(), tally["square"].numpy())
    np.testing.assert_allclose(actual, reference.contributions(x), atol=1e-12)
    assert actual.sum() == pytest.approx(average_cosine(Cloud.of_rows(x)), abs=1e-12)


def test_one_huge_dimension_is_found_and_explains_the_cosine():
    x = np.random.default_rng(0).standard_normal((500, 16))
    x[:, 5] += 40
    measures = rogue(tally_of(x))
    assert measures["rogue_share_1"] == pytest.approx(1, abs=0.01)
    assert measures["rogue_half"] == 1
    assert rogue_dimensions(tally_of(x))[0].dimension == 5
    x[:, 5] *= np.random.default_rng(1).choice([-1, 1], 500)
    assert agreement_without(x, np.array([5])) < 0.05 < 0.99 < agreement_without(x, np.array([3]))


def test_shares_of_a_round_cloud_are_not_defined():
    x = np.random.default_rng(0).standard_normal((2000, 8))
    assert set(rogue(tally_of(np.vstack([x, -x]))).values()) == {None}


@pytest.mark.parametrize("x", [np.zeros((4, 3)), np.ones((1, 3))])
def test_too_few_directions(x):
    assert set(rogue(tally_of(x)).values()) == {None}
    assert rogue_dimensions(tally_of(x)) == []


@pytest.mark.parametrize("blocks", [1, 3, 5])
def test_agreement_equals_the_reference_however_it_is_cut(blocks):
    x = np.random.default_rng(1).standard_normal((25, 6)) * [1, 5, 1, 1, 2, 1]
    first = np.arange(25) % 6 == 0
    measures = agreements(x, {1: np.array([1])}, np.arange(25) * blocks // 25, first)
    assert measures["agreement_1"] == pytest.approx(reference.agreement_without(x, [1]))
    assert measures["agreement_1_without_first"] == pytest.approx(
        reference.agreement_without(x[~first], [1])
    )
    assert agreement_without(x, np.array([1])) == pytest.approx(measures["agreement_1"])
    assert (measures["agreement_1_interval"] is None) == (blocks < 3)


def test_agreement_where_nothing_varies():
    assert agreement_without(np.ones((5, 3)), np.array([0])) is None
    assert agreement_without(np.zeros((5, 3)), np.array([0])) is None
