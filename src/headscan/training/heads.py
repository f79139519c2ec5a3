"""What stands between a model's body and its logits: a transformation, a table of rows, a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from headscan.errors import BadInput

__all__ = ["Head", "body_of", "head_of"]


class Head(NamedTuple):
    """logits = transform(hidden) . rows + bias, with rows [V, d] and bias [V] or None."""

    transform: Callable[[Tensor], Tensor]
    rows: Tensor
    bias: Tensor | None


def body_of(model: Any) -> nn.Module:
    """The part of a model that ends in hidden states: the model itself where it has no head.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> type(body_of(GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1)))).__name__
    'GPT2Model'
    """
    return getattr(model, model.base_model_prefix, model)


def head_of(model: Any) -> Head:
    """The head of a causal or masked language model of transformers.

    A masked model's dense layer and norm before the logits are the `transform`: applied to the K masked rows only, it
    costs K and not all positions. Raises BadInput where the model has no head.
    """
    output = model.get_output_embeddings()
    if output is None:
        raise BadInput(f"{type(model).__name__} has no head; it is trained without one, by an objective such as cwt.")
    return Head(_transform(model), output.weight, getattr(output, "bias", None))


def _transform(model: Any) -> Callable[[Tensor], Tensor]:
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):  # BERT
        return model.cls.predictions.transform
    if hasattr(model, "vocab_transform"):  # DistilBERT
        return lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))
    return lambda hidden: hidden
