"""Tokenizers: UTF-8 bytes as tokens, and loading the one of a model or of another place."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headscan.model.available import specimens
from headscan.model.finding import find_source
from headscan.model.source import Source
from headscan.model.weights import describing_files
from headscan.run import BadInput

LONGEST_MESSAGE = 200
MOST_GROWTH = 64.0
"""A normaliser that makes texts longer by more than this factor is refused."""


class ByteTokenizer:
    """UTF-8 bytes as token ids 0...255, with the protocol of Hugging Face that headscan uses.

    There are no special tokens (`eos_token_id` is None), so documents are joined without a
    separator.

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("é!")
    [195, 169, 33]
    >>> tokenizer.decode([195, 169, 33])
    'é!'
    >>> tokenizer.convert_ids_to_tokens([195, 33, 10])
    ['<0xC3>', '!', '<0x0A>']
    """

    is_fast = True
    # A text may be cut between any two characters: headscan.text then holds no document whole.
    splits_anywhere = True
    eos_token_id: int | None = None
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    all_special_ids: tuple[int, ...] = ()
    vocab_size = 256
    model_max_length = 10**30
    name_or_path = "bytes"

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """Return the UTF-8 bytes of `text`; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", errors="replace"))

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool = False,
        return_offsets_mapping: bool = False,
        **_: Any,
    ) -> dict[str, list[Any]]:
        """Return the ids of a text, or of each of several, as a tokenizer of transformers does."""
        if isinstance(text, str):
            batch = self([text], return_offsets_mapping=return_offsets_mapping)
            return {key: rows[0] for key, rows in batch.items()}
        ids = [self.encode(row) for row in text]
        result: dict[str, list[Any]] = {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
        }
        if return_offsets_mapping:
            result["offset_mapping"] = [self._offsets(row) for row in text]
        return result

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the characters of each byte, as (first, last + 1)."""
        offsets = []
        for index, character in enumerate(text):
            offsets += [(index, index + 1)] * len(self.encode(character))
        return offsets

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """Return the text of bytes; what is not valid UTF-8 becomes the character U+FFFD."""
        return bytes(int(token) for token in ids).decode("utf-8", errors="replace")

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> Any:
        """Return printable ASCII as itself, every other byte as `<0xNN>`."""
        if isinstance(ids, int):
            return chr(ids) if 0x20 <= ids < 0x7F else f"<0x{ids:02X}>"
        return [self.convert_ids_to_tokens(int(token)) for token in ids]


def load_tokenizer(
    tokenizer: Any, source: Source | None = None, trust_remote_code: bool = False
) -> Any:
    """Return the tokenizer that a user named, or else the one of the model's `source`.

    None: none was named, and the model has none.

    Args:
        tokenizer: "bytes", a folder, a .gguf file, a hub id, the name of an embedded model, a
            tokenizer object, or None.

    Raises:
        BadInput: where what was named is not there or cannot be read.
    """
    if tokenizer is None:
        return _tokenizer_of_model(source, trust_remote_code)
    if not isinstance(tokenizer, str | Path):
        return tokenizer
    name = str(tokenizer)
    if name == "bytes":
        return ByteTokenizer()
    folder = Path(tokenizer).expanduser()
    if name in specimens() or not folder.is_dir():
        return _read(find_source(name), trust_remote_code)
    # A tokenizer may be in a folder without a model.
    tokenizer_source = Source(name, folder.resolve().name, folder, None)
    if not tokenizer_source.has_tokenizer:
        raise BadInput(f"The folder '{name}' has no tokenizer.")
    describing_files(folder)  # refuses links that lead out of it
    return _read(tokenizer_source, trust_remote_code)


def _tokenizer_of_model(source: Source | None, trust_remote_code: bool) -> Any:
    if source is None or not source.has_tokenizer:
        return None
    try:
        return _read(source, trust_remote_code)
    except BadInput:
        if source.folder is not None:
            raise
        return None  # only reading shows whether a hub model has a tokenizer


def _read(source: Source, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = source.read(AutoTokenizer, trust_remote_code)
    except BadInput:
        raise
    except BaseException as error:
        # The tokenizers library raises bare Exception on damaged files, or panics.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = " ".join(str(error).split())[:LONGEST_MESSAGE]
        raise BadInput(f"The tokenizer of '{source.name}' cannot be read: {text}.") from error
    check_growth(tokenizer, source.name)
    return tokenizer


def check_growth(tokenizer: Any, name: str) -> None:
    """Raise BadInput for a tokenizer that makes a text many times as long before it splits it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts: list[Any] = [getattr(backend, "normalizer", None), getattr(backend, "decoder", None)]
    for part in parts:
        try:
            rules = json.loads(part.__getstate__())
        except (AttributeError, TypeError, ValueError):
            continue  # there is none, or it has no rules to show
        if _growth(rules) > MOST_GROWTH:
            raise BadInput(
                f"The tokenizer of '{name}' makes a text {_growth(rules):,.0f} times as long: "
                "headscan does not run it."
            )


def _growth(rules: Any) -> float:
    """Return how many times as long as its input a normaliser's or decoder's output may be."""
    if not isinstance(rules, dict):
        return 1.0
    growth = 1.0
    for key in ("normalizers", "decoders"):
        for rule in rules.get(key) or ():
            growth *= _growth(rule)
    if rules.get("type") == "Replace":
        pattern = rules.get("pattern")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        growth *= max(1.0, len(rules.get("content", "")) / max(1, len(replaced or "")))
    if rules.get("type") == "Prepend":  # before each part between special tokens
        growth *= 1.0 + len(rules.get("prepend", ""))
    return growth
