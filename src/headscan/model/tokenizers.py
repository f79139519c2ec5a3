"""Finding a model's tokenizer, if it has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscan.model.byte_tokenizer import ByteTokenizer
from headscan.model.embedded import specimens
from headscan.model.gguf import read_header
from headscan.model.quiet import quiet
from headscan.model.source import Source, find_source
from headscan.run import BadInput

__all__ = ["load_tokenizer", "require_tokenizer"]

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
