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

# ---- Live models of other libraries: what of them a Lens can read. One file of headscan/model/adapters a library, or a plug-in.


@dataclass(frozen=True)
class Adapted:
    """What a Lens is made of: a network that takes `input_ids`, its tokenizer, and what a reader of its numbers must know."""

    network: nn.Module
    tokenizer: Any
    notes: Sequence[str] = ()


class ModelAdapter(ABC):
    """A library whose models are no models of transformers. Subclass it in a file of headscan/model/adapters, or of a plug-in.

    Attributes:
        title: of the library. sentence: what is read. tried: with which version of it.
    """

    title: ClassVar[str]
    sentence: ClassVar[str]
    tried: ClassVar[str]

    @abstractmethod
    def recognises(self, model: object) -> bool:
        """Whether a live object is one of its models; without importing the library."""

    @abstractmethod
    def adapt(self, model: Any) -> Adapted:
        """What is read of it.

        Raises:
            BadInput: it is not loaded, or has nothing inside that can be read.
        """


ADAPTERS: Registry[type[ModelAdapter]] = Registry("adapter", "headscan.model.opening")
"""Every library whose models are taken as they are."""


def adapted(model: object) -> Adapted | None:
    """What of another library's live model a Lens can read; None where no adapter knows it.

    >>> adapted(nn.Linear(2, 2)) is None, adapted("gpt2") is None
    (True, True)
    """
    if isinstance(model, str | bytes | int | float | list | tuple | dict):
        return None
    for kind in ADAPTERS.values():
        one = kind()
        if one.recognises(model):
            return one.adapt(model)
    return None


def of_library(model: object, library: str, *names: str) -> bool:
    """Whether an object's class, or one that it inherits from, is one of these classes of a library.

    >>> of_library(nn.Linear(2, 2), "torch", "Module"), of_library(nn.Linear(2, 2), "nnsight", "Envoy")
    (True, False)
    """
    return any(kind.__module__.partition(".")[0] == library and kind.__name__ in names for kind in type(model).__mro__)


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


# ---- nnsight.


@ADAPTERS.register("nnsight")
class NnsightAdapter(ModelAdapter):
    """`NNsight(model)`, `LanguageModel(...)`, `TransformersModel(...)`: the model inside."""

    title: ClassVar[str] = "nnsight"
    sentence: ClassVar[str] = "The transformers model inside, with the wrapper's tokenizer; no intervention runs."
    tried: ClassVar[str] = "nnsight 0.8.1"

    def recognises(self, model: object) -> bool:
        """An Envoy, which is no Module."""
        return of_library(model, "nnsight", "NNsight", "Envoy")

    def adapt(self, model: Any) -> Adapted:
        """See the class."""
        # Of the wrapper itself, not by its __getattr__, which looks into the model.
        own = vars(model)
        inside = own.get("_module", own.get("_model"))
        if not isinstance(inside, nn.Module):
            raise BadInput("There is no model inside this wrapper of nnsight.")
        if any(one.is_meta for one in inside.parameters()):
            raise BadInput("This model of nnsight has no weights yet: load it with dispatch=True.")
        return Adapted(inside, own.get("tokenizer"), ("Read from inside nnsight's wrapper, without interventions.",))


# ---- TransformerLens.


@ADAPTERS.register("transformer-lens")
class TransformerLensAdapter(ModelAdapter):
    """`TransformerBridge` (TransformerLens 3 and 4): the model inside."""

    title: ClassVar[str] = "TransformerLens"
    sentence: ClassVar[str] = (
        "The transformers model inside a TransformerBridge; a HookedTransformer is refused, whose weights are folded and centred."
    )
    tried: ClassVar[str] = "TransformerLens 4.3.0"

    def recognises(self, model: object) -> bool:
        """By the class."""
        return of_library(model, "transformer_lens", "TransformerBridge", "HookedRootModule")

    def adapt(self, model: Any) -> Adapted:
        """See the class."""
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
