import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from headscan.ntp.subspace import MarginSet, shrink, singular_values, thin_svd


def instance(seed: int, plain: bool):
    rng = np.random.default_rng(seed)
    inside = rng.random((5, 7)) < 0.4
    inside[np.arange(5), rng.integers(0, 7, 5)] = True
    scale = rng.uniform(0.5, 2, 5)
    q = np.ones(7) if plain else np.sqrt(rng.integers(1, 4, 7))
    Y = rng.normal(size=(5, 7)) * 3
    margin_set = MarginSet(
        torch.from_numpy(inside), torch.from_numpy(scale), torch.from_numpy(q.astype(float))
    )
    return inside, scale, q, Y, margin_set


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_nearest_feasible_point(seed, plain):
    inside, scale, q, Y, margin_set = instance(seed, plain)
    projected = margin_set.project(torch.from_numpy(Y)).numpy()
    for j in range(5):
        s = scale[j]

        def distance(C, j=j, s=s):
            z = np.where(inside[j], q * C, np.minimum(Y[j], q * (C - s)))
            return ((z - Y[j]) ** 2).sum()

        best = min(
            (
                minimize(lambda C: distance(C[0]), [c], method="Nelder-Mead", tol=1e-12)
                for c in (-5, 0, 5)
            ),
            key=lambda r: r.fun,
        )
        assert ((projected[j] - Y[j]) ** 2).sum() == pytest.approx(best.fun, rel=1e-8, abs=1e-10)
        L = projected[j] / q / s
        assert np.ptp(L[inside[j]]) < 1e-12
        if not inside[j].all():
            assert L[inside[j]].min() - L[~inside[j]].max() >= 1 - 1e-12


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_multiplier_is_dual_feasible(seed, plain):
    inside, _, q, Y, margin_set = instance(seed, plain)
    Z = margin_set.centred_supports()
    U = torch.from_numpy(np.random.default_rng(seed).normal(size=Y.shape))
    margin_set.update(torch.from_numpy(Y), Z, U, 1.7)
    assert np.abs(U.numpy() @ q).max() < 1e-11
    assert U.numpy()[~inside].min(initial=0) >= -1e-12


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (6, 6)])
def test_shrinkage_equals_the_svd(shape):
    M = np.random.default_rng(0).normal(size=shape)
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    for threshold in (0.5, 2.0, 100.0):
        shrunk, rank = shrink(torch.from_numpy(M), threshold)
        assert np.allclose(shrunk.numpy(), (U * np.maximum(s - threshold, 0)) @ Vt, atol=1e-10)
        assert rank == (s > threshold).sum()
    assert np.allclose(singular_values(torch.from_numpy(M)).numpy(), s)


@pytest.mark.parametrize("shape", [(30, 20), (1200, 900), (900, 1200)])
def test_the_thin_svd_gives_the_matrix_back(shape):
    M = np.random.default_rng(0).normal(size=(shape[0], 15)) @ np.random.default_rng(1).normal(
        size=(15, shape[1])
    )
    left, sigma, right = thin_svd(M)
    assert np.allclose(left * sigma @ right.T, M)
    nonzero = sigma > 1e-6 * sigma[0]
    assert np.allclose(sigma[nonzero], np.linalg.svd(M, compute_uv=False)[:15])
    assert np.allclose(left[:, nonzero].T @ left[:, nonzero], np.eye(15), atol=1e-9)
