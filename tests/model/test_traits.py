"""What a model is, told by trying: known families against what is known of them."""

import pytest
import torch
import transformers

from headscan.model import Lens
from headscan.model.traits import blind_to_the_last
from tests.model.tiny import coverage_script, family, gpt2, llama

BOTH_SIDES = ("masked", "encoder", "stacks", "ELECTRA", "ALBERT", "ModernBERT")


@pytest.mark.parametrize("row", coverage_script().FAMILIES, ids=lambda row: row.name)
def test_causal_is_what_the_family_is(row):
    traits = Lens(row.build()).traits
    model = traits.lens.model
    assert traits.causal == (
        getattr(model.config, "is_decoder", False)
        or not any(both_side in row.name for both_side in BOTH_SIDES)
    )
    assert traits.encoder_decoder == ("stacks" in row.name)
    assert not (traits.masked and traits.causal)
    assert repr(traits).startswith("Traits(")


def test_the_head_is_linear_where_the_logits_are():
    for model in (gpt2(), llama()):
        lens = Lens(model)
        head = lens.traits.linear_head
        assert head is not None
        assert head.bias is None
        assert head.site == "final_norm"
        states = lens.run([[3, 1, 4]], sites="final_norm, head")
        torch.testing.assert_close(head.logits(states["final_norm"]), states["head"])
        assert lens.traits.linear_head is head  # asked once
    assert Lens(family("Bert (masked LM)")).traits.linear_head is None
    assert Lens(gpt2().transformer).traits.linear_head is None
    bent = gpt2()
    bent.lm_head.register_forward_hook(lambda module, inputs, output: output.tanh())
    assert Lens(bent).traits.linear_head is None


@pytest.mark.parametrize(
    ("name", "settings", "scale", "cap"),
    [
        ("Granite", {"logits_scaling": 8.0}, 1 / 8, None),
        ("Cohere", {"logit_scale": 0.25}, 1 / 4, None),
        ("Gemma2", {"final_logit_softcapping": 3.0, "head_dim": 8}, 1, 3.0),
    ],
)
def test_scaled_and_capped_heads_are_linear_up_to_a_known_function(name, settings, scale, cap):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        **settings,
    )
    torch.manual_seed(0)
    lens = Lens(getattr(transformers, f"{name}ForCausalLM")(config).eval())
    head = lens.traits.linear_head
    assert head.scale == pytest.approx(scale, rel=1e-5)
    assert head.cap == cap
    states = lens.run([[3, 1, 4]], sites="final_norm, head")
    torch.testing.assert_close(head.logits(states["final_norm"]), states["head"])


def test_a_mask_is_seen_through_the_noise_of_the_kernels():
    states = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    states[1:] = states[0]
    states[2, -1] += 1
    assert blind_to_the_last(states)
    noisy = states.clone()
    noisy[1:, :-1] += 1e-3 * torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))
    assert blind_to_the_last(noisy)
    noisy[2, 0] += 0.1
    assert not blind_to_the_last(noisy)


def test_answers_are_kept_with_the_lens():
    lens = Lens(gpt2())
    assert lens.traits is lens.traits
    assert lens.once("key", lambda: [1]) is lens.once("key", lambda: [2])
    assert not lens.traits.quantised


def test_everything_has_a_short_name():
    lens = Lens(gpt2(), name="tiny")
    stack = lens.stacks[0]
    assert repr(lens) == "Lens('tiny': GPT2LMHeadModel, 4 blocks, width 16, 15 sites)"
    for shown in (
        lens,
        lens.traits,
        lens.inputs,
        lens.limits,
        stack,
        lens.tap("block.0"),
        lens.traits.linear_head,
        lens.watch("block.0", print),
        lens.provenance(),
    ):
        assert len(repr(shown)) < 400
    assert (
        repr(lens.tap("block.3.mlp")) == "Tap(block.3.mlp: output of transformer.h.3.mlp, width 16)"
    )
    assert repr(stack) == "Stack('': 4 blocks of GPT2Block, 14 sites)"
