"""Finding a model's tokenizer, if it has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headscan.model.settings import quiet
from headscan.model.source import Source, find_source, specimens
from headscan.model.weights import read_header
from headscan.run import BadInput

# ---- A tokenizer for models that read raw bytes and so ship none: the ids are the text's UTF-8 bytes.


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


FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model",
         "sentencepiece.bpe.model", "tekken.json")  # fmt: skip


def load_tokenizer(wanted: Any, source: Source | None = None, trust_remote_code: bool = False) -> Any:
    """A tokenizer: the one `wanted`, or else the one beside the model, or None if there is none.

    Args:
        wanted: "bytes", a folder, a hub id, the name of a specimen, a tokenizer object, or None.
        source: where the model came from.
        trust_remote_code: as in `Lens.load`.

    Raises:
        BadInput: what was asked for by name is not there or cannot be read.
    """
    if wanted is None:
        return None if source is None else _beside(source, trust_remote_code)
    if not isinstance(wanted, (str, Path)):
        return wanted
    if str(wanted) == "bytes":
        return ByteTokenizer()
    folder = Path(wanted).expanduser()
    if str(wanted) in specimens():
        return _read(find_source(str(wanted), None), trust_remote_code)
    if folder.is_dir():
        # A tokenizer may live in a folder without a model.
        if not _has_files(folder):
            raise BadInput(f"The folder '{wanted}' has no tokenizer.")
        return _read(Source(str(wanted), folder.resolve().name, folder, None), trust_remote_code)
    return _read(find_source(str(wanted), None), trust_remote_code)


def require_tokenizer(tokenizer: Any, name: str) -> Any:
    """The tokenizer, or a BadInput that says there is none."""
    if tokenizer is None:
        raise BadInput(
            f"The model '{name}' comes without a tokenizer: name one (--tokenizer FOLDER or id, or 'bytes' "
            "for a model that reads UTF-8 bytes)."
        )
    return tokenizer


def _beside(source: Source, trust_remote_code: bool) -> Any:
    # Without its files transformers would make up an empty tokenizer from the config alone.
    if source.gguf is not None:
        return _read(source, trust_remote_code) if read_header(source.gguf).tokenizer else None
    if source.folder is not None:
        return _read(source, trust_remote_code) if _has_files(source.folder) else None
    try:
        return _read(source, trust_remote_code)
    except BadInput:
        return None


def _has_files(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILES) or any(folder.glob("*.tiktoken"))


def _read(source: Source, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(
                source.path,
                revision=source.revision,
                trust_remote_code=trust_remote_code,
                local_files_only=source.local_files_only,
                **source.where,
            )
    except Exception as error:  # the tokenizers library raises bare Exception on damaged files
        text = " ".join(str(error).split())[:200]
        raise BadInput(f"The tokenizer of '{source.name}' cannot be read: {text}.") from error
