"""Eigenvalues and a few eigenvectors from one decomposition, by every way that leads to them."""

import numpy as np
import pytest
import torch

from headscan.statistics import Cloud
from headscan.statistics.eigen import _call, eigen


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("width", [1, 2, 7, 130])
def test_values_and_directions_are_those_of_the_matrix(width, vectors):
    rows = np.random.default_rng(width).standard_normal((3 * width, width))
    matrix = rows.T @ rows
    decomposition = eigen(torch.from_numpy(np.triu(matrix)), vectors=vectors)
    expected = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(decomposition.values[::-1], expected, atol=1e-12 * expected[-1])
    for count in {0, 1, width // 2, width}:
        directions = decomposition.strongest(count)
        assert directions.shape == (width, count)
        np.testing.assert_allclose(
            matrix @ directions, directions * decomposition.values[:count], atol=1e-11 * width
        )
        np.testing.assert_allclose(directions.T @ directions, np.eye(count), atol=1e-12 * width)


def test_few_vectors_have_the_directions_of_all():
    x = np.random.default_rng(0).standard_normal((6, 40)) * np.geomspace(1, 0.1, 40)
    x[5] = x[4]
    few = Cloud.of_sums(_sums(x, few=10))
    assert few.rows is not None
    whole = Cloud.of_rows(x)
    np.testing.assert_allclose(few.energies, whole.energies, atol=1e-14)
    directions = few.strongest(8)
    np.testing.assert_allclose(np.abs(np.sum(directions * whole.strongest(8), 0))[:5], 1)
    assert not directions[:, 5:].any()  # nothing has a component there
    for name in ("covariance", "variances", "squared_covariance", "mean_variance"):
        np.testing.assert_allclose(getattr(few, name), getattr(whole, name), atol=1e-14)
    np.testing.assert_allclose(few.without([0, 3]), whole.without([0, 3]), atol=1e-12)


def test_far_vectors_have_orthonormal_directions():
    x = np.random.default_rng(0).standard_normal((60, 12)) + 1e6
    directions = Cloud.of_rows(x).strongest(5)
    np.testing.assert_allclose(directions.T @ directions, np.eye(5), atol=1e-6)


def test_a_routine_that_fails_raises():
    with pytest.raises(np.linalg.LinAlgError, match="dsterf"):
        _call("dsterf", -1, np.zeros(1), np.zeros(1))


def _sums(x, few):
    from headscan.statistics import Sums

    sums = Sums(x.shape[1], few=few)
    sums.merge(Sums.of_rows(torch.from_numpy(x)))
    held = Sums(x.shape[1], few=few)
    held.sums = sums.sums
    held.gram.add(torch.from_numpy(x))
    return held
