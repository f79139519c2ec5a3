"""What verbs take as models: names, folders, live models and Lenses alike, all checked before the first is loaded."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import nn

from headscan.model.lens import Lens
from headscan.model.load import Preparation, prepare
from headscan.model.settings import Building, Loading
from headscan.model.tokenizers import load_tokenizer
from headscan.run import BadInput, Registry


@dataclass(frozen=True)
class Adapted:
    """What a Lens is made of: a network that takes `input_ids`, its tokenizer, and notes for readers of its numbers."""

    network: nn.Module
    tokenizer: Any
    notes: Sequence[str] = ()


class ModelAdapter(ABC):
    """A library whose live models are no models of transformers. Subclass it here, or in a plug-in."""

    title: ClassVar[str]
    sentence: ClassVar[str]  # what is read
    tried: ClassVar[str]  # with which version of the library
    classes: ClassVar[tuple[str, ...]]  # the library, and the names of its classes

    def recognises(self, model: object) -> bool:
        """Whether an object's class, or one that it inherits from, is of the library. The library is not imported."""
        library, *names = self.classes
        kinds = type(model).__mro__
        return any(kind.__module__.partition(".")[0] == library and kind.__name__ in names for kind in kinds)

    @abstractmethod
    def adapt(self, model: Any) -> Adapted:
        """What is read of the model; BadInput where it is not loaded, or has nothing inside that can be read."""


ADAPTERS: Registry[type[ModelAdapter]] = Registry("adapter", "headscan.model.opening")
"""Every library whose models are taken as they are."""


@ADAPTERS.register("nnsight")
class NnsightAdapter(ModelAdapter):
    title = "nnsight"
    sentence = "The transformers model inside, with the wrapper's tokenizer; no intervention runs."
    tried = "nnsight 0.8.1"
    classes = ("nnsight", "NNsight", "Envoy")

    def adapt(self, model: Any) -> Adapted:
        own = vars(model)  # the wrapper's own attributes: its __getattr__ looks into the model
        inside = own.get("_module", own.get("_model"))
        if not isinstance(inside, nn.Module):
            raise BadInput("There is no model inside this wrapper of nnsight.")
        if any(weight.is_meta for weight in inside.parameters()):
            raise BadInput("This model of nnsight has no weights yet: load it with dispatch=True.")
        return Adapted(inside, own.get("tokenizer"), ("Read from inside nnsight's wrapper, without interventions.",))


@ADAPTERS.register("transformer-lens")
class TransformerLensAdapter(ModelAdapter):
    """`TransformerBridge` (TransformerLens 3 and 4): the model inside."""

    title = "TransformerLens"
    sentence = (
        "The transformers model inside a TransformerBridge; a HookedTransformer is refused, whose weights are folded and "
        "centred."
    )
    tried = "TransformerLens 4.3.0"
    classes = ("transformer_lens", "TransformerBridge", "HookedRootModule")

    def adapt(self, model: Any) -> Adapted:
        inside = getattr(model, "original_model", None)
        if not isinstance(inside, nn.Module):
            raise BadInput(
                f"A {type(model).__name__} folds norms into weights and centres them, so its states are not the model's: give "
                "the model of transformers, a TransformerBridge, or an iterator over its cached activations."
            )
        if getattr(model, "compatibility_mode", False):
            raise BadInput(
                "This TransformerBridge is in compatibility mode, in which weights are folded and centred: give it without."
            )
        return Adapted(inside, getattr(model, "tokenizer", None), ("Read from inside TransformerLens' bridge.",))


def adapted(model: object) -> Adapted | None:
    """What of another library's live model a Lens can read; None where no adapter knows it.

    >>> adapted(nn.Linear(2, 2)) is None, adapted("gpt2") is None
    (True, True)
    """
    if isinstance(model, str | bytes | int | float | list | tuple | dict):
        return None
    adapter = next((kind() for kind in ADAPTERS.values() if kind().recognises(model)), None)
    return None if adapter is None else adapter.adapt(model)


ModelLike = str | os.PathLike[str] | Lens | nn.Module
"""A specimen's name, a folder, a .gguf file, a Hugging Face id, a Lens, a model of transformers or of sentence-transformers,
or of a library that `headscan.model.opening.ADAPTERS` knows."""
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
    ready = [prepare_model(model, settings) for model in models]
    return (Lens.of(model) if isinstance(model, Preparation) else model for model in ready)


def open_model(given: ModelLike, settings: Loading) -> Lens:
    """One model as a Lens; see `open_models`."""
    return next(open_models(given, settings))


def prepare_model(given: ModelLike, settings: Loading) -> Preparation | Lens:
    """A model whose weights wait to be read, or the Lens of a live one."""
    if isinstance(given, str | os.PathLike):
        return prepare(given, Building(**settings.part(Loading)))
    if isinstance(given, Lens):
        return given
    live, tokenizer = adapted(given), load_tokenizer(settings.tokenizer)
    if live is None:
        if not isinstance(given, nn.Module):
            raise BadInput(f"A model is a name, a folder, a Lens or a live model, not a {type(given).__name__}.")
        # A SentenceTransformer wraps a model of transformers and keeps its tokenizer.
        inner = getattr(next(given.children(), None), "auto_model", None)
        wraps = isinstance(inner, nn.Module)
        live = Adapted(cast(nn.Module, inner), getattr(given, "tokenizer", None)) if wraps else Adapted(given, None)
    # A wrapper of another library names the model; a model inside a SentenceTransformer is named by itself.
    named = given if live.notes else live.network
    name = getattr(getattr(live.network, "config", None), "name_or_path", "") or type(named).__name__
    lens = Lens(live.network, tokenizer or live.tokenizer, name=str(name))
    lens.notes += live.notes
    return lens
