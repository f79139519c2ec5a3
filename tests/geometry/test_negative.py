from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from headscan.geometry import nearest_point


def separable(x) -> bool:
    """Is there v with v·h ≥ 1 for all rows? A linear programme's own answer."""
    return linprog(np.zeros(x.shape[1]), A_ub=-x, b_ub=-np.ones(len(x)), bounds=(None, None)).status == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6), st.floats(0, 2))
def test_the_verdict_is_the_linear_programme_s_and_the_certificate_holds(seed, n, d, offset):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + offset
    found = nearest_point(x)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.weights @ unit[found.support], found.point, atol=1e-9)
    assert found.verdict == ("uniformly negative" if separable(x) else "none")
    if found.verdict == "uniformly negative":
        assert (unit @ found.point).min() > 0
        assert found.lowest == pytest.approx((unit @ found.point).min() / found.distance)
    else:
        assert found.distance <= 1e-6


def test_the_nearest_point_equals_a_general_solver_s():
    x = np.random.default_rng(0).standard_normal((12, 4)) + 1
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    solved = minimize(
        lambda w: (w @ u) @ (w @ u), np.full(12, 1 / 12), jac=lambda w: 2 * u @ (w @ u), bounds=[(0, 1)] * 12,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    found = nearest_point(x)
    np.testing.assert_allclose(found.point, solved.x @ u, atol=1e-5)
    assert found.gap < 1e-9


def test_scale_rotation_and_duplicates_change_nothing():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 5)) + 0.8
    q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    found, other = nearest_point(x), nearest_point(np.repeat(x * rng.uniform(0.1, 9, (40, 1)) @ q, 3, axis=0))
    assert other.distance == pytest.approx(found.distance, abs=1e-9)
    assert other.verdict == found.verdict


def test_round_data_have_no_such_direction():
    found = nearest_point(np.random.default_rng(0).standard_normal((500, 20)))
    assert found.verdict == "none"
    assert len(found.support) <= 21


def test_edges():
    assert nearest_point(np.zeros((0, 3))) is None
    assert nearest_point(np.array([[0.0, 0.0], [1.0, 1.0]])).verdict == "none"
    one = nearest_point(np.array([[3.0, 4.0]]))
    assert (one.verdict, one.distance) == ("uniformly negative", 1.0)
    assert nearest_point(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])).verdict == "none"
