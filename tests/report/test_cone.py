import numpy as np
import pytest

from headscan.report.pages import scan as cone


@pytest.mark.parametrize("degrees", [5, 30, 60])
def test_vectors_on_a_cone_have_that_half_angle(degrees):
    rng = np.random.default_rng(0)
    around = rng.standard_normal((4000, 30))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    angle = np.radians(degrees)
    unit = np.c_[np.full(4000, np.cos(angle)), np.sin(angle) * around]
    cosine = (np.sum(unit.sum(0) ** 2) - 4000) / (4000 * 3999)
    assert cone.half_angle(cosine) == pytest.approx(degrees, abs=0.5)


def test_the_sides_touch_the_rim():
    drawn = cone.drawing(0.5)
    x, y = drawn.touch
    assert (x / drawn.rim) ** 2 + ((y + drawn.height) / drawn.flat) ** 2 == pytest.approx(
        1, abs=1e-3
    )
    # The tangent at that point goes through the apex: gradient of the ellipse at right angles to
    # the way there.
    slope = np.array([x / drawn.rim**2, (y + drawn.height) / drawn.flat**2])
    assert slope @ np.array([x, y]) == pytest.approx(0, abs=1e-2)


def test_no_common_direction_is_a_disc_without_sides():
    assert cone.drawing(0.0).touch is None
    assert cone.drawing(None) is None
