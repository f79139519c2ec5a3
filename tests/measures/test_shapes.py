"""Hubness and the fall of the spectrum: against slow references and laws that are known."""

import numpy as np
import pytest

from headscan import scan
from headscan.measures.entropy import alpha_req
from headscan.measures.sphere import hubness


def test_hubness_equals_counting_by_hand_and_sees_a_hub():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    counts = np.zeros(60)
    for i in range(60):
        neighbours = sorted(
            (j for j in range(60) if j != i), key=lambda j: -float(unit[i] @ unit[j])
        )[:10]
        counts[neighbours] += 1
    measures = hubness(x)
    assert measures["hub_skewness"] == pytest.approx(
        ((counts - 10) ** 3).mean() / ((counts - 10) ** 2).mean() ** 1.5
    )
    assert measures["robin_hood"] == pytest.approx(np.abs(counts - 10).sum() / 1200)
    assert measures["antihubs"] == (counts == 0).mean()
    wide = rng.standard_normal((500, 300))
    # of directions without a cone: as by chance
    assert hubness(wide)["hub_skewness"] == pytest.approx(10**-0.5, abs=0.2)
    assert hubness(wide + 1)["hub_skewness"] > 1  # a cone makes hubs
    assert hubness(x[:8])["antihubs"] is None


@pytest.mark.parametrize("width", [8, 64])
def test_alpha_of_a_power_law_is_its_exponent(width):
    assert alpha_req(np.diag(np.arange(1.0, width + 1) ** -0.6)) == pytest.approx(1.2)
    assert alpha_req(np.zeros((4, width))) is None


def test_in_a_scan_only_where_they_are_asked_for():
    options = {"max_tokens": 512, "context": 32, "batch": 4, "sites": "block.0"}
    assert not scan("gpt-vanilla", "stories", **options).tables
    tables = scan("gpt-vanilla", "stories", measures="hubness", **options).tables
    assert {row.get("null") for row in tables["hubness"]} == {None, "gaussian"}
    assert any(
        row.interval(field)
        for row in tables["hubness"]
        for field in row
        if f"{field}_interval" in row
    )
