import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import uniformity, uniformity_floor
from tests.reference import clouds as reference


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(2, 30),
    st.integers(1, 6),
    st.floats(0.1, 5),
    st.integers(100, 5000),
)
def test_uniformity_equals_all_pairs_in_any_blocks(seed, n, d, t, block):
    x = np.random.default_rng(seed).standard_normal((n, d)) + 0.5
    assert uniformity(x, t=t, block_bytes=block) == pytest.approx(
        reference.uniformity(x, t), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("d", [2, 16, 384])
def test_directions_even_on_the_sphere_reach_the_floor(d):
    value = uniformity(np.random.default_rng(0).standard_normal((3000, d)))
    assert value == pytest.approx(uniformity_floor(d), abs=0.02)


def test_the_floor_of_two_dimensions_is_bessel_s():
    from scipy.special import iv

    assert uniformity_floor(2, t=1.5) == pytest.approx(np.log(iv(0, 3.0)) - 3.0)
    assert uniformity_floor(64, t=400.0) == pytest.approx(uniformity_floor(64, t=400.0 + 1e-9))


def test_scale_rotation_and_zero_rows_change_nothing():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 4))
    q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert uniformity(np.vstack([3 * x @ q, np.zeros((5, 4))])) == pytest.approx(uniformity(x))
    assert uniformity(np.zeros((4, 2))) is None
    assert uniformity(np.ones((1, 2))) is None
    assert uniformity(np.ones((9, 2))) == pytest.approx(0, abs=1e-12)
