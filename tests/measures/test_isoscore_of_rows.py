from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import isoscore, isoscore_of_rows
from headscan.statistics.cloud import Cloud
from tests.reference import geometry as reference


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6), st.integers(2, 60), st.integers(2, 40), st.sampled_from([0.0, 3.0, 100.0]),
    st.sampled_from([1e-12, 1.0, 1e12]),
)  # fmt: skip
def test_equals_the_published_steps_to_a_millionth(seed, n, d, offset, scale):
    rng = np.random.default_rng(seed)
    x = scale * (rng.standard_normal((n, d)) * rng.gamma(1.0, size=d) + offset)
    expected = reference.SCALARS["isoscore"](x)
    assert isoscore_of_rows(x) == pytest.approx(expected, abs=1e-6)
    assert isoscore_of_rows(x, double=True) == pytest.approx(expected, abs=1e-9)
    assert isoscore_of_rows(np.asfortranarray(x)) == pytest.approx(expected, abs=1e-6)


def test_a_rogue_dimension_does_not_spoil_it():
    x = np.random.default_rng(0).standard_normal((2000, 64))
    x[:, 3] = 1e4 * x[:, 3] + 1e5
    assert isoscore_of_rows(x) == pytest.approx(isoscore(Cloud.of_rows(x)), abs=1e-6)


def test_float32_is_taken_as_it_is():
    x = np.random.default_rng(0).standard_normal((3000, 32)) * np.linspace(1, 3, 32)
    assert isoscore_of_rows(x.astype(np.float32)) == pytest.approx(isoscore(Cloud.of_rows(x)), abs=1e-6)


@pytest.mark.parametrize("rows", [np.ones((4, 3)), np.ones((1, 3)), np.ones((5, 1)), np.full((50, 4), 1 / 3)])
def test_what_is_not_defined_is_none(rows):
    assert isoscore_of_rows(rows) is None
    assert isoscore_of_rows(rows.astype(np.float32)) is None
