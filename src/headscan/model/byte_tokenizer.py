"""A tokenizer for models that read raw bytes and so ship none: the ids are the text's UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["ByteTokenizer"]


class ByteTokenizer:
    """UTF-8 bytes as token ids 0...255, with the part of the Hugging Face tokenizer protocol that headscan uses.

    There are no special tokens (`eos_token_id` is None), so documents are joined without a separator.

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("é!")
    [195, 169, 33]
    >>> tokenizer.decode([195, 169, 33])
    'é!'
    >>> tokenizer.convert_ids_to_tokens([195, 33, 10])
    ['<0xC3>', '!', '<0x0A>']
    """

    is_fast = True
    splits_anywhere = True  # a text may be cut between any two characters: headscan.text then holds no document whole
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
        """The UTF-8 bytes of `text`; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", errors="replace"))

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool = False,
        return_offsets_mapping: bool = False,
        **_: Any,
    ) -> dict[str, list[Any]]:
        """`input_ids`, `attention_mask` and, if asked, `offset_mapping`: for every byte the (start, end) of its character."""
        if isinstance(text, str):
            return {key: rows[0] for key, rows in self([text], return_offsets_mapping=return_offsets_mapping).items()}
        ids = [self.encode(one) for one in text]
        result: dict[str, list[Any]] = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
        if return_offsets_mapping:
            result["offset_mapping"] = [_offsets(one) for one in text]
        return result

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of the bytes; what is not valid UTF-8 becomes the replacement character U+FFFD."""
        return bytes(int(i) for i in ids).decode("utf-8", errors="replace")

    def convert_ids_to_tokens(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> Any:
        """Printable ASCII as itself, every other byte as `<0xNN>`."""
        if isinstance(ids, int):
            return _token(ids)
        return [_token(int(i)) for i in ids]


def _token(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>"


def _offsets(text: str) -> list[tuple[int, int]]:
    offsets = []
    for index, character in enumerate(text):
        offsets += [(index, index + 1)] * len(character.encode("utf-8", errors="replace"))
    return offsets
