"""Bands of healthy runs: what lies between them, who is compared, and that a healthy run lies
within and an ill one does not.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM, TrainerCallback

import headscan
from headscan.model.available import specimen_path
from headscan.run import ModelRecord
from headscan.training import recipe_of, train
from headscan.training.healthy_runs import Band, curves_of, reference_runs, runs_like, thinned
from headscan.training.monitor.readings import Reading
from headscan.training.recipes import RECIPES

GPT = ModelRecord(name="gpt", model_class="GPTNeoXForCausalLM", width=128, depth=4, vocabulary=4096)
FAULT = 31
LAST = 50


class CollapseThenStop(TrainerCallback):
    """The first head of the last block becomes a hundred times as sharp."""

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == FAULT:
            attention = model.model.gpt_neox.layers[-1].attention
            with torch.no_grad():
                attention.query_key_value.weight[: attention.head_size] *= 100
        control.should_training_stop = state.global_step >= LAST


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = recipe_of("gpt").but(rate=1.5e-3)  # between those of the reference; a seed of its own
    return train(
        plan,
        "pydoc",
        objective="ce",
        geometry_every=10,
        seed=7,
        max_tokens=200_000,
        out=tmp_path_factory.mktemp("run"),
        trainer={"save_strategy": "no"},
        callbacks=[CollapseThenStop()],
    )


def within(result, steps):
    """By curve whether its numbers lie in the bands, at these steps."""
    known = runs_like(result.models[0], result.tokens / result.steps)
    found = {}
    curves = curves_of(result.scan, result.readings, result.curve)
    for name, curve in (
        (name, [one for one in curve if one[0] in steps]) for name, curve in curves.items()
    ):
        bands = known.band(name, [step * known.tokens_a_step for step, _ in curve])
        held = [
            band[0] <= value <= band[1]
            for (_, value), band in zip(curve, bands, strict=True)
            if band
        ]
        found |= {name: held} if held else {}
    return found


def test_a_healthy_run_of_another_seed_lies_within_and_a_collapsed_head_does_not(run):
    healthy = within(run, range(FAULT))
    numbers = [held for each in healthy.values() for held in each]
    assert {
        "loss",
        "block.3/average_cosine",
        "block.3/entropy",
        "block.0/share",
        "final_norm/effective_rank",
    } <= healthy.keys()
    assert {
        "gpt_neox.layers.*.mlp.dense_h_to_4h.weight/row_norm",
        "gpt_neox.embed_in.weight/tail",
    } <= healthy.keys()
    assert len(numbers) > 150
    assert np.mean(numbers) >= 0.9
    ill = within(run, range(FAULT + 10, LAST + 1))
    assert healthy["block.3/entropy"][-1]
    assert not any(ill["block.3/entropy"])
    assert "block.3/entropy" in run.page()


def test_a_page_says_what_is_outside_and_what_is_compared(run):
    assert re.search(r"outside: block\.3/max \(.*block\.3/entropy \(", run.page())
    early = replace(
        run,
        scan=run.scan[:4],
        readings=[one for one in run.readings if one.step < FAULT],
        curve=[point for point in run.curve if point.step < FAULT],
    )
    words = re.compile(
        r"At step (\d+), (\d+) of (\d+) numbers are within the range of 4 healthy runs of this size"
    )
    step, within, of = map(int, words.search(early.page()).groups())
    assert (step, within >= 0.9 * of) == (30, True)
    steep = replace(
        early, readings=[], curve=[], scan=[replace(one, step=one.step + 150) for one in early.scan]
    )
    step, within, of = map(int, words.search(steep.page()).groups())
    assert (step, within < 0.8 * of) == (180, True)
    wide = replace(run, models=[replace(run.models[0], width=512)])
    assert "No reference curves of healthy runs: width 512 (available: 128)" in wide.page()
    assert (
        "No reference curves of healthy runs: tokens a step"
        in replace(run, tokens=8 * run.tokens).page()
    )


def test_a_band_is_linear_in_the_logarithm_of_the_tokens():
    one = replace(reference_runs()[0], bands=[Band("loss", [0, 99], [1.0, 3.0], [2.0, 6.0])])
    assert one.band("loss", [0, 9, 99]) == [
        (1.0, 2.0),
        (pytest.approx(2.0), pytest.approx(4.0)),
        (3.0, 6.0),
    ]
    assert one.band("loss", [100]) == one.band("norm", [1]) == [None]


def test_every_recipe_has_bands_of_all_its_course_inside_of_their_ranges():
    for plan in map(recipe_of, RECIPES):
        for one in (
            some := [one for one in reference_runs() if f"headscan train {plan.name} " in one.about]
        ):
            assert (one.planned_steps, one.tokens_a_step, one.runs >= 4) == (
                plan.steps,
                plan.tokens_a_step,
                True,
            )
            bands = {band.measure: band for band in one.bands}
            cosine = bands[f"block.{one.depth - 1}/average_cosine"]
            assert (cosine.tokens[0], cosine.tokens[-1]) == (0, plan.steps * plan.tokens_a_step)
            ranges = zip(cosine.low, cosine.high, strict=True)
            assert all(-1 <= low <= high <= 1 for low, high in ranges)
            for what in (
                "stable_rank",
                "tail",
                "row_norm",
                "update_stable_rank",
                "update_tail",
                "update_row_norm",
            ):
                assert any(".*." in name and name.endswith(f"weight/{what}") for name in bands)
        assert [one.objective for one in some] == ["ce", "cwt"]


def test_who_is_compared():
    assert runs_like(GPT, 1024).objective == "ce"
    assert runs_like(GPT, 1024, 1000, "ce+cwt") == "there are none of GPTNeoXForCausalLM by ce+cwt"
    assert (
        "--objective cwt:"
        in runs_like(replace(GPT, model_class="GPTNeoXModel", width=160, vocabulary=3000)).about
    )
    for apart, words in (
        ({"width": 256}, "width 256 (available: 128)"),
        ({"width": None}, "width 0"),
        ({"depth": 6}, "depth 6 (available: 4)"),
        ({"vocabulary": 50_000}, "vocabulary 50,000"),
        ({"model_class": "GPT2LMHeadModel"}, "none of GPT2LMHeadModel"),
    ):
        assert words in runs_like(replace(GPT, **apart))
    assert runs_like(GPT, 4096) == "tokens a step 4,096 (available: 1,024)"
    assert runs_like(GPT, 1024, 60) == "planned steps 60 (available: 1,000)"


def test_a_result_keeps_few_readings():
    every = [
        Reading(
            step=k,
            family=name,
            values={"block.0/max": 1.0, "block.0/key_norm": 2.0, "block.1/max": float("nan")},
        )
        for k in range(1, 2000)
        for name in ("qk_logit_max", "sinks")
    ]
    some = thinned(every)
    values = {
        "layers.0.up.weight/tail": 0.5,
        "layers.1.up.weight/tail": 0.25,
        "up.weight/tail": 1.0,
        "up.weight/row_spread": 2.0,
    }
    one = Reading(step=1, family="update_stable_rank", values=values)
    assert curves_of([], [one]) == {
        "layers.*.up.weight/update_tail": [(1, 0.375)],
        "up.weight/update_tail": [(1, 1.0)],
    }
    assert (some[0].step, some[-1].step) == (1, 1999)
    assert len(some) <= 40
    assert {one.family for one in some} == {"qk_logit_max"}
    assert all(one.values == {"block.0/max": 1.0} for one in some)


def test_a_series_of_checkpoints_is_held_against_them_by_the_steps_in_its_names(tmp_path):
    torch.manual_seed(3)
    config = GPTNeoXConfig(
        vocab_size=4096,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPTNeoXForCausalLM(config)
    tokenizer = AutoTokenizer.from_pretrained(specimen_path("gpt-vanilla"))
    for step in (0, 1, 2, 150, 160, 170):
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / f"checkpoint-{step}")
    options = {"context": 64, "max_tokens": 1536, "sample": 0}
    shares = []
    for named in ("checkpoint-0,checkpoint-1,checkpoint-2", "checkpoint-1??"):
        page = headscan.scan(tmp_path, "stories", revisions=named, **options).page()
        within, of = map(int, re.search(r"Over all steps (\d+) of (\d+) are", page).groups())
        shares.append(within / of)
        assert "Ranks are left out" in page
    assert shares[0] >= 0.8 > 0.5 >= shares[1]
