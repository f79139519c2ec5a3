from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from scipy.optimize import linprog, minimize

from headscan import BadInput
from headscan.measures import nearest_point
from headscan.measures.negative import NegativeSearch, cover_log10


def separable(x) -> bool:
    """Is there v with v·h ≥ 1 for all rows? A linear programme's own answer."""
    return linprog(np.zeros(x.shape[1]), A_ub=-x, b_ub=-np.ones(len(x)), bounds=(None, None)).status == 0


def holds(x, found) -> None:
    """The proof, looked at with other means."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    if found.verdict == "uniformly negative":
        assert (unit @ found.direction).min() > 0
        assert found.lowest == pytest.approx((unit @ found.direction).min(), abs=1e-13)
        assert found.lowest <= found.distance + 1e-12
    else:
        assert found.verdict == "none"
        assert found.weights.min() > 0
        assert found.weights.sum() == pytest.approx(1)
        assert len(found.support) <= x.shape[1] + 1
        assert np.linalg.norm(found.weights @ unit[found.support]) <= found.distance <= 1e-9


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6), st.floats(0, 2), st.booleans())
def test_the_verdict_is_the_linear_programme_s_and_the_certificate_holds(seed, n, d, offset, doubled):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + offset
    x = np.concatenate([x, 3 * x]) if doubled else x
    for tolerance in (1e-6, None):
        found = nearest_point(x, tolerance=tolerance)
        assert found.verdict == ("uniformly negative" if separable(x) else "none")
        holds(x, found)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_exact_means_that_exact_arithmetic_finds_positive_weights(seed, d):
    x = np.random.default_rng(seed).standard_normal((12 * d, d)).round(2) + 1e-3
    found = nearest_point(x)
    if not found.exact:
        return
    rows = [[Fraction(float(v)) for v in x[i]] + [Fraction(1)] for i in found.support]
    system = [[*column, Fraction(int(i == d))] for i, column in enumerate(zip(*rows, strict=True))]
    for i in range(d + 1):  # Gauss and Jordan, in fractions
        pivot = next(j for j in range(i, d + 1) if system[j][i])
        system[i], system[pivot] = system[pivot], system[i]
        system[i] = [value / system[i][i] for value in system[i]]
        for j in range(d + 1):
            if j != i:
                system[j] = [a - system[j][i] * b for a, b in zip(system[j], system[i], strict=True)]
    assert all(row[-1] > 0 for row in system)


@pytest.mark.parametrize("margin", [1e-2, 1e-4, 1e-6])
def test_a_thin_wedge_is_told_from_none(margin):
    """Directions almost opposite: by a hair on one side, or with one state across."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 12))
    x[:, 0] = margin * np.linalg.norm(x[:, 1:], axis=1)
    found = nearest_point(x, tolerance=None)
    assert found.verdict == "uniformly negative"
    holds(x, found)
    x[7, 0] *= -1
    across = nearest_point(x)
    assert across.verdict == ("uniformly negative" if separable(x) else "none")
    holds(x, across)


def test_the_nearest_point_equals_a_general_solver_s():
    x = np.random.default_rng(0).standard_normal((12, 4)) + 1
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    solved = minimize(
        lambda w: (w @ u) @ (w @ u), np.full(12, 1 / 12), jac=lambda w: 2 * u @ (w @ u), bounds=[(0, 1)] * 12,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    found = nearest_point(x)
    assert found.distance == pytest.approx(np.linalg.norm(solved.x @ u), abs=1e-6)
    np.testing.assert_allclose(found.distance * found.direction, solved.x @ u, atol=1e-5)
    assert found.gap < 1e-6


def test_scale_rotation_and_duplicates_change_nothing():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 5)) + 0.8
    q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    found, other = nearest_point(x), nearest_point(np.repeat(x * rng.uniform(0.1, 9, (40, 1)) @ q, 3, axis=0))
    assert other.distance == pytest.approx(found.distance, abs=1e-6)
    assert other.verdict == found.verdict


def test_thousands_of_states_take_seconds_and_the_last_one_counts():
    """20,000 states of width 128: one side for all but the last, which is found although the others settled it."""
    x = np.random.default_rng(0).standard_normal((20_000, 128)).astype(np.float32) + np.float32(1.0)
    found = nearest_point(x, tolerance=None)
    assert (found.verdict, found.states) == ("uniformly negative", 20_000)
    holds(x.astype(np.float64), found)
    x[-1] = -x[:-1].mean(0)
    assert nearest_point(x).verdict == "none"


def _read(search, x, cuts) -> None:
    for part in np.split(x, cuts):
        search.add(torch.from_numpy(part))


@pytest.mark.parametrize("offset", [0.0, 0.35, 0.6])
def test_a_stream_is_settled_by_few_passes_whatever_is_kept_split_or_stored(offset, monkeypatch):
    x = np.random.default_rng(3).standard_normal((6000, 24)) + offset
    expected = nearest_point(x, tolerance=None)
    monkeypatch.setattr("headscan.measures.negative.KEPT_BYTES", 0)
    mine, other = NegativeSearch(24), NegativeSearch(24)
    mine.limit = other.limit = 300
    _read(mine, x[:3500], [100, 900, 2000])
    _read(other, x[3500:], [1500])
    stored = NegativeSearch.restore(load(save({k: v.contiguous() for k, v in other.state().items()})))
    mine.merge(stored)
    mine.finish()
    while mine.wanting:
        _read(mine, x, [1000, 4000])
        mine.finish()
    found = mine.found()
    assert (found.verdict, found.states) == (expected.verdict, 6000)
    assert found.passes <= 6
    holds(x, found)


def test_a_stream_that_ends_early_is_undecided():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((3000, 16)) + 0.9)
    search = NegativeSearch(16)
    for part in x.split(500):
        search.add(part * torch.tensor(1 + 1e-9))  # no float32 numbers: not kept
    search.finish()
    assert search.wanting
    found = search.found()
    assert (found.verdict, found.lowest) == ("undecided", -1.0)
    assert found.distance > 0


def test_edges():
    assert nearest_point(np.zeros((0, 3))) is None
    zero = nearest_point(np.array([[1.0, 1.0], [0.0, 0.0]]))
    assert (zero.verdict, zero.support.tolist()) == ("none", [1])
    one = nearest_point(np.array([[3.0, 4.0]]))
    assert (one.verdict, one.distance) == ("uniformly negative", pytest.approx(1.0))
    assert nearest_point(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])).verdict == "none"
    assert nearest_point(np.eye(5)[:3]).verdict == "uniformly negative"  # fewer states than dimensions
    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match="finite"):
            nearest_point(np.array([[1.0, bad]]))
    with pytest.raises(BadInput, match="matrix"):
        nearest_point(np.zeros(3))


def test_cover_s_count_is_the_share_of_random_sets():
    rng = np.random.default_rng(0)
    for n, d in ((6, 3), (9, 4)):
        share = np.mean([(nearest_point(rng.standard_normal((n, d))).lowest > 0) for _ in range(200)])
        assert share == pytest.approx(10 ** cover_log10(n, d), abs=0.1)
    assert cover_log10(30_000, 768) < -5000
