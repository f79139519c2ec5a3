"""The cone that a bias can take away without changing a logit.

Where linear layers alone read a norm's output x, adding −μ to it and Wμ to their biases changes
nothing that follows: W(x − μ) + (b + Wμ) = Wx + b. With μ the mean of x, the cone is gone there, as
at the head's input of every model. The residual stream, which norms and additions read, has no such
freedom (but along the vector of ones where layer norms alone read it).
"""

import copy
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.recording import Kwargs, before_call
from headscan.model.settings import Loading, TokenizerLike
from headscan.model.traits import output_layer
from headscan.run import BadInput
from headscan.text import TextLike, Windows

M = TypeVar("M", bound=ModelLike)
# Difference of logits, relative to the largest, up to which they count as the same; 5e-2 in half
# precision.
SAME = {torch.float64: 1e-9, torch.float32: 1e-4}


def decone(
    model: M,
    text: TextLike | Int[Tensor, "n T"] = "stories",
    *,
    tokenizer: TokenizerLike | None = None,
    max_tokens: int = 8192,
    context: int = 128,
) -> M | Lens:
    """A copy of the model with the same logits, to rounding, and with no cone at the head's input.

    The mean of what the head reads goes out of the norm before it (into the norm's bias, or a layer
    that subtracts it) and into a bias of the head, which a head without one gets. Weights are
    shared with the model, tied ones stay tied; the model is left as it is.

    Args:
        model: a name, a folder, a Lens, or a live model of transformers, with a head.
        text: what the mean is taken over; or token ids [n, T]. On another text the logits are the
            same, the mean is near 0.
        tokenizer: for a live model that brings none.
        max_tokens, context: how many tokens of the text, in windows of how many.

    Returns:
        A Lens for a name, a folder or a Lens; for a live model another one. `save_pretrained`
        writes weights that the family's own class cannot use, for it has no place for the biases:
        decone after loading.

    Raises BadInput: the model has no head, its weights are quantised, or there is no tokenizer for
    a text.

    Cost: one forward pass of the text, and two of 64 tokens.

    >>> from headscan import Lens
    >>> lens = Lens.load("gpt-vanilla")
    >>> recentred = decone(lens)
    >>> ids = torch.arange(20).reshape(1, 20)
    >>> logits = lens.run(ids, sites="head")["head"]
    >>> bool((logits - recentred.run(ids, sites="head")["head"]).abs().max() < 1e-3)
    True
    """
    lens = open_model(model, Loading(tokenizer=tokenizer))
    head = output_layer(lens.model)
    if head is None or "head" not in lens.sites:
        raise BadInput(f"{lens.name} has no head, so there are no logits to keep.")
    if lens.traits.quantised or not head.weight.is_floating_point():
        raise BadInput(
            f"The head of {lens.name} is quantised: a bias beside it would not keep its logits."
        )
    ids = text if isinstance(text, Tensor) else _ids(lens, text, max_tokens, context)
    shared = {id(tensor): tensor for tensor in (*lens.model.parameters(), *lens.model.buffers())}
    recentred = Lens(
        copy.deepcopy(lens.model, shared), lens.tokenizer, name=f"{lens.name}, deconed"
    )
    layer = cast(nn.Linear, output_layer(recentred.model).module)  # type: ignore[union-attr]
    mean = _mean_input(recentred, layer, ids)
    if not _move_final_norm(recentred, layer, mean, ids[:1, :64]):
        _replace(recentred.model, layer, CentredHead(layer, mean))
    return cast(M, recentred.model) if isinstance(model, nn.Module) else recentred


class Moved(nn.Module):
    """A layer whose output is moved by a vector: for norms that have no bias of their own."""

    def __init__(self, layer: nn.Module, by: Float[Tensor, " d"]) -> None:
        super().__init__()
        self.layer = layer
        self.by = nn.Parameter(by, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.layer(x), self.by)


class CentredHead(nn.Linear):
    """A head that takes the mean out of its input itself, where no norm stands directly before it:
    W(x − μ) + (b + Wμ).
    """

    def __init__(self, head: nn.Linear, mean: Float[Tensor, " d"]) -> None:
        super().__init__(head.weight.shape[1], head.weight.shape[0], device="meta")
        self.weight = head.weight
        self.bias = _bias_with_mean(head, mean)
        self.mean: Tensor
        self.register_buffer("mean", mean.to(head.weight))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x - self.mean, self.weight, self.bias)


def _ids(lens: Lens, text: TextLike, tokens: int, context: int) -> Tensor:
    context = min(context, lens.context_length or context)
    windows = Windows(text, lens.require_tokenizer(), context, max_tokens=max(tokens, context))
    return torch.from_numpy(np.stack([window.ids for window in windows]))


def _bias_with_mean(head: nn.Linear, mean: Tensor) -> nn.Parameter:
    moved = head.weight.detach().double() @ mean.to(head.weight.device)
    if head.bias is not None:
        moved += head.bias.detach().double()
    return nn.Parameter(moved.to(head.weight.dtype), requires_grad=False)


def _mean_input(lens: Lens, head: nn.Module, ids: Tensor) -> Tensor:
    """The mean of what the head reads, float64 [d]."""
    sums: list[Tensor] = []

    def add(_: nn.Module, args: tuple[Any, ...], __: Kwargs) -> None:
        sums.append(args[0].detach().double().flatten(0, -2).sum(0))

    with before_call(head, add):
        for part in ids.split(max(1, 2048 // ids.shape[1])):
            lens.run(part, sites="head", each=lambda _site, _states: None)
    return torch.stack(sums).sum(0) / ids.numel()


def _move_final_norm(lens: Lens, head: nn.Linear, mean: Tensor, ids: Tensor) -> bool:
    """Move the mean from the final norm into the head's bias; all is put back, and False, where a
    logit changes.
    """
    site = next((site for site in reversed(lens.sites) if site.endswith("final_norm")), None)
    if site is None:
        return False
    expected_logits = lens.run(ids, sites="head")["head"]
    norm = lens.tap(site).module
    bias = head.bias
    own = norm.bias if isinstance(norm, nn.LayerNorm) else None
    moved: nn.Module = norm
    head.bias = _bias_with_mean(head, mean)
    if own is None:
        moved = Moved(norm, -mean.to(head.weight))
        _replace(lens.model, norm, moved)
    else:
        norm.bias = nn.Parameter(
            (own.detach().double() - mean.to(own.device)).to(own.dtype), requires_grad=False
        )
    try:
        logits = lens.run(ids, sites="head")["head"]
        if bool(
            (logits - expected_logits).abs().max()
            <= SAME.get(logits.dtype, 5e-2) * float(expected_logits.abs().max())
        ):
            return True
    except (AttributeError, RuntimeError, TypeError):
        pass  # the model looks into the norm that was put into another layer
    head.bias = bias
    if own is None:
        _replace(lens.model, moved, norm)
    else:
        norm.bias = own
    return False


def _replace(model: nn.Module, layer: nn.Module, new: nn.Module) -> None:
    """Put a layer into the place of another, in every module that holds it."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if child is layer:
                setattr(module, name, new)
