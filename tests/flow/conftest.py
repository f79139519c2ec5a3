"""The small model that tests of flow read."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.model import Lens


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    return Lens(LlamaForCausalLM(config).eval(), name="tiny llama")
