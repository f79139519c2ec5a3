"""Every measure against its slow reference, its invariances, and its behaviour on small and broken
clouds.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan import BadInput
from headscan.measures import MEASURES, average_cosine, singular_values
from headscan.statistics.cloud import Cloud
from tests.reference import geometry as reference

# These sum amplitudes σ, not energies σ²: the square root of a Gram matrix's rounding, √ε, is what
# they can be held to.
TOLERANCE = {"rankme": 1e-5, "alpha_req": 1e-5}

# Those of headscan's own measures, and what a newcomer brings as its `reference`.
REFERENCES = reference.SCALARS | {
    name: measure.reference for name, measure in MEASURES.items() if measure.reference
}


@st.composite
def clouds(draw, min_rows: int = 3):
    n = draw(st.integers(min_rows, 40))
    d = draw(st.integers(2, 12))
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    offset = draw(st.sampled_from([0.0, 0.5, 5.0, 50.0]))
    return generator.standard_normal((n, d)) * generator.gamma(
        2.0, size=d
    ) + offset * generator.standard_normal(d)


def orthogonal(d: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def values(x) -> dict[str, float | None]:
    cloud = Cloud.of_rows(x)
    return {name: measure(cloud) for name, measure in MEASURES.items()}


def same(value: float | None, expected: float | None, rel: float) -> bool:
    """Tell whether two values are equal, or both undefined."""
    if value is None or expected is None:
        return value is expected
    return value == pytest.approx(expected, rel=rel, abs=1e-9)


@settings(deadline=None)
@given(clouds())
def test_every_measure_equals_its_reference(x):
    cloud = Cloud.of_rows(x)
    for name, slow in REFERENCES.items():
        assert same(MEASURES[name](cloud), slow(x), TOLERANCE.get(name, 1e-7)), name
    np.testing.assert_allclose(
        singular_values(cloud),
        reference.singular_values(x),
        atol=1e-7 * reference.singular_values(x)[0],
    )


@settings(deadline=None)
@given(clouds(), st.integers(0, 1000))
def test_rotation_changes_nothing(x, seed):
    original = values(x)
    rotated = values(x @ orthogonal(x.shape[1], seed))
    for name, value in original.items():
        assert same(rotated[name], value, TOLERANCE.get(name, 1e-6)), name


@settings(deadline=None)
@given(clouds(), st.floats(0.01, 100))
def test_scale_changes_lengths_only(x, scale):
    original = values(x)
    scaled = values(scale * x)
    for name, value in original.items():
        factor = scale if MEASURES[name].words.group == "norms" else 1.0
        assert same(
            scaled[name], None if value is None else factor * value, TOLERANCE.get(name, 1e-6)
        ), name


@settings(deadline=None)
@given(clouds(), st.floats(-5, 5))
def test_translation_changes_no_centred_measure(x, shift):
    original = values(x)
    shifted = values(x + shift)
    for name in ("participation_ratio", "isoscore"):
        assert shifted[name] == pytest.approx(original[name], rel=1e-5, abs=1e-7), name


@settings(deadline=None)
@given(clouds())
def test_duplicates_change_no_spectral_measure(x):
    original = values(x)
    repeated = values(np.repeat(x, 3, axis=0))
    for name, measure in MEASURES.items():
        if measure.words.spectral or measure.words.group == "norms":
            assert same(repeated[name], original[name], 1e-6), name


@settings(deadline=None)
@given(clouds())
def test_ranges_hold(x):
    for name, value in values(x).items():
        if value is None:
            # the only one that such a cloud may be too narrow or too short for
            assert name == "alpha_req"
            continue
        low, high = MEASURES[name].range
        assert low is None or value >= low - 1e-9, name
        assert high is None or value <= high + 1e-9, name


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_rank_k_data_fill_k_dimensions(rank):
    generator = np.random.default_rng(rank)
    basis = orthogonal(8, rank)[:rank]
    x = np.repeat(np.vstack([basis, -basis]), 5, axis=0)  # an even cloud on `rank` axes
    generator.shuffle(x)
    measures = values(x)
    assert measures["effective_rank"] == pytest.approx(rank, rel=1e-6)
    assert measures["participation_ratio"] == pytest.approx(rank, rel=1e-6)
    assert measures["top_direction_share"] == pytest.approx(1 / rank, rel=1e-6)
    assert measures["isoscore"] == pytest.approx((rank - 1) / 7, abs=1e-9)


def test_gaussian_data_have_the_known_values():
    n = 200_000
    d = 16
    x = np.random.default_rng(0).standard_normal((n, d))
    measures = values(x)
    assert abs(measures["average_cosine"]) < 5 * math.sqrt(2 / d) / n
    assert measures["mean_norm"] == pytest.approx(
        math.sqrt(2) * math.gamma((d + 1) / 2) / math.gamma(d / 2), rel=2e-3
    )
    assert measures["effective_rank"] == pytest.approx(d, rel=2e-3)
    assert measures["isoscore"] == pytest.approx(1.0, abs=2e-3)


CENTRED = {"participation_ratio", "isoscore", "centred_effective_rank"}


@pytest.mark.parametrize(
    ("rows", "undefined"),
    [
        ([[1.0, 2.0]], {"average_cosine", "alpha_req"} | CENTRED),
        ([[0.0, 0.0], [0.0, 0.0]], set(MEASURES) - {"mean_norm", "mean_vector_norm"}),
        ([[3.0, 1.0]] * 4, {"alpha_req"} | CENTRED),
        ([[1e-3 + 1 / 3, 7.7, -2.1]] * 1000, {"alpha_req"} | CENTRED),
        ([[2.0], [1.0]], {"isoscore", "alpha_req"}),
        ([[0.0, 0.0], [1.0, 2.0]], {"average_cosine", "alpha_req"}),
        ([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]], set()),
        ([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 0.0]], {"alpha_req"}),
    ],
)
def test_what_is_not_defined_is_none_and_never_nan(rows, undefined):
    measures = values(rows)
    assert {name for name, value in measures.items() if value is None} == undefined
    assert all(math.isfinite(value) for value in measures.values() if value is not None)
    assert all(MEASURES[name].words.undefined for name in undefined)


def test_fewer_rows_than_dimensions():
    x = np.random.default_rng(1).standard_normal((5, 20))
    measures = values(x)
    assert measures["effective_rank"] <= 5 + 1e-9
    assert measures["participation_ratio"] <= 4 + 1e-9
    assert measures["participation_ratio"] == pytest.approx(
        reference.participation_ratio(x), rel=1e-9
    )


def test_a_massive_position_leaves_the_rest_exact():
    """Position 0 may be a thousand times longer; all − first must still give the rest to 1e-6."""
    import torch

    from headscan.statistics import SiteStatistics

    x = torch.randn(40, 32, 24, dtype=torch.float32)
    x[:, 0] = 3000 + torch.randn(40, 24)
    statistics = SiteStatistics(24)
    statistics.update(x, list(range(40)))
    cloud = Cloud.of_sums(statistics.sums("without_first"))
    remaining = x[:, 1:].reshape(-1, 24).double().numpy()
    for name, slow in REFERENCES.items():
        assert MEASURES[name](cloud) == pytest.approx(slow(remaining), rel=1e-6, abs=1e-9), name


def test_measures_say_what_they_are():
    for name, measure in MEASURES.items():
        description = measure.words
        assert measure.name == name
        assert all(
            (
                description.title,
                description.group,
                description.sentence,
                description.formula,
                description.source,
                description.undefined,
                description.cost,
            )
        )


def test_a_measure_takes_any_rows_and_says_what_it_cannot_take():
    import torch

    x = np.random.default_rng(0).standard_normal((20, 4))
    expected = reference.average_cosine(x)
    for rows in (x, x.tolist(), torch.tensor(x, requires_grad=True), Cloud.of_rows(x)):
        assert average_cosine(rows) == pytest.approx(expected, rel=1e-12)
    assert average_cosine(torch.tensor(x).bfloat16()) == pytest.approx(expected, rel=0.2)
    for bad, why in (
        (x[0], "rows of a matrix"),
        ([[1.0, math.nan]], "finite"),
        ([[1.0, math.inf], [0, 1]], "finite"),
    ):
        with pytest.raises(BadInput, match=why):
            average_cosine(bad)


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e6])
def test_the_strongest_directions_of_a_wide_cloud_are_those_of_all(offset):
    x = torch.randn(900, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.linspace(3, 0.1, 300, dtype=torch.float64) + offset
    directions = Cloud.of_rows(x).strongest(3)
    expected = Cloud.of_rows(x).directions[:, :3]
    assert directions.shape == (300, 3)
    np.testing.assert_allclose(np.abs(directions.T @ expected), np.eye(3), atol=1e-7)
