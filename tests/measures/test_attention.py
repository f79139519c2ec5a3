import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from headscan import BadInput, Lens
from headscan.measures.attention import attention_drift


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4)
    ).eval()


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
        )
    ).eval()


def bert():
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    ).eval()


@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_entropy_and_first_share_are_those_of_the_model_s_own_weights(make):
    """Against the attention weights that the eager implementation returns."""
    model = make()
    ids = torch.randint(0, 40, (3, 12), generator=torch.Generator().manual_seed(1))
    rows = attention_drift(Lens(model), ids.split(2))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    causal = make is not bert
    for row in rows:
        layer = int(row["site"].split(".")[1])
        head = row["head"]
        a = weights[layer][:, head].double()
        entropy = -(a * a.clamp(min=1e-300).log()).sum(-1)
        assert row["attention_entropy"] == pytest.approx(entropy.mean().item(), abs=1e-4)
        visible = torch.arange(1, 13).expand(3, 12) if causal else torch.full((3, 12), 12)
        several = visible > 1
        assert row["first_share"] == pytest.approx(a[..., 0][several].mean().item(), abs=1e-4)
        assert row["sharpness"] == pytest.approx(
            (1 - entropy / visible.log())[several].mean().item(), abs=1e-4
        )
    assert len(rows) == 8


def test_queries_and_keys_are_gpt2_s_own():
    model = gpt2()
    ids = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(1))
    outputs = {}
    handle = model.transformer.h[1].attn.c_attn.register_forward_hook(
        lambda m, i, o: outputs.update(qkv=o.detach())
    )
    rows = attention_drift(Lens(model), [ids])
    handle.remove()
    q, k, _ = outputs["qkv"].double().split(16, dim=-1)
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        qs = q[..., part].reshape(-1, 4).numpy()
        ks = k[..., part].reshape(-1, 4).numpy()
        row = rows[4 + head]
        assert row["query_drift"] == pytest.approx(
            np.linalg.norm(qs.mean(0)) / np.linalg.norm(qs, axis=1).mean(), abs=1e-5
        )
        query = qs.mean(0)
        key = ks.mean(0)
        cosine = query @ key / np.linalg.norm(query) / np.linalg.norm(key)
        assert row["drift_cosine"] == pytest.approx(cosine, abs=1e-4)


def test_the_model_is_left_as_it_was():
    model = gpt2()
    ids = torch.arange(8)[None]
    logits = model(ids).logits
    kind = model.config._attn_implementation
    attention_drift(Lens(model), [ids])
    assert model.config._attn_implementation == kind
    assert torch.equal(model(ids).logits, logits)


def test_a_model_without_attention_says_so():
    from transformers import RwkvConfig, RwkvForCausalLM

    lens = Lens(
        RwkvForCausalLM(
            RwkvConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, context_length=16)
        )
    )
    with pytest.raises(BadInput, match="attention"):
        attention_drift(lens, [torch.arange(5)[None]])
