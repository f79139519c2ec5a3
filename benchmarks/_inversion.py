"""Helpers of the benchmarks of inversion: models with random weights, and prompts from
TinyStories.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from headscan.model import Lens

ASSETS = Path(
    os.environ.get("HEADSCAN_ASSETS", Path(__file__).resolve().parents[2] / "shared" / "assets")
)


@cache
def story() -> str:
    """The first 400,000 characters of TinyStories."""
    path = ASSETS / "text" / "tinystories" / "tinystories_2MiB.txt"
    if not path.is_file():
        sys.exit(f"this benchmark needs {path}")
    return path.read_text(encoding="utf-8")[:400_000]


@cache
def tokenizer(size: int):
    """A byte-level BPE of `size` tokens, trained on the same text: random models have none of their
    own.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [story()],
        trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=10**9)


def random_model(
    kind: str,
    vocabulary: int = 4096,
    width: int = 256,
    depth: int = 4,
    heads: int = 4,
    seed: int = 0,
) -> Lens:
    """A GPT-2 or a Llama with random weights."""
    torch.manual_seed(seed)
    model: PreTrainedModel
    if kind == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=256,
                n_embd=width,
                n_layer=depth,
                n_head=heads,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                intermediate_size=4 * width,
                num_hidden_layers=depth,
                num_attention_heads=heads,
                max_position_embeddings=256,
            )
        )
    return Lens(model, tokenizer(vocabulary) if vocabulary <= 8192 else None, name=kind)


def prompts_of(lens: Lens, count: int, length: int, seed: int = 1) -> torch.Tensor:
    """Windows of the story, [count, length], at random places; random ids for a model without
    tokenizer.
    """
    generator = torch.Generator().manual_seed(seed)
    if lens.tokenizer is None:
        return torch.randint(0, lens.vocabulary_size, (count, length), generator=generator)
    ids = torch.tensor(lens.tokenizer(story(), add_special_tokens=False)["input_ids"])
    starts = torch.randint(0, len(ids) - length, (count,), generator=generator)
    return torch.stack([ids[int(start) : int(start) + length] for start in starts])
