"""A model of two blocks and 280 tokens in a folder, for tests that run verbs several times."""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig

from headscan.training.recipes import fit_tokenizer
from tests.attack.kills import story

TEXTS = story(1).split("\n\n")[:60]


def save_tiny(folder: Path, seed: int = 0, blocks: int = 2) -> Path:
    """Save a random GPT-2 and its tokenizer; models of two seeds differ in their weights only."""
    tokenizer = fit_tokenizer(TEXTS, 280, context=32)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=32,
        n_embd=16,
        n_layer=blocks,
        n_head=2,
        bos_token_id=0,
    )
    torch.manual_seed(seed)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def two_blocks(vocabulary: int, context: int) -> GPTNeoXConfig:
    """Return the architecture of a recipe for tests that train several times."""
    return GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=0,
    )
