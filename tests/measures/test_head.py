from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import head_spectrum, ngram_matrix, spectrum_of_sparse, train_low_rank_head, w_error


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8))
def test_spectrum_equals_svd(seed, v, d):
    w = np.random.default_rng(seed).standard_normal((v, d)) + 0.2
    found = head_spectrum(torch.tensor(w))
    values = np.zeros(d)
    values[: min(v, d)] = np.linalg.svd(w, compute_uv=False)
    np.testing.assert_allclose(found["singular_values"], values, atol=1e-6 * values[0])
    p = values[values > 1e-6 * values[0]] / values.sum()
    assert found["singular_entropy"] == pytest.approx(math.log(d) + (p * np.log(p)).sum(), abs=1e-5)
    for k, error in enumerate(w_error(found["singular_values"])):
        best = np.linalg.svd(w, full_matrices=False)
        cut = (best[0][:, :k] * best[1][:k]) @ best[2][:k]
        assert error == pytest.approx(np.linalg.norm(w - cut) / np.linalg.norm(w), abs=1e-6)


def test_a_zero_head_has_no_measures():
    found = head_spectrum(torch.zeros(4, 3))
    assert found["singular_entropy"] is None
    assert w_error([0.0, 0.0]).tolist() == [0.0] * 3


@pytest.mark.parametrize("order", [1, 2, 3])
def test_ngrams_equal_counting(order):
    ids = np.random.default_rng(0).integers(0, 4, (5, 12))
    matrix = ngram_matrix(ids, 4, order).toarray()
    counts: dict[tuple, np.ndarray] = {}
    for row in ids.tolist():
        for k in range(len(row) - order + 1):
            counts.setdefault(tuple(row[k : k + order - 1]), np.zeros(4))[row[k + order - 1]] += 1
    expected = np.array([counts[key] / counts[key].sum() for key in sorted(counts)])
    assert sorted(map(tuple, matrix.round(9))) == sorted(map(tuple, expected.round(9)))
    np.testing.assert_allclose(
        spectrum_of_sparse(ngram_matrix(ids, 4, order))[: len(np.linalg.svd(expected)[1])],
        np.linalg.svd(expected)[1][: len(spectrum_of_sparse(ngram_matrix(ids, 4, order)))],
        atol=1e-7,
    )


def test_too_many_columns_are_refused():
    with pytest.raises(ValueError, match="occur"):
        spectrum_of_sparse(ngram_matrix(np.arange(20)[None], 20, 2), most=5)


def test_a_head_of_rank_one_cannot_order_what_rank_two_can():
    """States on a circle with 8 arcs: two dimensions separate the arcs, one cannot."""
    angle = torch.rand(4000, generator=torch.Generator().manual_seed(0)) * 2 * math.pi
    h = torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], dim=1)
    y = (angle / (2 * math.pi) * 8).long().clamp(max=7)
    losses = [train_low_rank_head(h, y, 8, rank, steps=400, rate=0.05).loss for rank in (1, 2)]
    assert losses[1] < 0.6 < losses[0] < math.log(8)
    again = train_low_rank_head(h, y, 8, 2, steps=400, rate=0.05)
    assert again.loss == losses[1]
    assert again.path[0] == pytest.approx(math.log(8), abs=0.05)
