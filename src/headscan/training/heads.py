"""What stands between a model's body and its logits: a transformation, a table of rows, a bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.tables import output_layer
from headscan.run import BadInput
from headscan.training.losses import linear

__all__ = ["Unembedding", "body_of", "capped", "final_norm_of", "head_of"]


class Unembedding(NamedTuple):
    """z = transform(hidden) . rows + bias, with rows [V, d] and bias [V] or None; the logits are z, or cap * tanh(z / cap)."""

    transform: Callable[[Tensor], Tensor]
    rows: Tensor
    bias: Tensor | None
    cap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits [K, V] of last hidden states [K, d], in float32 or wider."""
        scores = linear.logits_of(self.transform(hidden), self.rows, self.bias)
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)


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


def final_norm_of(body: nn.Module) -> nn.Module | None:
    """The norm between the last block and what a body puts out; None where a body ends in its last block."""
    norms = [child for child in body.children() if "Norm" in type(child).__name__ and hasattr(child, "weight")]
    return norms[-1] if norms else None


@contextmanager
def capped(model: PreTrainedModel, cap: float | None) -> Iterator[None]:
    """Let the model's logits z be cap * tanh(z / cap) for a while, as in a training with a cap; None changes nothing."""
    output = output_layer(model)
    if cap is None or output is None:
        yield
        return
    hook = output.module.register_forward_hook(lambda module, given, scores: cap * torch.tanh(scores / cap))
    try:
        yield
    finally:
        hook.remove()


def _transform(model: Any) -> Callable[[Tensor], Tensor]:
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):  # BERT
        transform: Callable[[Tensor], Tensor] = model.cls.predictions.transform
        return transform
    if hasattr(model, "vocab_transform"):  # DistilBERT
        return lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))
    return nn.Identity()
