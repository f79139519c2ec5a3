"""Spectra of weights against singular values, a slow power law, WeightWatcher, and matrices that
are drawn whole.
"""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.statistics import spectra
from headscan.statistics.spectra import (
    energies,
    largest_energy,
    power_law,
    random_energies,
    stable_rank,
)
from tests.reference import spectra as reference


def drawn(long, short, seed=0, heavy=False):
    draw = np.random.default_rng(seed)
    return torch.from_numpy(
        draw.standard_t(2.5, (long, short)) if heavy else draw.standard_normal((long, short))
    )


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 100),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_energies_are_those_of_the_singular_values(rows, columns, seed, kind):
    matrix = drawn(rows, columns, seed).to(kind)
    expected = reference.energies(matrix.double().numpy())
    np.testing.assert_allclose(energies(matrix), expected, atol=1e-12 * expected[-1])
    np.testing.assert_allclose(energies(matrix.T), expected, atol=1e-12 * expected[-1])
    assert 1 - 1e-12 <= stable_rank(energies(matrix)) <= min(rows, columns) + 1e-9
    if rows > columns:
        np.testing.assert_allclose(energies(matrix.split(7)), expected, atol=1e-12 * expected[-1])


def test_a_wide_matrix_is_as_exact_as_it_says():
    matrix = drawn(1500, 1100, heavy=True).float()
    expected = reference.energies(matrix.numpy())
    assert np.abs(energies(matrix) - expected).max() < 2e-6 * expected[-1]


@settings(max_examples=15, deadline=None)
@given(st.integers(8, 120), st.floats(0.5, 5), st.integers(0, 100))
def test_the_tail_is_the_slow_one(count, slope, seed):
    values = np.random.default_rng(seed).pareto(slope, count) + 0.3
    tail = power_law(values, draws=0)
    expected = reference.power_law(values)
    np.testing.assert_allclose(
        (tail.exponent, tail.least, tail.count, tail.distance), expected, rtol=1e-9
    )


def test_alpha_is_that_of_weightwatcher():
    logging.getLogger("weightwatcher").setLevel(logging.CRITICAL)
    fits = pytest.importorskip(
        "weightwatcher.WW_powerlaw", reason="weightwatcher, the oracle, is not installed"
    )
    for long, short, heavy in [
        (400, 100, False),
        (400, 100, True),
        (768, 256, True),
        (1200, 1100, True),
    ]:
        matrix = drawn(long, short, heavy=heavy).float()
        expected = fits.WWFit(reference.energies(matrix.numpy()))
        mine = power_law(energies(matrix), draws=0)
        assert mine.exponent == pytest.approx(expected.alpha, abs=1e-3)
        assert mine.distance == pytest.approx(expected.D, abs=1e-4)


def test_no_tail_where_there_are_no_values():
    assert power_law(np.ones(50)) is None
    assert power_law(np.arange(1.0, 8.0)) is None
    assert power_law(np.r_[np.zeros(50), np.arange(1.0, 9.0)], draws=10).count <= 8


def test_intervals_of_exponents_cover_and_p_is_even():
    draw = np.random.default_rng(3)
    covered = 0
    low = 0
    for seed in range(150):
        # from 1 on as x⁻³
        bulk = np.exp(-np.abs(draw.normal(size=200)))
        values = np.r_[bulk, np.exp(draw.exponential(1 / 2, 200))]
        tail = power_law(values, draws=60, seed=seed)
        covered += tail.interval[0] <= 3 <= tail.interval[1]
        low += tail.p < 0.1
    assert covered >= 133
    assert low <= 30


@pytest.mark.parametrize(("long", "short"), [(60, 60), (200, 50)])
def test_drawn_spectra_are_those_of_drawn_matrices(long, short, monkeypatch):
    monkeypatch.setattr(spectra, "DRAWS", 200)
    quick = random_energies.__wrapped__(long, short)
    draw = np.random.default_rng(1)
    slow = [reference.gaussian_energies(long, short, draw) for _ in range(200)]
    means = np.mean(slow, 0)
    errors = np.std(slow, 0) / 200**0.5
    assert np.abs((quick.mean(0) - means) / (errors * 2**0.5)).max() < 4.5
    assert np.abs(np.log(quick.std(0) / np.std(slow, 0))).max() < 0.35


def test_one_normal_matrix_in_a_hundred_has_an_energy_above_the_edge(monkeypatch):
    monkeypatch.setattr(spectra, "DRAWS", 2000)
    for long, short in [(64, 64), (400, 50)]:
        above = (
            random_energies.__wrapped__(long, short)[:, -1] > largest_energy(long, short)
        ).mean()
        assert 0.004 < above < 0.018
