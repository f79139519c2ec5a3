"""What stands between a model's body and its logits: a transformation, a table of rows, a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.tables import output_layer
from headscan.run import BadInput

__all__ = ["Unembedding", "body_of", "head_of"]


class Unembedding(NamedTuple):
    """logits = transform(hidden) . rows + bias, with rows [V, d] and bias [V] or None."""

    transform: Callable[[Tensor], Tensor]
    rows: Tensor
    bias: Tensor | None


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part of a model that ends in hidden states: the model itself where it has no head.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> type(body_of(GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1)))).__name__
    'GPT2Model'
    """
    body = getattr(model, model.base_model_prefix, model)
    assert isinstance(body, PreTrainedModel)
    return body


def head_of(model: PreTrainedModel) -> Unembedding:
    """The head of a causal or masked language model of transformers.

    A masked model's dense layer and norm before the logits are the `transform`: applied to the K masked rows only, it
    costs K and not all positions. Raises BadInput where the model has no head.
    """
    output = output_layer(model)
    if output is None:
        raise BadInput(f"{type(model).__name__} has no head; it is trained without one, by an objective such as cwt.")
    return Unembedding(_transform(model), output.weight, output.bias)


def _transform(model: Any) -> Callable[[Tensor], Tensor]:
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):  # BERT
        transform: Callable[[Tensor], Tensor] = model.cls.predictions.transform
        return transform
    if hasattr(model, "vocab_transform"):  # DistilBERT
        return lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))
    return nn.Identity()
