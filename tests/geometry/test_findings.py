"""What the numbers say: one verdict on the cone a model, and never without the null beside it."""

from __future__ import annotations

import pytest

from headscan.geometry.findings import findings
from headscan.run import Row


def site(name: str, cosine: float | None, **more: object) -> Row:
    own = {
        "mean_norm": 1.0,
        "mean_vector_norm": 0.1,
        "top_direction_share": 0.1,
        "top_direction_share_without_first": 0.1,
    }
    return Row({"model": "m", "site": name, "width": 16, "effective_rank": 8.0, "average_cosine": cosine} | own | more)


def codes(*cosines: float, random: tuple[float, ...] = ()) -> dict[str, str]:
    nulls = [site(f"block.{k}", value, null="random-init") for k, value in enumerate(random)]
    found = findings([site(f"block.{k}", value) for k, value in enumerate(cosines)], nulls, {})
    assert len(found) == len({one.code for one in found})
    return {one.code: one.text for one in found}


@pytest.mark.parametrize(
    ("cosines", "code"),
    [((0.05, 0.1), "ROUND"), ((0.36, 0.1), "CONE"), ((0.1, 0.3), "CONE"), ((0.9, 0.6), "CONE")],
)
def test_round_and_cone_are_never_said_at_once(cosines, code):
    said = codes(*cosines)
    assert set(said) & {"ROUND", "CONE"} == {code}


def test_the_narrowest_site_and_the_last_block_are_in_one_sentence():
    assert "block.0, mean cosine 0.36; no more at block.1, 0.10" in codes(0.36, 0.1)["CONE"]
    assert "block.1, mean cosine 0.20; most at block.0, 0.60" in codes(0.6, 0.2)["CONE"]


def test_a_model_rounder_than_random_weights_says_so():
    said = codes(0.1, 0.09, random=(0.3, 0.45))
    assert "random weights: 0.45" in said["ROUND"]
    assert "mean cosine 0.09 against 0.45" in said["ROUNDER"]
    assert "ROUNDER" not in codes(0.5, 0.6, random=(0.1, 0.1))
    assert "random weights: 0.10" in codes(0.5, 0.6, random=(0.1, 0.1))["CONE"]


def test_undefined_numbers_make_no_finding():
    assert (
        findings([site("block.0", None, mean_norm=None, top_direction_share=None, effective_rank=None)], [], {}) == []
    )
