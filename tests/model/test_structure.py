"""The structure of a model is found by a trial that fits it, and the model is left as it was."""

import copy

import pytest
import torch
from transformers import (
    BertConfig,
    BertGenerationConfig,
    BigBirdConfig,
    BigBirdForMaskedLM,
    ElectraConfig,
    IBertConfig,
    IBertForMaskedLM,
    LEDConfig,
    LEDForConditionalGeneration,
    LongformerConfig,
    LongformerForMaskedLM,
    MarianConfig,
    MarianMTModel,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    XLMConfig,
)

from headscan import BadInput
from headscan.model import Lens
from headscan.model.source import auto_class
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
    assert patched.shape == (*ids.shape, 32)
    assert not patched.any()


def test_a_class_is_loaded_by_the_mapping_that_names_it(tmp_path):
    config = MarianConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=64,
        pad_token_id=1,
        decoder_start_token_id=1,
    )
    model = MarianMTModel(config).eval()
    model.save_pretrained(tmp_path)
    lens = Lens.load(tmp_path, device="cpu")
    assert type(lens.model) is MarianMTModel
    assert not lens.notes
    ids = torch.arange(10, 20)[None]
    states = lens.run(ids, decoder_input_ids=ids, sites="head")["head"]
    assert torch.equal(states, model(input_ids=ids, decoder_input_ids=ids, use_cache=False).logits)


@pytest.mark.parametrize(
    ("architecture", "config", "expected"),
    [
        ("BertGenerationDecoder", BertGenerationConfig, "AutoModelForCausalLM"),
        ("T5EncoderModel", T5Config, "AutoModelForTextEncoding"),
        ("BertForSequenceClassification", BertConfig, "AutoModel"),
        ("BertForPreTraining", BertConfig, "AutoModelForMaskedLM"),
        ("ElectraForPreTraining", ElectraConfig, "AutoModel"),
        ("XLMWithLMHeadModel", XLMConfig, "AutoModelForMaskedLM"),
    ],
)
def test_the_auto_class_of_an_architecture(architecture, config, expected):
    assert auto_class(config(architectures=[architecture])).__name__ == expected


def test_positions_that_a_table_reserves_are_not_read():
    roberta = RobertaForMaskedLM(RobertaConfig(**ENCODER | {"max_position_embeddings": 40}))
    ibert = IBertForMaskedLM(IBertConfig(**ENCODER | {"max_position_embeddings": 40}))
    for model in (roberta, ibert):
        lens = Lens(model.eval())
        assert lens.context_length == 38
        lens.run(torch.arange(10, 48)[None], sites="head")
        with pytest.raises(BadInput, match="at most 38"):
            lens.run(torch.arange(10, 49)[None], sites="head")
