"""Small models that stand for large ones in the claims on inversion, and what a descent and a search find in them.

A GPT-2 and a Llama with random weights (d = 256, V = 2,048), and a trained model: `stories260K` in the folder
`HEADSCAN_ASSETS`, else the first of the embedded specimens. Every share is one of tokens.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from headscan.inversion import Descended, Descent, Search, descend, exact, preset
from headscan.model.embedded import specimens
from headscan.model.lens import Lens
from headscan.model.slicing import Slice

__all__ = ["NoTrainedModel", "Numbers", "gradient", "lens_of", "prompts", "right", "searched"]

Numbers: TypeAlias = dict[str, float]
"""What an experiment measured, by name: shares of tokens, distances, yes (1) and no (0)."""

TOKENS, PROMPTS = 6, 3
STEPS = 200


class NoTrainedModel(Exception):
    """No trained model is at hand."""


@cache
def lens_of(kind: str, seed: int = 0, width: int = 256, depth: int = 3) -> Lens:
    """The model of a kind: "gpt2" and "llama" random, "trained" from a file."""
    if kind == "trained":
        return _trained()
    torch.manual_seed(seed)
    if kind == "gpt2":
        sizes: dict[str, Any] = {"n_embd": width, "n_layer": depth, "n_head": 4, "n_positions": 64}
        return Lens(GPT2LMHeadModel(GPT2Config(vocab_size=2048, bos_token_id=0, eos_token_id=0, **sizes)), name="gpt2")
    config = LlamaConfig(
        vocab_size=2048, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=depth, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    return Lens(LlamaForCausalLM(config), name="llama")


def _trained() -> Lens:
    folder = os.environ.get("HEADSCAN_ASSETS", str(Path(__file__).resolve().parents[4] / "shared" / "assets"))
    path = Path(folder) / "models" / "stories260K"
    if path.is_dir():
        return Lens.load(str(path))
    if specimens():
        return Lens.load(specimens()[0])
    raise NoTrainedModel


def prompts(lens: Lens, seed: int, count: int = PROMPTS, length: int = TOKENS) -> Tensor:
    """Ids that the model itself would write (trained), or random ones."""
    generator = torch.Generator().manual_seed(seed + 100)
    ids = torch.randint(0, lens.vocabulary_size, (count, 1), generator=generator)
    if lens.tokenizer is None:
        return torch.randint(0, lens.vocabulary_size, (count, length), generator=generator)
    with torch.no_grad():
        for _ in range(length - 1):
            logits = lens.run(ids, sites="head")["head"][:, -1].float()
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
    return ids


def right(found: Descended | Tensor, ids: Tensor) -> float:
    """The share of tokens recovered."""
    tokens = found.tokens if isinstance(found, Descended) else found
    return round(float((tokens == ids).float().mean()), 3)


def gradient(
    kind: str, seed: int, cut: Slice | None = None, setting: Descent | None = None, *, allowed: Tensor | None = None
) -> float:
    """Accuracy of a descent on a slice of a model."""
    lens = lens_of(kind)
    ready = (cut or Slice()).on(lens)
    ids = prompts(lens, seed)
    return right(descend(ready, ready.run(ids), TOKENS, setting or preset("seed", steps=STEPS), allowed=allowed), ids)


def searched(kind: str, seed: int, cut: Slice | None = None) -> float:
    """Accuracy of the exact search on a slice of a model."""
    lens = lens_of(kind)
    ready = (cut or Slice()).on(lens)
    ids = prompts(lens, seed)
    return right(torch.tensor([one.tokens for one in exact(ready, list(ready.run(ids)), Search())]), ids)
