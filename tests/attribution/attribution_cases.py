"""Tiny models and prompts that the tests of attribution share."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from headscan.model import Lens

WIPERS = "The wipers on the bus go swish swish"
IDS = [5, 17, 3, 42, 8, 17, 29, 11, 50, 2, 31, 7]


def build(family, seed=0):
    torch.manual_seed(seed)
    if family == "gpt2":
        config = GPT2Config(vocab_size=60, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3)
        return Lens(GPT2LMHeadModel(config).eval(), name="tiny gpt2")
    if family == "bert":
        config = BertConfig(
            vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=64, initializer_range=0.3,
        )  # fmt: skip
        return Lens(BertForMaskedLM(config).eval(), name="tiny bert")
    config = LlamaConfig(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3,
    )  # fmt: skip
    return Lens(LlamaForCausalLM(config).eval(), name="tiny llama")
