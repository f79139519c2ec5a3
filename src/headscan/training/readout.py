"""Getting a head back: from a body trained without one to next-token probabilities.

The contrastive optimum is z_v = log p(v | context) - log p(v) + const(context): negatives come with their own
frequency, so the model learns what the context *adds* to it. What is missing is the log of the unigram probability:

    softmax(o . e_v + log p(v))

is a language model, without any training. `recover` offers that, the bare rows, a frozen probe and full fine-tuning.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from headscan.errors import BadInput
from headscan.training.heads import body_of
from headscan.training.losses import log_unigram

__all__ = ["RECOVERIES", "fold_bias", "recover"]

RECOVERIES = ("tied", "bias", "probe", "finetune")


def recover(
    model: Any,
    mode: str = "bias",
    *,
    counts: Tensor | None = None,
    temperature: float = 1.0,
    rows: Tensor | None = None,
) -> Any:
    """A causal language model with a head, from a headless body (both of transformers). The body is copied.

    mode: "tied": the input rows as they are. "bias": these and the log of the unigram probability, no training.
    "probe": a head of its own, started at "bias" (where counts are given; else at the rows), the body frozen.
    "finetune": the same start, everything trainable (the published one starts at the rows). Both are to be trained.
    counts: int [V], token counts of the training text, for "bias". temperature: the one of the contrastive loss: the
    scores are h . e / T. rows: [V, d], the table that the loss compared with, where that was not the input embeddings
    (the objective "nce"); "tied" is then untied all the same.

    The bias is folded into the head's rows where the body ends in a LayerNorm (see `fold_bias`): the model then has
    no parameter that transformers do not know, and `AutoModelForCausalLM.from_pretrained` loads it anywhere. Elsewhere
    (RMSNorm) `lm_head.bias` is a parameter that only a model built by `recover` has.
    """
    if mode not in RECOVERIES:
        raise BadInput(f"The recovery must be one of {', '.join(RECOVERIES)}, not {mode!r}.")
    if mode == "bias" and counts is None:
        raise BadInput("The unigram bias needs the token counts of the training text.")
    body: Any = body_of(model)
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = mode == "tied" and rows is None
    whole = AutoModelForCausalLM.from_config(config, dtype=body.dtype).to(body.device)
    body_of(whole).load_state_dict(body.state_dict())
    table = body.get_input_embeddings().weight.detach()
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    if config.tie_word_embeddings:
        whole.tie_weights()
        if temperature != 1:  # tied rows are the input's too: what can be divided is the state that meets them
            _divide_last_norm(body_of(whole), temperature)
        return whole.eval()
    whole.get_output_embeddings().weight.data.copy_((table if rows is None else rows.detach()) / temperature)
    if counts is not None and mode != "tied":
        if len(counts) != len(table):
            raise BadInput(f"There are counts of {len(counts)} tokens but the model has {len(table)}.")
        fold_bias(whole, log_unigram(counts, 0.5))
    if mode == "probe":
        body_of(whole).requires_grad_(False)
    return whole.eval()


def fold_bias(model: Any, bias: Tensor) -> bool:
    """Give the head of a causal model the bias [V]; True where it could be folded into the head's rows.

    A LayerNorm with gain g and shift b puts out h = g * n + b with sum(n) = 0, so h . u = b . u with u = 1/g is one
    number for all inputs: the last layer has a constant direction. It is made large, for the sake of rounding, by
    moving the shift, b' = b + s g, which adds to h . w_v only the constant s g . w_v. Then the rows

        w'_v = w_v + a_v u,    a_v = (bias_v - s g . w_v) / (b . u + s d)

    give h' . w'_v = h . w_v + bias_v exactly, without a bias. Where there is no such norm, `lm_head.bias` is set.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, tie_word_embeddings=False)
    >>> model = GPT2LMHeadModel(config).eval()
    >>> ids, bias = torch.tensor([[1, 2, 3]]), torch.linspace(-9, -1, 9)
    >>> before = model(ids).logits + bias
    >>> fold_bias(model, bias), torch.allclose(model(ids).logits, before, atol=1e-4)
    (True, True)
    """
    head = model.get_output_embeddings()
    norm = _last_norm(body_of(model))
    with torch.no_grad():
        rows = head.weight.double()
        bias = bias.to(rows.device, torch.float64)
        if norm is None or head.bias is not None or bool((norm.weight.abs() < 1e-3).any()):
            head.bias = nn.Parameter(bias.to(head.weight.dtype) + (0 if head.bias is None else head.bias.detach()))
            return False
        gain, shift = norm.weight.double(), norm.bias.double()
        direction = 1 / gain
        constant = float(shift @ direction)
        # s = 1 or -1, whichever moves the constant away from zero: the sum is then at least d in size.
        step = 1.0 if constant >= 0 else -1.0
        amount = (bias - step * (rows @ gain)) / (constant + step * len(gain))
        norm.bias.copy_(shift + step * gain)
        head.weight.copy_(rows + amount[:, None] * direction)
    return True


def _divide_last_norm(body: nn.Module, temperature: float) -> None:
    norms = [child for child in body.children() if "Norm" in type(child).__name__ and hasattr(child, "weight")]
    if not norms:
        raise BadInput("Tied rows cannot be read out at another temperature in a body without a final norm.")
    with torch.no_grad():
        for parameter in norms[-1].parameters():
            parameter.div_(temperature)


def _last_norm(body: nn.Module) -> nn.LayerNorm | None:
    """The final LayerNorm: the last direct child of the body that is one."""
    norms = [child for child in body.children() if isinstance(child, nn.LayerNorm) and child.bias is not None]
    return norms[-1] if norms else None
