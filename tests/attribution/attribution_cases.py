"""Tiny models and prompts that the tests of attribution share."""

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from headscan.model import Lens

WIPERS = "The wipers on the bus go swish swish"
IDS = [5, 17, 3, 42, 8, 17, 29, 11, 50, 2, 31, 7]


def build(family, seed=0):
    torch.manual_seed(seed)
    if family == "gpt2":
        config = GPT2Config(
            vocab_size=60, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3
        )
        return Lens(GPT2LMHeadModel(config).eval(), name="tiny gpt2")
    if family == "bert":
        config = BertConfig(
            vocab_size=60,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
        return Lens(BertForMaskedLM(config).eval(), name="tiny bert")
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return Lens(LlamaForCausalLM(config).eval(), name="tiny llama")


def family(name):
    """A tiny causal model of one of transformers' families, on 60 tokens."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    small = {
        "vocab_size": 60,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    special = {
        "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16, "init_std": 0.3},
        "bloom": {"n_layer": 2, "n_head": 4},
        "mistral": {"sliding_window": 4, "num_key_value_heads": 2},
        "gemma2": {
            "num_key_value_heads": 2,
            "head_dim": 4,
            "sliding_window": 64,
            "attn_logit_softcapping": 1.0,
        },
        "qwen3": {"num_key_value_heads": 2, "head_dim": 4},
        "rwkv": {"attention_hidden_size": 16},
    }
    config = AutoConfig.for_model(name, **(small | special.get(name, {})))
    return Lens(AutoModelForCausalLM.from_config(config).eval(), name=f"tiny {name}")
