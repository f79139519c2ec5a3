from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from headscan import BadInput, Lens
from headscan.measures.attention import attention_drift, even_weight, sink_numbers, watched


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4)).eval()


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=32,
        )
    ).eval()  # fmt: skip


def bert():
    torch.manual_seed(0)
    return BertModel(
        BertConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
    ).eval()


@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_entropy_and_first_share_are_those_of_the_model_s_own_weights(make):
    """Against the attention weights that the eager implementation returns."""
    model, ids = make(), torch.randint(0, 40, (3, 12), generator=torch.Generator().manual_seed(1))
    rows = attention_drift(Lens(model), ids.split(2))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    causal = make is not bert
    for row in rows:
        layer, head = int(row["site"].split(".")[1]), row["head"]
        a = weights[layer][:, head].double()
        entropy = -(a * a.clamp(min=1e-300).log()).sum(-1)
        assert row["attention_entropy"] == pytest.approx(entropy.mean().item(), abs=1e-4)
        visible = torch.arange(1, 13).expand(3, 12) if causal else torch.full((3, 12), 12)
        several = visible > 1
        assert row["first_share"] == pytest.approx(a[..., 0][several].mean().item(), abs=1e-4)
        assert row["sharpness"] == pytest.approx((1 - entropy / visible.log())[several].mean().item(), abs=1e-4)
    assert len(rows) == 8


def test_queries_and_keys_are_gpt2_s_own():
    model, ids = gpt2(), torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(1))
    kept = {}
    handle = model.transformer.h[1].attn.c_attn.register_forward_hook(lambda m, i, o: kept.update(qkv=o.detach()))
    rows = attention_drift(Lens(model), [ids])
    handle.remove()
    q, k, _ = kept["qkv"].double().split(16, dim=-1)
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        qs, ks = q[..., part].reshape(-1, 4).numpy(), k[..., part].reshape(-1, 4).numpy()
        row = rows[4 + head]
        assert row["query_drift"] == pytest.approx(
            np.linalg.norm(qs.mean(0)) / np.linalg.norm(qs, axis=1).mean(), abs=1e-5
        )
        cosine = qs.mean(0) @ ks.mean(0) / np.linalg.norm(qs.mean(0)) / np.linalg.norm(ks.mean(0))
        assert row["drift_cosine"] == pytest.approx(cosine, abs=1e-4)


def test_the_model_is_left_as_it_was():
    model, ids = gpt2(), torch.arange(8)[None]
    before, kind = model(ids).logits, model.config._attn_implementation
    attention_drift(Lens(model), [ids])
    assert model.config._attn_implementation == kind
    assert torch.equal(model(ids).logits, before)


def test_a_model_without_attention_says_so():
    from transformers import RwkvConfig, RwkvForCausalLM

    lens = Lens(RwkvForCausalLM(RwkvConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, context_length=16)))
    with pytest.raises(BadInput, match="attention"):
        attention_drift(lens, [torch.arange(5)[None]])


@pytest.mark.parametrize("far", [0.0, 30.0])
def test_sink_rates_are_those_of_the_model_s_own_weights(far):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4)).eval()
    with torch.no_grad():  # queries and keys that agree at position 0
        model.transformer.wpe.weight[0] += far * torch.randn(16)
        model.transformer.h[0].attn.c_attn.weight *= 4
    ids = torch.randint(0, 40, (6, 20))
    whole, _ = watched(Lens(model), ids.split(2))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    for layer, tally in whole.items():
        a = weights[layer].double().mean(0)  # [H, T, T]
        alpha = np.array([[a[h, k:, k].mean() for k in range(20)] for h in range(4)])
        found = sink_numbers(tally)
        assert found["sink_rate"] == (alpha[:, 0] > 0.3).mean()
        assert found["sink_weight"] == pytest.approx(alpha[:, 0].mean(), abs=1e-5)
        assert found["elsewhere"] == (alpha[:, 1:10] > 0.3).any(1).mean()


def test_a_model_of_random_weights_has_the_weight_of_even_attention():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=64, n_embd=16, n_layer=1, n_head=4)).eval()
    whole, _ = watched(Lens(model), [torch.randint(0, 40, (4, 64))])
    assert sink_numbers(whole[0])["sink_weight"] == pytest.approx(even_weight(64, True), rel=0.05)
