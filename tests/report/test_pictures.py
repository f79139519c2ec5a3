import base64

import numpy as np
import pytest
import sample

from headscan.report.pages import scan_clouds as pictures


def unpack(text: str, scale: float) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<i2").reshape(-1, 3) * scale


@pytest.mark.parametrize("size", [1e-30, 1.0, 3e4])
def test_coordinates_come_back_within_half_a_step(size):
    points = np.random.default_rng(0).standard_normal((500, 3)) * size
    unpacked = unpack(*pictures.pack(points))
    assert np.abs(unpacked - points).max() <= np.abs(points).max() / 65534 * (1 + 1e-9)


def test_rows_that_are_not_finite_are_marked():
    points = np.array([[1.0, 2.0, 3.0], [np.nan, 0.0, 0.0], [0.0, np.inf, 0.0]])
    text, scale = pictures.pack(points)
    coordinates = np.frombuffer(base64.b64decode(text), "<i2").reshape(-1, 3)
    assert (coordinates[1:] == -32768).all()
    assert unpack(text, scale)[0] == pytest.approx(points[0], rel=1e-4)


def test_a_cloud_at_the_origin_packs():
    text, scale = pictures.pack(np.zeros((4, 3)))
    assert (unpack(text, scale) == 0).all()


def test_sites_without_a_fitting_array_are_left_out():
    document, arrays = sample.scan(("m",), blocks=2, width=8, tokens=20)
    del arrays["picture/m/block.0"]
    arrays["picture/m/block.1"] = np.zeros((3, 3), dtype=np.float32)
    clouds = pictures.clouds(sample.shown(document, arrays))
    assert [slide["site"] for slide in clouds[0]["sites"]] == ["embedding", "final_norm"]
    assert pictures.clouds(sample.shown(document)) == []
    assert pictures.clouds(sample.shown(document | {"pictures": {}}, arrays)) == []
