"""Small models with random weights, one a family."""

import pytest
import torch
import transformers

from headscan.model import Lens


def build(kind, vocabulary=120, width=32, depth=2, seed=0):
    torch.manual_seed(seed)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_positions=32,
            n_embd=width,
            n_layer=depth,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        return Lens(transformers.GPT2LMHeadModel(config), name=kind)
    sizes = {"vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": depth}
    if kind == "rwkv":
        return Lens(transformers.RwkvForCausalLM(transformers.RwkvConfig(**sizes)), name=kind)
    sizes |= {
        "intermediate_size": 2 * width,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    }
    if kind == "llama":
        return Lens(transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), name=kind)
    return Lens(transformers.BertModel(transformers.BertConfig(**sizes)), name=kind)


@pytest.fixture(scope="session")
def gpt2():
    return build("gpt2")


@pytest.fixture(scope="session")
def llama():
    return build("llama")


@pytest.fixture(scope="session")
def bert():
    return build("bert")


@pytest.fixture(scope="session")
def rwkv():
    return build("rwkv")


@pytest.fixture
def ids():
    return torch.randint(0, 120, (4, 6), generator=torch.Generator().manual_seed(5))
