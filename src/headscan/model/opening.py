"""What verbs take as models: names, folders, live models and Lenses alike, all checked before the first is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import cast

from torch import nn

from headscan.model.adapter import adapted
from headscan.model.lens import Lens
from headscan.model.load import Preparation, prepare
from headscan.model.settings import Building, Loading
from headscan.model.tokenizers import load_tokenizer
from headscan.run import BadInput

__all__ = ["ModelLike", "ModelsLike", "open_model", "open_models", "prepare_model"]

ModelLike = str | os.PathLike[str] | Lens | nn.Module
"""A specimen's name, a folder, a .gguf file, a Hugging Face id, a Lens, a model of transformers or of sentence-transformers,
or of a library that `headscan.model.adapter.ADAPTERS` knows."""
ModelsLike = ModelLike | Sequence[ModelLike]


def open_models(given: ModelsLike, settings: Loading) -> Iterator[Lens]:
    """The models as Lenses, each loaded when its turn comes; a live model is left as it is.

    Raises:
        BadInput: none was given, or one of them cannot be loaded. That is said at once, before any weights are read.

    >>> from transformers import GPT2Config, GPT2Model
    >>> live = GPT2Model(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2))
    >>> [lens.name for lens in open_models([live, "gpt-vanilla"], Loading(device="cpu"))]
    ['GPT2Model', 'gpt-vanilla']
    """
    alone = isinstance(given, str | os.PathLike | Lens | nn.Module) or adapted(given) is not None
    models = [cast(ModelLike, given)] if alone else list(cast("Sequence[ModelLike]", given))
    if not models:
        raise BadInput("No model was named: name at least one model.")
    ready = [prepare_model(one, settings) for one in models]
    return (Lens.of(one) if isinstance(one, Preparation) else one for one in ready)


def open_model(given: ModelLike, settings: Loading) -> Lens:
    """One model as a Lens; see `open_models`."""
    return next(open_models(given, settings))


def prepare_model(given: ModelLike, settings: Loading) -> Preparation | Lens:
    """A model whose weights wait to be read, or a live one as it is."""
    if isinstance(given, str | os.PathLike):
        return prepare(given, Building(**settings.part(Loading)))
    return _live(given, settings)


def _live(model: Lens | nn.Module, settings: Loading) -> Lens:
    if isinstance(model, Lens):
        return model
    found = adapted(model)
    if found is not None:
        name = getattr(getattr(found.network, "config", None), "name_or_path", "") or type(model).__name__
        lens = Lens(found.network, load_tokenizer(settings.tokenizer) or found.tokenizer, name=str(name))
        lens.notes += found.notes
        return lens
    if not isinstance(model, nn.Module):
        raise BadInput(f"A model is a name, a folder, a Lens or a live model, not a {type(model).__name__}.")
    network, tokenizer = model, load_tokenizer(settings.tokenizer)
    inner = getattr(next(model.children(), None), "auto_model", None)
    if isinstance(inner, nn.Module):
        # A SentenceTransformer wraps a model of transformers and keeps its tokenizer.
        network, tokenizer = inner, tokenizer or getattr(model, "tokenizer", None)
    name = getattr(getattr(network, "config", None), "name_or_path", "") or type(network).__name__
    return Lens(network, tokenizer, name=str(name))
