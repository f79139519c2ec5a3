"""The origin of a model, and hashes by which weights and tokenizers are recognised."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headscan.run import Json, Run

SPECIAL_TOKENS = ("eos", "bos", "pad", "unk")


@dataclass(frozen=True)
class Origin:
    """The origin of the weights of a Lens; all fields are empty for a model that was not loaded.

    Attributes:
        source: what the user named.
        revision: the resolved commit where known, else the revision that was asked for.
        files: those that the model was read from, by their names in its folder.
    """

    source: str | None = None
    revision: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    quantize: str | None = None
    random_init: int | None = None

    def sha256(self) -> dict[str, str]:
        """Return {file name: hex digest}; a file is read again only where it changed."""
        hashes = {}
        for name, path in self.files.items():
            status = path.stat()
            hashes[name] = _file_hash(
                path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            )
        return hashes


@cache
def _file_hash(path: Path, *_status: int) -> str:
    """Return the hash of a file, once a process for each inode, size and times of the last change.

    The last of the times, ctime, is one that no program can set back.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_identity(model: nn.Module | None, files: Mapping[str, str]) -> Json:
    """Return the hashes of the files that a model was read from.

    Without files it is one hash of the model's configuration and of each of its tensors.
    """
    if files:
        return dict(files)
    rows = [] if model is None else tensor_rows(model.state_dict())
    return _hash([str(getattr(model, "config", "")), *rows])


def tensor_rows(tensors: Mapping[str, Any]) -> list[Json]:
    """Return the name, type, shape and hash of each tensor."""
    rows: list[Json] = []
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            rows.append([name, str(tensor.dtype), list(tensor.shape), _tensor_hash(tensor)])
    return rows


def _tensor_hash(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(values.view(torch.uint8).numpy().data).hexdigest()


def tokenizer_identity(tokenizer: Any) -> str:
    """Return a hash of a tokenizer's rules, or of its class and vocabulary where it shows no rules.

    >>> from headscan.model import ByteTokenizer
    >>> tokenizer_identity(ByteTokenizer()) == tokenizer_identity(ByteTokenizer())
    True
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        return _hash(backend.to_str())
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    return _hash([type(tokenizer).__name__, sorted(vocabulary.items())])


def special_tokens(tokenizer: Any) -> Json:
    """Return the ids of the tokens that join and pad documents.

    Two tokenizers of the same rules need not share them.
    """
    return {name: getattr(tokenizer, f"{name}_token_id", None) for name in SPECIAL_TOKENS}


def identify_files(run: Run, role: str, identity: Json, tokenizer: Any) -> None:
    """Record that a run depends on a model's files and on its tokenizer.

    `role` says which of a verb's models it is, such as "model 2".
    """
    run.identify(role, identity)
    run.identify(f"the tokenizer of {role}", tokenizer_identity(tokenizer))
    run.identify(f"the special tokens of {role}", special_tokens(tokenizer))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
