"""Live models of other libraries: what of them a Lens can read. One file of headscan/model/adapters a library, or a plug-in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from headscan.run import Registry

__all__ = ["ADAPTERS", "Adapted", "ModelAdapter", "adapted"]


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


ADAPTERS: Registry[type[ModelAdapter]] = Registry("adapter", "headscan.model.adapters")
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
