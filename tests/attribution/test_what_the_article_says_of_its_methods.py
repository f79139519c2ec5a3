"""Four sentences of Badger's article on input attribution that are about an implementation: this
one does what they say.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.attribution import AttributionTarget, Engine, TargetStep, attribute, gradient_x_input
from headscan.model import Lens

IDS = [3, 14, 15, 9, 26, 5]


@pytest.fixture(scope="module")
def small() -> Lens:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=40,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(GPT2LMHeadModel(config).eval(), name="small")


def test_gradient_times_input_is_the_slope_along_each_embedding(small):
    engine = Engine(small)
    embeds = engine.embed(torch.tensor(IDS))
    signed = gradient_x_input(
        engine, embeds, AttributionTarget("all", (TargetStep(len(IDS) - 1, 0),))
    )[0]
    slopes = []
    for position in range(len(IDS)):
        rows = embeds.repeat(2, 1, 1)
        rows[0, position] *= 1.01
        rows[1, position] *= 0.99
        sums = engine.logits(rows, [len(IDS) - 1]).double().sum((-1, -2))
        slopes.append(float(sums[0] - sums[1]) / 0.02)
    assert np.abs(signed - slopes).max() < 0.02 * np.abs(slopes).max()


def test_occlusion_is_the_distance_of_outputs_with_one_token_replaced(small):
    norms = np.array(
        attribute(
            small, IDS, method="occlusion", target="all", substitute=0, faithfulness=False
        ).scores
    )
    with torch.no_grad():
        last = small.model(input_ids=torch.tensor([IDS])).logits[0, -1]
        tried = [
            small.model(input_ids=torch.tensor([[*IDS[:k], 0, *IDS[k + 1 :]]])).logits[0, -1]
            for k in range(len(IDS))
        ]
    loop = np.array([float((output - last).abs().sum()) for output in tried])
    assert np.abs(norms - loop).max() < 1e-4 * loop.max()


def test_the_highlighter_shows_every_token_and_runs_none(small):
    result = attribute(small, IDS, method="occlusion", substitute=0, faithfulness=False)
    page = replace(result, tokens=["<s>", "<script>", "'", '"', "␣a", "⏎"])._repr_html_()
    assert "<s>" not in page
    assert "<script>" not in page
    assert page.count("title=") >= len(IDS)


def test_logits_from_embeddings_are_those_from_ids(small):
    ids = torch.tensor([IDS])
    with torch.no_grad():
        first = small.model(input_ids=ids).logits
        second = small.model(inputs_embeds=small.input_embeddings[ids]).logits
    assert float((first - second).abs().max()) < 1e-5 * float(first.abs().max())
