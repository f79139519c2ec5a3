from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb

from headscan.measures import heaps, vocabulary_growth, zipf_mandelbrot


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (1.1, 2.7), (0.8, 30.0), (2.0, 1.0)])
def test_the_law_that_made_the_counts_is_found(a, b):
    shares = (np.arange(1, 5001) + b) ** -a
    counts = np.random.default_rng(0).multinomial(2_000_000, shares / shares.sum())
    np.random.default_rng(1).shuffle(counts)
    found = zipf_mandelbrot(counts)
    assert found["mandelbrot_exponent"] == pytest.approx(a, rel=0.02)
    assert found["mandelbrot_shift"] == pytest.approx(b, rel=0.1, abs=0.1)
    assert 0 <= found["zipf_distance"] < 2e-3  # sampling noise of 5,000 types in 2 million tokens
    if b == 0:
        assert found["zipf_exponent"] == pytest.approx(a, rel=0.01)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 10))
def test_growth_equals_the_binomials(counts, m):
    total = sum(counts)
    m = min(m, total)
    expected = sum(1 - comb(total - c, m, exact=True) / comb(total, m, exact=True) for c in counts if c)
    assert vocabulary_growth(counts, [m])[0] == pytest.approx(expected, abs=1e-9)


def test_heaps_of_a_power_law_vocabulary():
    """For p(r) ∝ r^−a with a > 1 the vocabulary grows as m^(1/a) (Heaps from Zipf)."""
    shares = np.arange(1, 200_001) ** -1.5
    counts = np.random.default_rng(0).multinomial(300_000, shares / shares.sum())
    assert heaps(counts)["heaps_exponent"] == pytest.approx(1 / 1.5, abs=0.05)


@pytest.mark.parametrize("counts", [[], [0, 0], [5], [3, 1]])
def test_texts_too_small_to_fit(counts):
    assert set(zipf_mandelbrot(counts).values()) == {None}
    assert set(heaps(counts).values()) == {None}
