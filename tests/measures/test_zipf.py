from __future__ import annotations

import numpy as np
import pytest

from headscan.measures import zipf_mandelbrot


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


@pytest.mark.parametrize("counts", [[], [0, 0], [5], [3, 1]])
def test_texts_too_small_to_fit(counts):
    assert set(zipf_mandelbrot(counts).values()) == {None}
