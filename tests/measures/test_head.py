import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import head_spectrum, w_error


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
