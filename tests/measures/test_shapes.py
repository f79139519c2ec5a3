"""Hubness, persistence, paths, entropies of any order: against slow references and laws that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headscan import BadInput, scan
from headscan.measures.dimension import deaths, persistence
from headscan.measures.entropy import alpha_req, matrix_entropy
from headscan.measures.sphere import hubness
from headscan.statistics.part_sums import turns, window_entropy


def test_hubness_equals_counting_by_hand_and_sees_a_hub():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    counts = np.zeros(60)
    for i in range(60):
        near = sorted((j for j in range(60) if j != i), key=lambda j: -float(unit[i] @ unit[j]))[:10]
        counts[near] += 1
    found = hubness(x)
    assert found["hub_skewness"] == pytest.approx(((counts - 10) ** 3).mean() / ((counts - 10) ** 2).mean() ** 1.5)
    assert found["robin_hood"] == pytest.approx(np.abs(counts - 10).sum() / 1200)
    assert found["antihubs"] == (counts == 0).mean()
    wide = rng.standard_normal((500, 300))
    assert hubness(wide)["hub_skewness"] == pytest.approx(
        10**-0.5, abs=0.2
    )  # of directions without a cone: as by chance
    assert hubness(wide + 1)["hub_skewness"] > 1  # a cone makes hubs
    assert hubness(x[:8])["antihubs"] is None


def test_h0_equals_kruskal_by_hand_and_finds_two_clusters():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30, 4))
    edges = sorted((float(np.linalg.norm(x[i] - x[j])), i, j) for i in range(30) for j in range(i))
    piece, bars = list(range(30)), []
    for length, i, j in edges:
        if piece[i] != piece[j]:
            old = piece[i]
            piece = [piece[j] if one == old else one for one in piece]
            bars.append(length)
    np.testing.assert_allclose(deaths(x), bars)
    np.testing.assert_allclose(deaths(np.repeat(x, 2, axis=0)), bars)
    apart = np.vstack([x, x + 100])
    assert persistence(apart)["longest_bar"] > 10 > persistence(x)["longest_bar"]


def test_turns_of_independent_states_are_120_degrees_and_of_a_line_none():
    x = torch.randn(64, 50, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    angles, straight = turns(x)
    assert math.degrees(angles[:, 0].sum() / angles[:, 1].sum()) == pytest.approx(120, abs=0.5)
    assert straight.mean() == pytest.approx(1 / 49, rel=0.1)
    line = torch.arange(5.0).double()[None, :, None] * torch.ones(3).double()
    assert turns(line)[0][0].tolist() == pytest.approx([0.0, 3.0], abs=1e-6)
    still = turns(torch.ones(1, 5, 3).double())
    assert still[0].tolist() == [[0.0, 0.0]]
    assert torch.isnan(still[1]).all()


@pytest.mark.parametrize("shape", [(3, 12, 5), (3, 5, 12)])
def test_the_entropy_of_a_window_is_that_of_its_singular_values(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for window, found in zip(x.numpy(), window_entropy(x), strict=True):
        p = np.linalg.svd(window)[1] ** 2
        p = p / p.sum()
        assert float(found) == pytest.approx(-(p * np.log(p)).sum() / math.log(5))
        assert matrix_entropy(window, 1) == pytest.approx(float(found) * math.log(5))


def test_entropies_fall_with_their_order_and_meet_at_one():
    x = np.random.default_rng(0).standard_normal((40, 6)) * np.arange(1, 7)
    values = [matrix_entropy(x, order) for order in (0, 0.5, 1 - 1e-6, 1, 1 + 1e-6, 2, 7, math.inf)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(math.log(6))
    assert values[2] == pytest.approx(values[4], abs=1e-5)
    for order in (-1, math.nan):
        with pytest.raises(BadInput, match="order"):
            matrix_entropy(x, order)


@pytest.mark.parametrize("width", [8, 64])
def test_alpha_of_a_power_law_is_its_exponent(width):
    assert alpha_req(np.diag(np.arange(1.0, width + 1) ** -0.6)) == pytest.approx(1.2)
    assert alpha_req(np.zeros((4, width))) is None


def test_in_a_scan_only_where_they_are_asked_for():
    options = {"max_tokens": 512, "context": 32, "batch": 4, "sites": "block.0"}
    assert not scan("gpt-vanilla", "stories", **options).tables
    names = "paths,hubness,persistence"
    tables = scan("gpt-vanilla", "stories", measures=names, **options).tables
    assert {row["site"] for row in tables["paths"]} == {"block.0"}
    assert tables["paths"][0]["curvature"] > 60
    assert {row.get("null") for row in tables["hubness"]} == {None, "gaussian"}
    for name in names.split(","):
        assert any(row.interval(field) for row in tables[name] for field in row if f"{field}_interval" in row)
