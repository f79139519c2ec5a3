"""Encoder-decoders: the encoder's tokens are scored for what the decoder says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

import headscan
from headscan import load
from headscan.attribution import Shapley, attribute
from tests.attribution.attribution_cases import IDS


def build(family):
    torch.manual_seed(0)
    if family == "t5":
        config = T5Config(
            vocab_size=60, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0,
            pad_token_id=0, initializer_factor=1.5, feed_forward_proj="gated-gelu",
        )  # fmt: skip
        model = T5ForConditionalGeneration(config)
    else:
        config = BartConfig(
            vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
            decoder_start_token_id=2, scale_embedding=True, init_std=0.3,
        )  # fmt: skip
        model = BartForConditionalGeneration(config)
    return headscan.Lens(model.eval(), name=f"tiny {family}")


@pytest.fixture(scope="module", params=["t5", "bart"])
def lens(request):
    return build(request.param)


def predictions(lens, embeds, decoder):
    with torch.no_grad():
        return lens.model(inputs_embeds=embeds, decoder_input_ids=torch.tensor([decoder] * len(embeds))).logits


def test_occlusion_is_its_definition(lens):
    start = lens.model.config.decoder_start_token_id
    embeds = lens.model.get_input_embeddings()(torch.tensor(IDS)).detach()
    other = lens.model.get_input_embeddings()(torch.tensor(13)).detach()
    found = attribute(lens, IDS, method="occlusion", substitute=13, token=9)
    whole = predictions(lens, embeds[None], [start])
    by_ids = lens.model(input_ids=torch.tensor([IDS]), decoder_input_ids=torch.tensor([[start]])).logits
    assert torch.allclose(whole, by_ids, atol=1e-4)  # scaled embeddings are what the encoder takes
    for i, score in enumerate(found.scores):
        changed = embeds.clone()
        changed[i] = other
        expected = whole[0, -1, 9] - predictions(lens, changed[None], [start])[0, -1, 9]
        assert score == pytest.approx(float(expected), abs=1e-4)
    assert np.abs(found.scores).max() > 1e-3
    assert [one.id for one in found.decoder] == [start]


def test_gradients_are_complete_and_a_continuation_is_said_step_by_step(lens, tmp_path):
    found = attribute(
        lens, IDS, method=["integrated-gradients", "gradient-x-input", "leave-one-out", Shapley(samples=4)],
        substitute="mean", generate=3, out=tmp_path,
    )  # fmt: skip
    said, ids = [one.id for one in found.decoder], found.target.ids
    assert said[1:] == ids[:-1]
    embeds = lens.model.get_input_embeddings()(torch.tensor([IDS])).detach()
    assert predictions(lens, embeds, said)[0].argmax(-1).tolist() == ids
    assert max(found.document["maps"][0]["completeness"]["relative_gap"]) < 0.01
    removed = attribute(lens, IDS[1:], token=ids[0], method="occlusion", substitute="mean", faithfulness=False)
    scores = found.arrays["scores/leave-one-out"]
    assert scores[0, 0] == pytest.approx(
        found.document["steps"][0]["value"] - removed.document["steps"][0]["value"], abs=1e-4
    )
    assert [one.id for one in load(tmp_path).decoder] == said
    assert "decoder position" in (tmp_path / "report.html").read_text()


def test_bad_input_is_one_sentence(lens):
    for options, sentence in (({"generate": 0}, "at least 1"), ({"token": 3, "against": 3}, "against itself")):
        with pytest.raises(headscan.BadInput, match=sentence):
            attribute(lens, IDS, **options)
