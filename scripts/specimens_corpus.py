"""The text behind the specimens: stories, their split, the tokenizer fitted on them, and batches of
tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"


def read_stories(path: Path) -> list[str]:
    """The stories of a text, each ended by `<|endoftext|>`. What follows the last mark was cut off
    and is dropped.
    """
    stories = path.read_text(encoding="utf-8").split(END)[:-1]
    return [story.strip() for story in stories if story.strip()]


def split_stories(
    stories: list[str], seed: int, held_out: float = 0.05
) -> tuple[list[str], list[str]]:
    """(training, held-out) stories: a seeded draw, so that neighbours in the file fall on both
    sides alike.
    """
    order = list(range(len(stories)))
    random.Random(seed).shuffle(order)
    cut = round(len(stories) * held_out)
    return [stories[i] for i in order[cut:]], [stories[i] for i in order[:cut]]


def fit_tokenizer(stories: list[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `vocabulary` tokens, fitted on the training stories alone;
    `<|endoftext|>` is token 0.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        stories,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[END],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        unk_token=END,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True)
class Corpus:
    """Two streams of token ids (every story followed by `<|endoftext|>`) and what is needed to
    count in bytes.
    """

    tokenizer: PreTrainedTokenizerFast
    train_stories: list[str]
    train: np.ndarray  # int64 [n]
    held_out: np.ndarray  # int64 [m]
    held_out_bytes: int  # UTF-8 bytes of the held-out stories, end marks not counted

    @property
    def log_unigram(self) -> torch.Tensor:
        """Log of the tokens' frequencies in the training stream, float32 [V]; half a count for
        tokens never seen.
        """
        counts = np.bincount(self.train, minlength=len(self.tokenizer)).astype(np.float64)
        counts = np.maximum(counts, 0.5)
        return torch.from_numpy(np.log(counts / counts.sum()).astype(np.float32))


def load_corpus(path: Path, vocabulary: int, context: int, seed: int) -> Corpus:
    """Read, split, fit the tokenizer and encode."""
    train, held_out = split_stories(read_stories(path), seed)
    tokenizer = fit_tokenizer(train, vocabulary, context)

    def stream(stories: list[str]) -> np.ndarray:
        rows = tokenizer.backend_tokenizer.encode_batch(stories)
        return np.concatenate(
            [np.array([*row.ids, tokenizer.eos_token_id], dtype=np.int64) for row in rows]
        )

    held_out_bytes = sum(len(story.encode()) for story in held_out)
    return Corpus(tokenizer, train, stream(train), stream(held_out), held_out_bytes)


def batch_at(stream: np.ndarray, step: int, rows: int, context: int, seed: int) -> torch.Tensor:
    """Batch number `step`, int64 [rows, context + 1]: a function of its arguments alone, so a run
    resumes anywhere.

    Each pass over the text cuts the stream into windows at another offset and shuffles them; no
    token is seen twice in a pass.
    """
    windows = (len(stream) - 1 - context) // context
    batches = windows // rows
    epoch, batch = divmod(step, batches)
    draw = np.random.default_rng([seed, epoch])
    offset = int(draw.integers(context))
    rows_drawn = draw.permutation(windows)[batch * rows : (batch + 1) * rows]
    return torch.from_numpy(
        np.stack([stream[offset + w * context :][: context + 1] for w in rows_drawn])
    )
