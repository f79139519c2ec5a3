import numpy as np
import pytest
from headscan_lab.measures.zipf import _fits, zipf_intervals, zipf_mandelbrot

from tests.measures.test_intervals_of_probes import ratio


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (1.1, 2.7), (0.8, 30.0), (2.0, 1.0)])
def test_the_law_that_made_the_counts_is_found(a, b):
    shares = (np.arange(1, 5001) + b) ** -a
    counts = np.random.default_rng(0).multinomial(2_000_000, shares / shares.sum())
    np.random.default_rng(1).shuffle(counts)
    fit = zipf_mandelbrot(counts)
    assert fit["mandelbrot_exponent"] == pytest.approx(a, rel=0.02)
    assert fit["mandelbrot_shift"] == pytest.approx(b, rel=0.1, abs=0.1)
    assert 0 <= fit["zipf_distance"] < 2e-3  # sampling noise of 5,000 types in 2 million tokens
    if b == 0:
        assert fit["zipf_exponent"] == pytest.approx(a, rel=0.01)


@pytest.mark.parametrize("counts", [[], [0, 0], [5], [3, 1]])
def test_texts_too_small_to_fit(counts):
    assert set(zipf_mandelbrot(counts).values()) == {None}


def test_intervals_of_blocks_are_as_wide_as_values_scatter():
    """The bounds are those of the other probes, from eight blocks taken as a text that runs on."""
    shares = 1 / np.arange(1, 301)

    def draw(rng):
        parts = [rng.multinomial(1000, shares / shares.sum()) for _ in range(8)]
        total = np.sum(parts, axis=0)
        return zipf_mandelbrot(total)["zipf_exponent"], zipf_intervals(parts)[
            "zipf_exponent_interval"
        ]

    assert 1.6 < ratio(draw) < 3.0


def test_a_refit_from_a_near_start_is_the_fit():
    shares = (np.arange(1, 2001) + 3.0) ** -1.1
    counts = np.random.default_rng(0).multinomial(200_000, shares / shares.sum())
    fit = zipf_mandelbrot(counts)
    start = (fit["mandelbrot_exponent"] + 0.1, fit["mandelbrot_shift"] + 1)
    refit = _fits(-np.sort(-counts) / counts.sum(), [start])
    for name, value in refit.items():
        assert value == pytest.approx(fit[name], rel=1e-4, abs=1e-7), name
