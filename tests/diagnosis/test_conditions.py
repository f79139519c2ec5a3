"""Each condition comes out both ways, from rows as a scan writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from headscan.diagnosis import CONDITIONS, Grid, ModelEvidence, PromptRead
from headscan.diagnosis.checkup import judged
from headscan.diagnosis.grid import grid_of, levels
from headscan.run import Row


def site(name: str, **more: object) -> Row:
    healthy = {
        "model": "m", "site": name, "tokens": 1000, "width": 64, "average_cosine_without_sinks": 0.1,
        "average_cosine_without_sinks_interval": [0.05, 0.15], "participation_ratio_without_sinks": 20.0, "sinks": 1,
        "sink_energy": 0.01, "rogue_share": 0.0, "rogue_coordinates": [],
    }  # fmt: skip
    return Row(healthy, **more)


def loss(**more: object) -> Row:
    return Row({"loss": 2.0, "loss_interval": [1.9, 2.1], "unigram_entropy": 5.0, "best_scale": 1.1,
                "best_scale_interval": [0.95, 1.2]}, **more)  # fmt: skip


HEALTHY = ModelEvidence(
    model="m", record=None, text=None, sites=[site("block.0"), site("block.1")], loss=loss(),
    common=[Row(site="final_norm", cosine=0.1, cosine_after=0.0)],
    grid=Grid(levels=64, groups=100, coarsest="w", coarsest_levels=60),
    read=PromptRead(site="block.0", prompts=1, tokens=12, recovered=0.1, interval=(0, 0.3), verdict="not recovered", seconds=1),
)  # fmt: skip
ILL = {
    "HS101": {
        "sites": [
            site("block.0"),
            site("block.1", average_cosine_without_sinks=0.9, average_cosine_without_sinks_interval=[0.85, 0.95]),
        ]
    },
    "HS102": {
        "sites": [site("block.0", average_cosine_without_sinks=0.3, rogue_share=0.8, rogue_coordinates=[7, 9])],
    },
    "HS103": {"sites": [site("block.0", participation_ratio_without_sinks=1.4), site("block.1")]},
    "HS104": {"sites": [site("block.0", sink_energy=0.97), site("block.1")]},
    "HS201": {"loss": loss(loss=9.0, loss_interval=[8.0, 10.0])},
    "HS202": {"loss": loss(best_scale=0.25, best_scale_interval=[0.2, 0.3])},
    "HS203": {"grid": Grid(levels=64, groups=100, coarsest="w", coarsest_levels=15)},
    "HS301": {"read": replace(HEALTHY.read, recovered=1.0)},
    "HS401": {"common": [Row(site="final_norm", cosine=0.6, cosine_after=0.001)]},
}


def present(evidence: ModelEvidence, earlier: list[ModelEvidence] = ()) -> set[str]:
    return {one.code for one in judged(evidence, list(earlier)).observations if one.present}


def test_a_healthy_model_has_none():
    assert present(HEALTHY) == set()
    assert judged(HEALTHY, []).summary[-1] == "No alarm: of 6 conditions that are alarms none is present."


@pytest.mark.parametrize("code", sorted(set(CONDITIONS) - {"HS204"}))
def test_a_condition_is_named_by_its_code_and_no_other_is(code):
    ill = replace(HEALTHY, **ILL[code])
    assert present(ill) == {code}
    found = next(one for one in judged(ill, []).observations if one.code == code)
    assert found.level == ("notice" if found.known else "alert")
    assert "" not in (found.sentence, found.advice)


def test_checkpoints_are_held_against_the_best_before():
    worse = replace(HEALTHY, model="later", loss=loss(loss=2.5))
    assert present(worse, [HEALTHY]) == {"HS204"}
    assert present(HEALTHY, [worse]) == set()


def test_an_interval_across_the_threshold_is_no_alert():
    row = site("block.1", average_cosine_without_sinks=0.52, average_cosine_without_sinks_interval=[0.45, 0.6])
    found = next(one for one in judged(replace(HEALTHY, sites=[row]), []).observations if one.code == "HS101")
    assert (found.present, found.sure, found.level) == (True, False, "notice")


def test_stored_states_have_a_shape_and_no_more():
    bare = ModelEvidence(
        model="s", record=None, text=None, sites=HEALTHY.sites, skipped=["Stored states have no weights."]
    )
    assert {one.question for one in judged(bare, []).observations} == {"shape"}
    assert judged(bare, []).summary[1] == "Cause: Stored states have no weights."


def test_the_grid_of_weights_is_counted():
    torch.manual_seed(0)
    smooth = nn.Linear(128, 32)
    rounded = nn.Linear(128, 32)
    groups = rounded.weight.data.view(32, 2, 64)
    step = groups.abs().amax(-1, keepdim=True) / 7
    rounded.weight.data = (groups / step).round().mul(step).view(32, 128)
    assert levels(smooth.weight).min() > 60
    assert levels(rounded.weight).max() <= 15
    found = grid_of(nn.ModuleDict({"a": smooth, "b": rounded}))
    assert (found.coarsest, found.coarsest_levels <= 15) == ("b.weight", True)
    assert grid_of(nn.ModuleList([nn.Linear(8, 8)])) is None
