"""The matrices of a model, wherever they stand."""

import copy

import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from headscan.model.matrices import matrices, share_of_matrices, unrounded
from headscan.model.rounding import round_block, rounded

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts_per_tok": 2,
}


def experts():
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=32))


def transposed_experts():
    return GptOssForCausalLM(GptOssConfig(**SIZES, num_local_experts=4))


def test_experts_that_stand_in_one_parameter_are_rounded():
    for model in (experts(), transposed_experts()):
        block = model.model.layers[0]
        names = {matrix.name for matrix in matrices(block)}
        assert "mlp.experts.gate_up_proj" in names
        assert not any("bias" in name for name in names)
        assert share_of_matrices([block]) > 0.95
        before = copy.deepcopy(block.state_dict())
        round_block(block, "q4_0")
        for matrix in matrices(block):
            old = before[matrix.name]
            assert not torch.equal(matrix.weight, old)
            expert = (matrix.weight[2], old[2]) if old.ndim == 3 else (matrix.weight, old)
            new, plain = (tensor.mT if matrix.transposed else tensor for tensor in expert)
            assert torch.equal(new, rounded(plain.contiguous(), "Q4_0").weights)


def test_matrices_are_those_that_states_are_multiplied_by():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=1, n_head=4))
    by_name = {matrix.name: matrix for matrix in matrices(model.transformer.h[0])}
    assert by_name["attn.c_attn.weight"].transposed
    assert by_name["attn.c_attn.weight"].rows.shape == (96, 32)
    assert len(by_name) == 4
    assert not list(matrices(nn.Conv1d(32, 32, 4)))


def test_a_model_says_which_matrices_stay_unrounded():
    model = experts()
    for matrix in matrices(model):
        if matrix.name.endswith("weight"):
            matrix.weight.requires_grad_(False)
            matrix.weight.data = matrix.weight.data.to(torch.int8)
    [sentence] = unrounded(model, "8bit")
    assert "are not rounded to 8bit" in sentence
    for name, weight in model.named_parameters():
        if "experts" in name:
            weight.requires_grad_(False)
            weight.data = weight.data.to(torch.int8)
    assert not unrounded(model, "8bit")
