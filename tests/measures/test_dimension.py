import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import intrinsic_dimension, mle, neighbour_distances, twonn
from tests.reference import clouds as reference


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(3, 60),
    st.integers(1, 8),
    st.sampled_from([0.0, 1e4]),
    st.integers(600, 20000),
)
def test_distances_equal_the_slow_ones_in_any_blocks(seed, n, d, offset, block):
    """An offset of 10⁴ costs ‖x‖² − 2x·y + ‖y‖² eight digits; the distances must not show it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + offset * rng.standard_normal(d)
    k = min(n - 1, 4)
    distances = neighbour_distances(x, k, block_bytes=block).numpy()
    np.testing.assert_allclose(distances, reference.neighbour_distances(x, k), rtol=1e-6, atol=1e-9)


def test_scikit_learn_agrees():
    neighbours = pytest.importorskip("sklearn.neighbors")
    x = np.random.default_rng(0).standard_normal((300, 20))
    expected = neighbours.NearestNeighbors(n_neighbors=6).fit(x).kneighbors()[0]
    np.testing.assert_allclose(neighbour_distances(x, 6).numpy(), expected[:, :6], rtol=1e-10)


def test_scikit_dimension_agrees():
    peer = pytest.importorskip("skdim.id")
    x = np.random.default_rng(0).standard_normal((600, 5))
    distances = neighbour_distances(x, 20)
    assert twonn(distances) == pytest.approx(
        peer.TwoNN(discard_fraction=0.1).fit(x).dimension_, rel=0.02
    )
    assert mle(distances) == pytest.approx(peer.MLE().fit(x, n_neighbors=20).dimension_, rel=1e-6)


def test_mle_equals_the_sum_point_by_point():
    distances = neighbour_distances(np.random.default_rng(2).standard_normal((80, 4)), 10)
    assert mle(distances) == pytest.approx(reference.mle(distances.numpy()))


@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_flat_sheet_has_its_own_dimension_wherever_it_lies(d):
    rng = np.random.default_rng(d)
    x = rng.random((3000, d)) @ np.linalg.qr(rng.standard_normal((30, d)))[
        0
    ].T + rng.standard_normal(30)
    dimensions = intrinsic_dimension(x)
    for name in ("twonn", "mle_dimension"):
        assert dimensions[name] == pytest.approx(d, rel=0.15), name
    turned = intrinsic_dimension(7 * x @ np.linalg.qr(rng.standard_normal((30, 30)))[0])
    assert turned["twonn"] == pytest.approx(dimensions["twonn"], rel=1e-3)
    assert turned["mle_dimension"] == pytest.approx(dimensions["mle_dimension"], rel=1e-6)


def test_duplicates_change_nothing():
    x = np.random.default_rng(0).standard_normal((300, 3))
    assert intrinsic_dimension(np.repeat(x, 5, axis=0)) == intrinsic_dimension(x)
    assert intrinsic_dimension(np.vstack([x, x]))["distinct_points"] == 300


@pytest.mark.parametrize("rows", [np.ones((100, 4)), np.zeros((1, 3)), np.arange(8.0)[:, None]])
def test_too_few_points_give_none(rows):
    dimensions = intrinsic_dimension(rows)
    assert dimensions["twonn"] is dimensions["mle_dimension"] is None


def test_equal_distances_give_none_and_never_infinity():
    distances = torch.ones(50, 20, dtype=torch.float64)
    assert twonn(distances) is mle(distances) is None
    assert twonn(torch.zeros(50, 2)) is None
    with pytest.raises(ValueError, match="neighbours"):
        neighbour_distances(np.ones((3, 2)), 3)
