"""The small models that are examined in place of a claim's own, each by its kind and a seed; none needs a file from outside.

- `specimen`: gpt-vanilla, trained on stories, shipped inside the package (128 wide, 5 blocks, V = 4,096); one model, whatever
  the seed, so only prompts and starts differ.
- `taught`, `headless`: Llamas trained here for a minute on a made-up language, one a seed, with a head or by contrastive
  weight tying.
- `gpt2`, `llama`: random weights, one a seed.

Any other kind is a trained model itself, by its name or folder: what is said of trained models in general is tried on it, too.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from headscan.claims.protocol import StandIn
from headscan.model import Lens
from headscan.text import documents
from headscan.text.tokens import tokenise
from headscan.training import cwt_loss

__all__ = ["ABOUT", "ModelKind", "about", "language", "lens_of", "prompts"]

ModelKind: TypeAlias = Literal["specimen", "taught", "headless", "gpt2", "llama"]
SPECIMEN = "gpt-vanilla"
VOCABULARY, FRESH = 256, 512
TAUGHT_STEPS = 200

ABOUT: dict[str, StandIn] = {
    "specimen": StandIn(
        f"{SPECIMEN}: GPT-2's architecture, 128 wide, 5 blocks, V = 4,096, trained on stories",
        "It is a trained causal transformer of the same architecture; width, depth and vocabulary are smaller.",
    ),
    "taught": StandIn(
        f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here on a made-up language",
        "Training is repeated with every seed, and V is small enough to try every token; the language is a Markov chain.",
    ),
    "headless": StandIn(
        f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here without a head on a made-up language",
        "The same training as its pair with a head, but for the objective.",
    ),
    "gpt2": StandIn(
        f"one GPT-2 with random weights a seed, 64 wide, 3 blocks, V = {FRESH:,}",
        "Random weights need no training; width, depth and vocabulary are smaller.",
    ),
    "llama": StandIn(
        f"one Llama with random weights a seed, 64 wide, 3 blocks, V = {FRESH:,}",
        "Random weights need no training; width, depth and vocabulary are smaller.",
    ),
}


def about(kind: str, width: int = 64, depth: int = 3) -> StandIn:
    """Which model that is, and why it may stand in."""
    if kind not in ABOUT:
        return StandIn(
            lens_of(kind).name, "It is a trained model, as the claim is about; its own size, text and training."
        )
    found = ABOUT[kind]
    if kind not in ("gpt2", "llama"):
        return found
    return StandIn(found.name.replace("64 wide, 3 blocks", f"{width} wide, {depth} blocks"), found.why)


def lens_of(kind: str, seed: int = 0, width: int = 64, depth: int = 3) -> Lens:
    """The model of a kind and seed; the same object when asked again. Of the models that are given one is held at a time."""
    if kind == "specimen":
        return _specimen()
    return _made(kind, seed, width, depth) if kind in ABOUT else _given(kind)


@lru_cache(maxsize=24)
def _made(kind: str, seed: int, width: int, depth: int) -> Lens:
    if kind in ("taught", "headless"):
        return _taught(seed, headless=kind == "headless")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "gpt2":
            small = GPT2Config(
                vocab_size=FRESH, n_embd=width, n_layer=depth, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0
            )
            return Lens(GPT2LMHeadModel(small), name=f"gpt2 {depth} x {width}, random weights {seed}")
        return Lens(
            LlamaForCausalLM(_llama(FRESH, width, depth)), name=f"llama {depth} x {width}, random weights {seed}"
        )


@cache
def _specimen() -> Lens:
    return Lens.load(SPECIMEN)


@lru_cache(maxsize=1)  # it may be large
def _given(name: str) -> Lens:
    return Lens.load(name)


def _llama(vocabulary: int, width: int, depth: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=depth,
        num_attention_heads=4, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def _taught(seed: int, *, headless: bool) -> Lens:
    """Next-token training on the language, 32 texts of 12 tokens a step, with a head or against the input embeddings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_llama(VOCABULARY, 64, 3))
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(TAUGHT_STEPS):
            ids = language(seed * 100_000 + step, 32, 12)
            hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = ids[:, 1:].flatten()
            if headless:
                loss = cwt_loss(hidden, model.model.embed_tokens.weight, targets)
            else:
                loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    words = "without a head" if headless else "with a head"
    return Lens(model.eval().requires_grad_(False), name=f"llama 3 x 64, trained {words}, seed {seed}")


def language(seed: int, rows: int, length: int) -> Tensor:
    """Texts [rows, length] of a language in which each token allows 8 others, some far more often."""
    table = torch.Generator().manual_seed(12_345)
    followers = torch.stack([torch.randperm(VOCABULARY, generator=table)[:8] for _ in range(VOCABULARY)])
    odds = 1.0 / torch.arange(1, 9)
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randint(VOCABULARY, (rows,), generator=generator)]
    for _ in range(length - 1):
        pick = torch.multinomial(odds.expand(rows, -1), 1, generator=generator)[:, 0]
        found.append(followers[found[-1], pick])
    return torch.stack(found, 1)


@lru_cache(maxsize=2)
def _stories(kind: str) -> Tensor:
    """The shipped stories as ids of the specimen, or of a model."""
    tokenizer = lens_of(kind).tokenizer
    parts = [torch.as_tensor(one.ids, dtype=torch.int64) for one in tokenise(documents("stories"), tokenizer)]
    return torch.cat(parts)


def prompts(kind: str, seed: int, count: int, length: int) -> Tensor:
    """Ids [count, length]: pieces of the stories, texts of the language, or random ids, as the model's kind is."""
    if kind in ("taught", "headless"):
        return language(seed + 50_000_000, count, length)
    generator = torch.Generator().manual_seed(seed)
    if kind == "specimen" or kind not in ABOUT:
        starts = torch.randint(len(_stories(kind)) - length, (count, 1), generator=generator)
        return _stories(kind)[starts + torch.arange(length)]
    return torch.randint(FRESH, (count, length), generator=generator)
