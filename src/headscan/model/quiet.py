"""Silence for transformers while a model is loaded: its progress bars and warnings, and only those, and only then."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers logs errors alone and draws no bars; afterwards it is as it was."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    unpacking, bar = _unpacking()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if bar is not None:
        unpacking.tqdm = partial(bar, disable=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bar is not None:
            unpacking.tqdm = bar
        if bars:
            logging.enable_progress_bar()


def _unpacking() -> tuple[Any, Any]:
    """The module of transformers that unpacks .gguf files, and its bar, which heeds none of transformers' settings."""
    try:
        module = import_module("transformers.modeling_gguf_pytorch_utils")
    except ImportError:
        return None, None
    return module, getattr(module, "tqdm", None)
