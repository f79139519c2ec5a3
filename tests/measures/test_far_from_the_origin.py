"""Every measure of a cloud far from the origin, against arithmetic of 60 digits on the very same
rows.
"""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import MEASURES, singular_values
from headscan.statistics import SiteStatistics
from headscan.statistics.cloud import Cloud

N = 36
WIDTH = 4


def exact(x: np.ndarray) -> dict[str, object]:
    """All measures by their definitions, in 60 digits."""
    with mpmath.workdps(60):
        rows = [[mpmath.mpf(float(value)) for value in row] for row in x]
        n, d = x.shape
        mean = [mpmath.fsum(row[i] for row in rows) / n for i in range(d)]
        moment = mpmath.matrix(d, d)
        covariance = mpmath.matrix(d, d)
        for i in range(d):
            for j in range(d):
                moment[i, j] = mpmath.fsum(row[i] * row[j] for row in rows) / n
                covariance[i, j] = (
                    mpmath.fsum((row[i] - mean[i]) * (row[j] - mean[j]) for row in rows) / n
                )
        energies = sorted(
            (max(e, mpmath.mpf(0)) for e in mpmath.eigsy(moment, eigvals_only=True)), reverse=True
        )
        variances = list(mpmath.eigsy(covariance, eigvals_only=True))
        lengths = [mpmath.sqrt(mpmath.fsum(v * v for v in row)) for row in rows]
        unit = [
            mpmath.fsum(row[i] / r for row, r in zip(rows, lengths, strict=True)) for i in range(d)
        ]
        directed, length = (
            mpmath.sqrt(mpmath.fsum(v * v for v in vector)) for vector in (unit, mean)
        )
        sigma = [mpmath.sqrt(e) for e in energies]

        def entropy(parts: list[object]) -> object:
            total = mpmath.fsum(parts)
            return -mpmath.fsum(p / total * mpmath.log(p / total) for p in parts if p > 0)

        # of narrow clouds the slope over all but the first
        ranks = [mpmath.log(i) for i in range(2, d + 1)]
        steps = [x - mpmath.fsum(ranks) / len(ranks) for x in ranks]
        fall = (
            [-mpmath.fsum(x * mpmath.log(e) for x, e in zip(steps, energies[1:], strict=True))]
            if energies[-1]
            else [0]
        )
        trace = mpmath.fsum(covariance[i, i] for i in range(d))
        ratio = trace**2 / mpmath.fsum(covariance[i, j] ** 2 for i in range(d) for j in range(d))
        measures = {
            "alpha_req": fall[0] / mpmath.fsum(x * x for x in steps),
            "average_cosine": (directed**2 - n) / (n * (n - 1)),
            "centred_effective_rank": mpmath.exp(entropy(variances)),
            "drift": length * n / mpmath.fsum(lengths),
            "effective_rank": mpmath.exp(entropy(energies)),
            "isoscore": (ratio - 1) / (d - 1),
            "mean_norm": mpmath.fsum(lengths) / n,
            "mean_vector_norm": length,
            "participation_ratio": ratio,
            "rankme": mpmath.exp(entropy(sigma)),
            "uncentred_participation_ratio": mpmath.fsum(energies) ** 2
            / mpmath.fsum(e * e for e in energies),
            "top_direction_share": energies[0] / mpmath.fsum(energies),
        }
        return {name: float(value) for name, value in measures.items()} | {
            "sigma": [float(s) for s in sigma]
        }


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(0, 7),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
def test_every_measure_keeps_a_millionth(seed, power, kind, split):
    rng = np.random.default_rng(seed)
    axis = rng.standard_normal(WIDTH)
    x = rng.standard_normal((N, WIDTH)) * rng.uniform(
        0.5, 2, WIDTH
    ) + 10.0**power * axis / np.linalg.norm(axis)
    x = x.astype(kind)
    expected = exact(x)
    if split:  # in windows, by two who then add up
        parts = [SiteStatistics(WIDTH) for _ in range(2)]
        windows = torch.from_numpy(x).reshape(9, 4, WIDTH)
        for number in range(9):
            parts[number % 2].update(windows[number : number + 1], [number])
        parts[1].merge(SiteStatistics.restore(parts[0].state()))
        cloud = Cloud.of_sums(parts[1].all)
    else:
        cloud = Cloud.of_rows(x)
    for name in (
        MEASURES.names()
    ):  # all there are: who registers a measure says here what it is in 60 digits
        assert MEASURES[name](cloud) == pytest.approx(expected[name], rel=1e-6, abs=1e-6), (
            name,
            power,
        )
    sigma = singular_values(cloud)
    np.testing.assert_allclose(sigma, expected["sigma"], rtol=1e-6)
    frame = cloud.directions  # orthonormal, and the second moment's own
    np.testing.assert_allclose(frame.T @ frame, np.eye(WIDTH), atol=1e-10)
    np.testing.assert_allclose(
        frame * cloud.energies @ frame.T,
        cloud.second_moment,
        rtol=1e-12,
        atol=1e-12 * sigma[0] ** 2,
    )


def test_equal_vectors_far_away_have_no_spread_and_tiny_ones_keep_theirs():
    assert MEASURES["participation_ratio"](np.full((50, 3), 1e7 / 3)) is None
    x = 1 / 3 + 1e-11 * np.random.default_rng(0).standard_normal((400, 3))
    assert MEASURES["isoscore"](x) == pytest.approx(float(exact(x[:400])["isoscore"]), abs=1e-6)
