"""Gradients against captum, and what integrated gradients promise against themselves."""

import warnings

import numpy as np
import pytest
import torch

from headscan.attribution import (
    AttributionTarget,
    Engine,
    TargetStep,
    attribute,
    gradient_x_input,
    integrated_gradients,
)
from tests.attribution.attribution_cases import IDS, WIPERS


def captum_or_skip():
    try:
        import captum.attr
    except ImportError:
        warnings.warn("captum is not installed: gradients are NOT held against it", stacklevel=1)
        pytest.skip("captum is not installed")
    return captum.attr


def case(lens, kind):
    engine = Engine(lens)
    embeds = engine.embed(torch.tensor(IDS))
    target = AttributionTarget(kind, (TargetStep(len(IDS) - 1, 9, 4),))

    def forward(rows):
        return target.value(lens.model(inputs_embeds=rows).logits[:, [len(IDS) - 1]])[:, 0]

    return engine, embeds, target, forward


@pytest.mark.parametrize("kind", ["logit", "contrast", "logprob", "all"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_gradient_x_input_is_captums(family, kind, request):
    attr = captum_or_skip()
    engine, embeds, target, forward = case(request.getfixturevalue(family), kind)
    expected = (
        attr.InputXGradient(forward)
        .attribute(embeds[None].clone().requires_grad_(True))[0]
        .detach()
    )
    ours = gradient_x_input(engine, embeds, target)
    np.testing.assert_allclose(ours[0], expected.sum(-1).numpy(), rtol=1e-5, atol=1e-5)
    sizes = gradient_x_input(engine, embeds, target, signed=False)
    np.testing.assert_allclose(sizes[0], expected.abs().sum(-1).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_integrated_gradients_are_captums(family, request):
    attr = captum_or_skip()
    engine, embeds, target, forward = case(request.getfixturevalue(family), "logprob")
    baseline = engine.embed(torch.tensor(1))
    result = attr.IntegratedGradients(forward).attribute(
        embeds[None], baselines=baseline.expand_as(embeds)[None], n_steps=50, method="gausslegendre"
    )
    ours = integrated_gradients(engine, embeds, baseline, target, steps=50)
    np.testing.assert_allclose(
        ours.scores[0], result[0].sum(-1).detach().numpy(), rtol=1e-5, atol=1e-5
    )


def test_on_a_real_model_both_are_captums(stories):
    attr = captum_or_skip()
    engine = Engine(stories)
    ids = stories.tokenizer(WIPERS)["input_ids"]
    embeds = engine.embed(torch.tensor(ids))
    baseline = engine.embed(torch.tensor(2))
    target = AttributionTarget("logit", (TargetStep(len(ids) - 1, 426),))

    def forward(rows):
        return stories.model(inputs_embeds=rows).logits[:, -1, 426]

    expected = (
        attr.InputXGradient(forward).attribute(embeds[None].clone().requires_grad_(True))[0].sum(-1)
    )
    scale = float(expected.abs().max())
    np.testing.assert_allclose(
        gradient_x_input(engine, embeds, target)[0], expected.detach().numpy(), atol=1e-5 * scale
    )
    expected = attr.IntegratedGradients(forward).attribute(
        embeds[None], baseline.expand_as(embeds)[None], n_steps=50
    )
    ours = integrated_gradients(engine, embeds, baseline, target, steps=50)
    scale = float(expected.sum(-1).abs().max())
    np.testing.assert_allclose(
        ours.scores[0], expected[0].sum(-1).detach().numpy(), atol=1e-5 * scale
    )


@pytest.mark.parametrize("substitute", ["auto", "mean", "zero"])
def test_completeness_is_below_a_hundredth_at_default_steps(stories, substitute):
    result = attribute(
        stories, WIPERS, method="integrated-gradients", substitute=substitute, faithfulness=False
    )
    certificate = result.document["maps"][0]["completeness"]
    assert certificate["relative_gap"][0] < 0.01
    assert sum(result.scores) == pytest.approx(certificate["whole"][0], rel=0.01)


def test_the_gap_is_the_truth_and_cutting_the_path_closes_it(llama):
    engine, embeds, target, forward = case(llama, "logit")
    baseline = torch.zeros_like(embeds[0])
    with torch.no_grad():
        change = float(forward(embeds[None]) - forward(torch.zeros_like(embeds)[None]))
    coarse = integrated_gradients(engine, embeds, baseline, target, steps=3)
    assert coarse.completeness.whole[0] == pytest.approx(change, abs=1e-5)
    assert coarse.completeness.gap[0] == pytest.approx(abs(coarse.scores.sum() - change), abs=1e-5)
    fine = integrated_gradients(engine, embeds, baseline, target)
    assert coarse.completeness.relative_gap[0] > 0.01 > fine.completeness.relative_gap[0]
    assert fine.completeness.segments > 1


def test_no_weight_keeps_a_gradient_and_none_is_frozen_after(gpt2):
    engine, embeds, target, _ = case(gpt2, "logit")
    gradient_x_input(engine, embeds, target)
    assert all(weight.grad is None and weight.requires_grad for weight in gpt2.model.parameters())
