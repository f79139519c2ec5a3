"""The way from a model's last states to its logits: a transformation, a table of rows, a bias."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.recording import Kwargs, after_call
from headscan.model.traits import output_layer
from headscan.run import BadInput
from headscan.training.losses.linear import logits_of

SMALLEST_GAIN = 1e-3
"""A norm with a gain below this does not take a bias: 1/gain would be too large."""


class Unembedding(NamedTuple):
    """The map from hidden states to logits: z = transform(hidden) . rows + bias.

    rows are [V, d]; bias is [V] or None. The logits are z or, with a cap, cap * tanh(z / cap).
    """

    transform: Callable[[Tensor], Tensor]
    rows: Tensor
    bias: Tensor | None
    cap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [K, V] of last hidden states [K, d], in float32 or wider."""
        scores = logits_of(self.transform(hidden), self.rows, self.bias)
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the part of a model that ends in hidden states: the model itself where it has no head.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1))
    >>> type(body_of(model)).__name__
    'GPT2Model'
    """
    body = getattr(model, model.base_model_prefix, model)
    assert isinstance(body, PreTrainedModel)
    return body


def head_of(model: PreTrainedModel) -> Unembedding:
    """Return the head of a causal or masked language model of transformers.

    A masked model's dense layer and norm before the logits are the `transform`: applied to the K
    masked rows only, it costs K and not all positions.

    Raises:
        BadInput: for a model without a head.
    """
    output = output_layer(model)
    if output is None:
        raise BadInput(
            f"{type(model).__name__} has no head; it is trained without one, by an objective such "
            "as cwt."
        )
    return Unembedding(_transform(model), output.weight, output.bias)


def _transform(model: Any) -> Callable[[Tensor], Tensor]:
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):  # BERT
        return cast(Callable[[Tensor], Tensor], model.cls.predictions.transform)
    if hasattr(model, "vocab_transform"):  # DistilBERT
        return lambda hidden: model.vocab_layer_norm(
            model.activation(model.vocab_transform(hidden))
        )
    return nn.Identity()


def final_norm_of(body: nn.Module) -> nn.Module | None:
    """Return the norm after the last block; None for a body that ends in its last block."""
    final_norm = None
    for child in body.children():
        if "Norm" in type(child).__name__ and hasattr(child, "weight"):
            final_norm = child
    return final_norm


@contextmanager
def capped(model: PreTrainedModel, cap: float | None) -> Iterator[None]:
    """Replace the model's logits z by cap * tanh(z / cap) in this context, as in a training with a
    cap; None changes nothing.
    """
    output = output_layer(model)
    if cap is None or output is None:
        yield
        return

    def cap_logits(
        _module: nn.Module, _args: tuple[Any, ...], _kwargs: Kwargs, logits: Tensor
    ) -> Tensor:
        return cap * torch.tanh(logits / cap)

    with after_call(output.module, cap_logits):
        yield


def fold_bias(model: PreTrainedModel, bias: Float[Tensor, " vocabulary"]) -> bool:
    """Give the head of a causal model the bias [V]; return whether it was folded into the rows.

    A LayerNorm with gain g and shift b puts out h = g * n + b with sum(n) = 0, so h . u = b . u
    with u = 1/g is one number for all inputs: the last layer has a constant direction. It is made
    large, for the sake of rounding, by moving the shift, b' = b + s g, which adds to h . w_v only
    the constant s g . w_v. Then the rows

        w'_v = w_v + a_v u,    a_v = (bias_v - s g . w_v) / (b . u + s d)

    give h' . w'_v = h . w_v + bias_v exactly, without a bias. Where there is no such norm,
    `lm_head.bias` is set.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, tie_word_embeddings=False)
    >>> model = GPT2LMHeadModel(config).eval()
    >>> ids, bias = torch.tensor([[1, 2, 3]]), torch.linspace(-9, -1, 9)
    >>> before = model(ids).logits + bias
    >>> fold_bias(model, bias), torch.allclose(model(ids).logits, before, atol=1e-4)
    (True, True)
    """
    head: Any = model.get_output_embeddings()
    norm = _last_shifted_norm(body_of(model))
    with torch.no_grad():
        rows = head.weight.double()
        bias = bias.to(rows.device, torch.float64)
        if norm is None or head.bias is not None or _has_small_gain(norm):
            total = bias.to(head.weight.dtype, copy=True)
            if head.bias is not None:
                total = total + head.bias.detach()
            head.bias = nn.Parameter(total)
            return False

        gain = norm.weight.double()
        shift = norm.bias.double()
        direction = 1 / gain
        constant = float(shift @ direction)
        # s moves the constant away from zero: the sum is then at least d in size.
        step = 1.0 if constant >= 0 else -1.0
        amount = (bias - step * (rows @ gain)) / (constant + step * len(gain))
        norm.bias.copy_(shift + step * gain)
        head.weight.copy_(rows + amount[:, None] * direction)
    return True


def _last_shifted_norm(body: nn.Module) -> nn.LayerNorm | None:
    """Return the last LayerNorm with a shift among the children of a body."""
    norm = None
    for child in body.children():
        if isinstance(child, nn.LayerNorm) and child.bias is not None:
            norm = child
    return norm


def _has_small_gain(norm: nn.LayerNorm) -> bool:
    return bool((norm.weight.abs() < SMALLEST_GAIN).any())


def divide_last_norm(body: nn.Module, temperature: float) -> None:
    """Divide what a body puts out by a number, in the parameters of its final norm.

    Raises:
        BadInput: for a body without a final norm.
    """
    norm = final_norm_of(body)
    if norm is None:
        raise BadInput(
            "Tied rows cannot be read out at another temperature in a body without a final norm."
        )
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.div_(temperature)
