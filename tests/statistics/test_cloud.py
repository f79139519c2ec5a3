"""What a cloud says of its strongest directions, and of its spectrum with coordinates left out."""

import numpy as np
import pytest

from headscan.statistics import Cloud


def rows(width: int, stretch: float = 3.0) -> np.ndarray:
    x = np.random.default_rng(width).standard_normal((500, width)) * np.logspace(0, -2, width) + 0.3
    x[:, 2:4] *= stretch
    return x


@pytest.mark.parametrize("width", [3, 40, 300])
def test_the_strongest_directions_are_eigenvectors(width: int) -> None:
    cloud = Cloud.of_rows(rows(width))
    directions = cloud.strongest(3)
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(
        cloud.second_moment @ directions,
        directions * cloud.energies[:3],
        atol=1e-12 * cloud.energies[0],
    )


@pytest.mark.parametrize(("width", "stretch"), [(40, 3.0), (300, 3.0), (300, 1e4)])
def test_a_cloud_without_coordinates(width: int, stretch: float) -> None:
    x = rows(width, stretch)
    remaining = Cloud.of_rows(x).without([3, 2])
    assert remaining is not None
    values = np.linalg.svd(np.delete(x, [2, 3], axis=1), compute_uv=False) ** 2
    shares = values / values.sum()
    assert abs(remaining[0] - shares[0]) < 1e-9
    assert abs(np.exp(remaining[1]) - np.exp(-(shares * np.log(shares)).sum())) < 1e-6


def test_nothing_is_left_of_coordinates_that_are_all() -> None:
    assert Cloud.of_rows([[1.0, 0.0], [2.0, 0.0]]).without([0]) is None
