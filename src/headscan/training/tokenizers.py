"""Fitting a tokenizer: byte-level BPE, so that no text is ever unknown to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headscan.run import BadInput
from headscan.text import Document

__all__ = ["END", "fit_tokenizer"]

END = "<|endoftext|>"
MASK, PAD = "<|mask|>", "<|pad|>"
LEAST = 256 + 3  # every byte and the special tokens


def fit_tokenizer(
    texts: Iterable[str | Document], vocabulary: int, *, masked: bool = False, context: int | None = None
) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `vocabulary` tokens, fitted on texts (strings or documents), in their order.

    Token 0 is <|endoftext|>, which joins documents; with `masked` there are <|mask|> and <|pad|> too. A text too short
    for so many merges gives fewer tokens: `len(tokenizer)` tells how many. Deterministic: same texts, same tokens.
    Raises BadInput below 259 tokens, which could not hold all bytes.

    >>> tokenizer = fit_tokenizer(["the cat sat on the mat"] * 3, 300)
    >>> tokenizer.decode(tokenizer.encode("the café")), tokenizer.eos_token_id
    ('the café', 0)
    """
    if vocabulary < LEAST:
        raise BadInput(f"A byte-level vocabulary needs at least {LEAST} tokens, not {vocabulary}.")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = [END, MASK, PAD] if masked else [END]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_strings(texts), trainer)
    names = {"bos_token": END, "eos_token": END}
    names |= {"mask_token": MASK, "pad_token": PAD} if masked else {"pad_token": END}
    length = {} if context is None else {"model_max_length": context}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, clean_up_tokenization_spaces=False, **names, **length)


def _strings(texts: Iterable[str | Document]) -> Iterator[str]:
    for text in texts:
        if isinstance(text, str):
            yield text
        else:
            yield from text
