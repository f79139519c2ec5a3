"""Finding a model's tokenizer, if it has one; and a tokenizer for models that read raw bytes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headscan.model.source import Source, find_source, specimens
from headscan.model.weights import describing_files
from headscan.run import BadInput
from headscan.text.prompts import require_tokenizer as require_tokenizer


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
        self, text: str | Sequence[str], add_special_tokens: bool = False, return_offsets_mapping: bool = False,
        **_: Any,
    ) -> dict[str, list[Any]]:  # fmt: skip
        if isinstance(text, str):
            return {key: rows[0] for key, rows in self([text], return_offsets_mapping=return_offsets_mapping).items()}
        ids = [self.encode(row) for row in text]
        result: dict[str, list[Any]] = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
        if return_offsets_mapping:
            result["offset_mapping"] = [
                [(place, place + 1) for place, character in enumerate(row) for _ in self.encode(character)] for row in text
            ]
        return result

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of the bytes; what is not valid UTF-8 becomes the replacement character U+FFFD."""
        return bytes(int(i) for i in ids).decode("utf-8", errors="replace")

    def convert_ids_to_tokens(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> Any:
        """Printable ASCII as itself, every other byte as `<0xNN>`."""
        if isinstance(ids, int):
            return chr(ids) if 0x20 <= ids < 0x7F else f"<0x{ids:02X}>"
        return [self.convert_ids_to_tokens(int(i)) for i in ids]


def load_tokenizer(wanted: Any, source: Source | None = None, trust_remote_code: bool = False) -> Any:
    """The tokenizer that is `wanted`, or else the one of the model's `source`, or None if there is none.

    Args:
        wanted: "bytes", a folder, a .gguf file, a hub id, the name of a specimen, a tokenizer object, or None.

    Raises BadInput: what was asked for by name is not there or cannot be read.
    """
    if wanted is None:
        if source is None or not source.has_tokenizer:
            return None
        try:
            return _read(source, trust_remote_code)
        except BadInput:
            if source.folder is not None:
                raise
            return None  # whether a hub model has a tokenizer is found out by asking for it
    if not isinstance(wanted, str | Path):
        return wanted
    if str(wanted) == "bytes":
        return ByteTokenizer()
    folder = Path(wanted).expanduser()
    if str(wanted) in specimens() or not folder.is_dir():
        return _read(find_source(str(wanted)), trust_remote_code)
    source = Source(str(wanted), folder.resolve().name, folder, None)  # a tokenizer may live in a folder without a model
    if not source.has_tokenizer:
        raise BadInput(f"The folder '{wanted}' has no tokenizer.")
    describing_files(folder)  # refuses links that lead out of it
    return _read(source, trust_remote_code)


def _read(source: Source, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        return source.read(AutoTokenizer, trust_remote_code)
    except BaseException as error:  # the tokenizers library raises bare Exception on damaged files, or panics
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = " ".join(str(error).split())[:200]
        raise BadInput(f"The tokenizer of '{source.name}' cannot be read: {text}.") from error
