"""Really rounded weights: 8-bit and 4-bit models by bitsandbytes, and bfloat16, in every method."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscan
from headscan.attribution import METHODS, attribute
from tests.attribution.attribution_cases import IDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
    )
    path = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("way", ["8bit", "4bit", "bfloat16"])
def test_every_method_runs_or_says_why_not(folder, way):
    if way != "bfloat16":
        pytest.importorskip("bitsandbytes")
    unquantised = headscan.Lens.load(folder)
    lens = headscan.Lens.load(folder, dtype=way)
    refused = []
    for method in METHODS:
        options = {"method": method, "token": 9, "faithfulness": method == "occlusion"}
        options |= {"substitute": "mean"} if METHODS[method].substitutes else {}
        exact = np.array(attribute(unquantised, IDS, **options).scores)
        try:
            scores = np.array(attribute(lens, IDS, **options).scores)
        except headscan.BadInput as error:
            refused.append((method, "No gradient comes through" in str(error)))
            continue
        assert np.isfinite(scores).all()
        assert np.corrcoef(exact, scores)[0, 1] > (0.85 if way == "4bit" else 0.99), method
    # On a CPU, the kernels for 4 bits have no backward pass; 8 bits and bfloat16 have.
    without = [
        (method, True) for method in ("gradient-x-input", "integrated-gradients", "combined")
    ]
    assert refused in ([], without if way == "4bit" else [])


def test_a_staircase_is_not_cut_for_ever(folder):
    pytest.importorskip("bitsandbytes")
    lens = headscan.Lens.load(folder, dtype="8bit")
    result = attribute(
        lens, IDS, method="integrated-gradients", substitute="mean", token=9, faithfulness=False
    )
    assert result.document["maps"][0]["completeness"]["evaluations"] < 1500
