"""Every measure of similarity against its slow reference, its invariances, and itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headscan.comparison.covariance import CrossCovariance
from headscan.comparison.run import compare
from headscan.comparison.similarity import SIMILARITIES
from headscan.run import BadInput
from headscan.statistics.hsic import CrossMoments, unbiased_hsic
from tests.reference import similarity as slow

NAMES = ("cka", "procrustes", "svcca", "linear", "rsa", "mutual_knn")


def pair(n=300, p=12, q=9, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 5)) * np.geomspace(8, 1, 5)
    x = (
        common @ rng.standard_normal((5, p))
        + rng.standard_normal((n, p))
        + 30 * rng.standard_normal(p)
    )
    y = common @ rng.standard_normal((5, q)) + 2 * rng.standard_normal((n, q)) - 4
    return x, y


def values(x, y, **options):
    result = compare([x, y], draws=19, **{"sample": 1024} | options)
    return {name: result.cell(name, "vectors").value for name in result.measures}


def test_every_registered_measure_has_a_reference():
    assert set(NAMES) == set(SIMILARITIES.names())


def test_sums_of_one_pass_give_what_all_tokens_at_once_do():
    x, y = pair()
    actual = values(x, y)
    for name in NAMES:
        assert actual[name] == pytest.approx(getattr(slow, name)(x, y), abs=1e-9), name


def test_peers_say_the_same_of_the_same_arrays():
    x, y = pair()
    ckatorch = pytest.importorskip(
        "ckatorch.core", reason="ckatorch is not installed: CKA is NOT held against a peer"
    )
    reference = float(ckatorch.cka_base(torch.from_numpy(x), torch.from_numpy(y), unbiased=True))
    assert values(x, y)["cka"] == pytest.approx(reference, abs=1e-9)


def test_float32_rows_give_it_to_six_digits():
    x, y = (array.astype(np.float32) for array in pair(seed=3))
    actual = values(x, y)
    for name in ("cka", "procrustes", "svcca", "linear"):
        assert actual[name] == pytest.approx(
            getattr(slow, name)(x.astype(float), y.astype(float)), abs=2e-6
        ), name


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_array_is_as_like_itself_as_can_be(kind):
    x = pair(n=200)[0].astype(kind)
    x[:, 3] *= 1000  # one coordinate of giants
    x[:, 5] = x[:, 4]  # and one that says nothing new
    for name, value in values(x, x).items():
        assert value == pytest.approx(1.0, abs=1e-9), name


def test_a_rotation_a_scale_and_a_shift_change_nothing():
    x, y = pair()
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((9, 9)))[0]
    original = values(x, y)
    moved = values(x, 7 * y @ turn + 100)
    for name in set(NAMES) - {"mutual_knn"}:
        assert moved[name] == pytest.approx(original[name], abs=1e-8), name
    assert values(x, 7 * y @ turn)["mutual_knn"] == pytest.approx(original["mutual_knn"], abs=1e-9)


def test_directions_of_prediction_are_kept_apart():
    x, _ = pair()
    actual = values(x, x[:, :4])
    assert actual["linear"] == pytest.approx(1.0, abs=1e-9)
    assert values(x[:, :4], x)["linear"] < 0.99


def test_unrelated_arrays_have_no_cka_where_the_one_that_is_not_debiased_has():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, 100, 60, 40, generator=generator, dtype=torch.float64)
    pairs = CrossCovariance.of_rows(*drawn)
    debiased = SIMILARITIES["cka"]().value(pairs)
    plain = SIMILARITIES["cka"]().value(replace(pairs, hsic=None))
    assert abs(debiased.mean()) < 0.005
    assert plain.mean() == pytest.approx(40 / (60 + 40), abs=0.01)


def test_moments_of_batches_are_those_of_the_whole():
    x, y = (torch.from_numpy(rows) for rows in pair())
    centres = [x[:50].mean(0), y[:50].mean(0)]
    at_once = CrossMoments([0, 1], centres)
    parts = CrossMoments([0, 1], centres)
    at_once.update([x, y])
    for part in (slice(0, 110), slice(110, None)):
        parts.update([x[part], y[part]])
    for u, v in ((0, 0), (0, 1), (1, 1)):
        hsic, two = (float(unbiased_hsic(moments.pair(u, v))) for moments in (parts, at_once))
        assert hsic == pytest.approx(two, rel=1e-10)
        assert torch.allclose(parts.covariance(u, v), at_once.covariance(u, v))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([np.ones((20, 3)), np.ones((21, 3))], "different numbers: .* 20, .* 21"),
        ([np.ones((20, 3)), np.full((20, 3), np.nan)], "NaN or infinite values at site"),
        ([np.ones((20, 3))], "two at least"),
        ([np.ones((2, 3)), np.ones((2, 3))], "Eight vectors"),
        (["gpt-vanilla", "gpt-headless"], "--text TEXT"),
        (["gpt-vanilla"], "two at least"),
    ],
)
def test_what_cannot_be_compared_is_said(source, message):
    text = None if message == "--text TEXT" or not isinstance(source[0], str) else "stories"
    with pytest.raises(BadInput, match=message):
        compare(source, text)


def test_constant_arrays_have_no_value_and_no_fault():
    result = compare([np.ones((20, 3)), np.ones((20, 2))], draws=19)
    assert all(
        result.cell(name, "vectors").value is None
        for name in ("cka", "procrustes", "svcca", "linear")
    )
