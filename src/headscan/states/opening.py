"""From what a user gives to a source: a path or URL, an array, a dict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, nn

from headscan.model.lens import Lens, ModelLike
from headscan.model.source import specimens
from headscan.model.weights import is_gguf
from headscan.run import BadInput
from headscan.states.source import VectorSource
from headscan.states.stored import StoredSource, of_object
from headscan.states.vectors import read_states

SourceLike: TypeAlias = ModelLike | VectorSource | Any
"""A model, or stored states: a path or URL, an array (numpy, torch, DLPack), a dict of arrays by site."""
SourcesLike: TypeAlias = SourceLike | Sequence[SourceLike]


def given_sources(given: SourcesLike) -> list[SourceLike]:
    """Several sources, one by one: those of a list or tuple whose items are no numbers.

    >>> len(given_sources(["gpt2", "a.npy"])), len(given_sources([[1.0, 2.0], [3.0, 4.0]])), len(given_sources("gpt2"))
    (2, 1, 1)
    """
    if not isinstance(given, list | tuple):
        return [given]
    return list(given) if not given or not isinstance(given[0], int | float | list | tuple) else [given]


def stored_source(
    given: SourceLike, *, context: int = 128, batch: int | None = None, max_tokens: int | None = None,
    field: str | None = None, tokenizer: Any = None,
) -> VectorSource | None:  # fmt: skip
    """Stored states as a source; None where what was given names a model, or is one.

    `context` counts where the store has no windows, whole windows of `max_tokens` vectors are read, `field` is the column
    of a table. Raises BadInput where they cannot be read, or are no states.

    >>> stored_source("gpt-vanilla") is None, stored_source(np.zeros((4, 2))).tokens
    (True, 4)
    """
    where = None
    if isinstance(given, VectorSource):
        return given
    if isinstance(given, Lens | nn.Module):
        return None
    if isinstance(given, str | os.PathLike):
        where = os.fspath(given)
        # "text" is what --field is where nobody said
        vectors = None if is_model(where) else read_states(where, None if field == "text" else field)
        if vectors is None:
            return None
    elif isinstance(given, np.ndarray | Tensor | Mapping | list | tuple) or hasattr(given, "__dlpack__"):
        vectors = of_object(given)
    else:
        raise BadInput(
            "A source is a model, a path or URL of stored states, an array, or a dict of arrays by site, "
            f"not a {type(given).__name__}."
        )
    return StoredSource(vectors, context=context, batch=batch, max_tokens=max_tokens, tokenizer=tokenizer, where=where)


def is_model(name: str) -> bool:
    """Whether a name is a model's for certain: a specimen, a .gguf file, a folder whose config.json describes one."""
    if name in specimens() or "://" in name:
        return name in specimens()
    path = Path(name).expanduser()
    if not path.exists():
        if path.suffix in (".npy", ".npz", ".parquet", ".arrow", ".safetensors"):  # no model has such a name
            raise BadInput(f"There is no file {name}.")
        return "#" not in name
    if path.is_file():
        return is_gguf(path)
    config = path / "config.json"
    return config.is_file() and "model_type" in config.read_text("utf-8", errors="replace")
