"""The structure of a model is found by a trial that fits it, and the model is left as it was."""

import copy

import pytest
import torch
from transformers import (
    BigBirdConfig,
    BigBirdForMaskedLM,
    LEDConfig,
    LEDForConditionalGeneration,
    LongformerConfig,
    LongformerForMaskedLM,
)

from headscan.model import Lens
from tests.model.tiny import hooks

ENCODER = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 130,
}


def big_bird():
    return BigBirdForMaskedLM(BigBirdConfig(**ENCODER, block_size=4, num_random_blocks=1))


def longformer():
    return LongformerForMaskedLM(LongformerConfig(**ENCODER, attention_window=[16, 16]))


def led():
    config = LEDConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_encoder_position_embeddings=128,
        max_decoder_position_embeddings=128,
        attention_window=16,
    )
    return LEDForConditionalGeneration(config)


@pytest.mark.parametrize("make", [big_bird, longformer, led])
def test_models_that_pad_or_switch_are_read_as_they_run(make):
    torch.manual_seed(0)
    model = make().eval()
    untouched = copy.deepcopy(model)
    lens = Lens(model)
    short = torch.arange(10, 15)[None]
    ids = torch.randint(10, 97, (2, 72), generator=torch.Generator().manual_seed(1))
    for windows in (short, ids, ids[:, :64]):  # a short one first: it must not switch the model
        states = lens.run(windows, sites="**")
        with torch.no_grad():
            own = copy.deepcopy(untouched)(windows, output_hidden_states=True)
        prefix = "encoder." if len(lens.stacks) == 2 else ""
        hidden = own.encoder_hidden_states if prefix else own.hidden_states
        for index in range(2):
            expected = hidden[index + 1][:, : windows.shape[1]]
            assert torch.equal(states[f"{prefix}block.{index}"], expected)
        if not prefix:
            assert torch.equal(states["head"], own.logits)
    assert hooks(model) == 0
    assert [type(part) for part in model.modules()] == [type(part) for part in untouched.modules()]

    site = f"{prefix}block.0"
    with lens.patch({site: torch.zeros_like}):
        patched = lens.run(ids, sites=site)[site]
    assert patched.shape == ids.shape + (32,)
    assert not patched.any()
