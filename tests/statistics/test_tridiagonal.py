"""One reduction gives the eigenvalues, a few eigenvectors, and the spectrum with coordinates left out: all as numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from headscan.statistics import Cloud
from headscan.statistics.cloud import Tridiagonal


def moment(width: int, rows: int, seed: int, fall: float = 3.0) -> np.ndarray:
    """A second moment with a far mean and two long coordinates."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, width)) * np.logspace(0, -fall, width) + generator.standard_normal(width)
    x[:, :2] *= 3.0
    found: np.ndarray = x.T @ x / rows
    return found


@pytest.mark.parametrize(("width", "rows"), [(1, 9), (2, 9), (3, 2), (40, 200), (40, 12), (300, 700)])
def test_eigenvalues_and_strongest_directions(width: int, rows: int) -> None:
    m = moment(width, rows, width)
    form, expected = Tridiagonal.of(m.copy()), np.linalg.eigvalsh(m)[::-1]
    np.testing.assert_allclose(form.values, expected, atol=1e-13 * expected[0])
    found = form.strongest(min(3, width))
    np.testing.assert_allclose(found.T @ found, np.eye(found.shape[1]), atol=1e-12)
    np.testing.assert_allclose(m @ found, found * expected[: found.shape[1]], atol=1e-12 * expected[0])


@pytest.mark.parametrize("coordinates", [[0], [1, 0], [7, 3, 299], list(range(5, 15))])
@pytest.mark.parametrize(("rows", "fall"), [(700, 3.0), (700, 0.0), (60, 3.0), (2000, 6.0)])
def test_coordinates_left_out(coordinates: list[int], rows: int, fall: float) -> None:
    m = moment(300, rows, rows, fall)
    top, entropy = Tridiagonal.of(m.copy()).without(m[coordinates], coordinates)
    kept = np.delete(np.arange(300), coordinates)
    values = np.linalg.eigvalsh(m[np.ix_(kept, kept)])
    positive = values[values > 0]
    assert abs(top - values[-1]) < 1e-12 * values[-1]
    assert abs(entropy - (positive * np.log(positive)).sum()) < 1e-9 * np.linalg.eigvalsh(m)[-1]


@pytest.mark.parametrize(("width", "stretch"), [(40, 3.0), (300, 3.0), (300, 1e4)])
def test_a_cloud_without_coordinates(width: int, stretch: float) -> None:
    x = np.random.default_rng(width).standard_normal((500, width)) * np.logspace(0, -2, width) + 0.3
    x[:, 2:4] *= stretch
    found = Cloud.of_rows(x).without([3, 2])
    assert found is not None
    values = np.linalg.svd(np.delete(x, [2, 3], axis=1), compute_uv=False) ** 2
    shares = values / values.sum()
    assert abs(found[0] - shares[0]) < 1e-9
    assert abs(np.exp(found[1]) - np.exp(-(shares * np.log(shares)).sum())) < 1e-6


def test_nothing_is_left_of_coordinates_that_are_all() -> None:
    assert Cloud.of_rows([[1.0, 0.0], [2.0, 0.0]]).without([0]) is None
