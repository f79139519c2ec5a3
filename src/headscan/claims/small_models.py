"""Small models for claims about large ones: untrained, or trained for a minute on a made-up language."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headscan.model import Lens

__all__ = ["VOCABULARY", "language", "prompts", "small"]

VOCABULARY = 256
LENGTH = 6


def language(seed: int, rows: int, length: int) -> Tensor:
    """Texts [rows, length] of a language in which each token allows 8 others, some far more often."""
    table = torch.Generator().manual_seed(12_345)
    followers = torch.stack([torch.randperm(VOCABULARY, generator=table)[:8] for _ in range(VOCABULARY)])
    odds = 1.0 / torch.arange(1, 9)
    generator = torch.Generator().manual_seed(seed)
    token = torch.randint(VOCABULARY, (rows,), generator=generator)
    found = [token]
    for _ in range(length - 1):
        pick = torch.multinomial(odds.expand(rows, -1), 1, generator=generator)[:, 0]
        found.append(token := followers[found[-1], pick])
    return torch.stack(found, 1)


def prompts(seed: int, count: int = 4) -> Tensor:
    """Texts of the language that are looked for: [count, 6]."""
    return language(seed + 1_000_000, count, LENGTH)


@lru_cache(maxsize=16)
def small(width: int = 64, blocks: int = 2, steps: int = 0, seed: int = 0) -> Lens:
    """A Llama of that width and depth; with `steps`, trained on the language for so many steps of 32 texts."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=blocks,
            num_attention_heads=4, max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        model: Any = LlamaForCausalLM(config)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(steps):
            ids = language(seed * 100_000 + step, 32, 16)
            loss = model(input_ids=ids, labels=ids).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return Lens(model.eval().requires_grad_(False), name=f"llama {blocks} x {width}, {steps} steps")
