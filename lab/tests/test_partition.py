import numpy as np
import pytest
from headscan_lab.measures.frequency import partition_isotropy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import clouds as reference


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 8), st.floats(-1, 1))
def test_equals_plain_exponentials_with_both_signs(seed, rows, d, shift):
    w = np.random.default_rng(seed).standard_normal((rows, d)) + shift
    partition = partition_isotropy(w)
    ratio, spread = reference.partition_isotropy(w)
    assert partition["partition"] == pytest.approx(ratio, rel=1e-9)
    assert partition["partition_spread"] == pytest.approx(spread, rel=1e-9)


def test_the_sign_and_the_rows_of_eigenvectors_matter():
    """A solver's sign decides the one-sided value, and the published slip of taking rows gives
    another number still.
    """
    w = np.random.default_rng(0).standard_normal((50, 4)) + np.array([0.5, -0.2, 0, 0])
    _, vectors = np.linalg.eigh(w.T @ w)

    def ratio(directions):
        z = [np.exp(w @ c).sum() for c in directions]
        return min(z) / max(z)

    signs = np.where(np.arange(4) % 2, 1, -1)
    values = {round(ratio(d), 6) for d in (vectors.T, -vectors.T, (vectors * signs).T, vectors)}
    assert len(values) == 4
    assert partition_isotropy(w)["partition"] == pytest.approx(ratio([*vectors.T, *-vectors.T]))


def test_rotation_changes_nothing():
    rng = np.random.default_rng(1)
    w = rng.standard_normal((60, 5)) + 0.3
    turned = partition_isotropy(w @ np.linalg.qr(rng.standard_normal((5, 5)))[0])
    assert turned == pytest.approx(partition_isotropy(w), rel=1e-8)


def test_long_rows_overflow_nothing():
    partition = partition_isotropy(np.random.default_rng(0).standard_normal((100, 6)) * 1e4)
    assert partition["partition"] == 0.0
    assert -1e6 < partition["log_partition_range"] < -1e3
    assert all(np.isfinite(value) for value in partition.values())


def test_short_round_rows_are_isotropic():
    w = 0.01 * np.random.default_rng(0).standard_normal((20_000, 8))
    assert partition_isotropy(w)["partition"] == pytest.approx(1, abs=2e-3)


def test_empty_and_single():
    assert set(partition_isotropy(np.zeros((0, 3))).values()) == {None}
    assert partition_isotropy(np.zeros((1, 3)))["partition"] == 1.0
