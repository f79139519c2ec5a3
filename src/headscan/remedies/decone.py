"""The cone that is gauge: what of it a bias can take away without changing a logit.

Where linear layers alone read a norm's output x, adding −μ to it and Wμ to their biases changes nothing that follows:
W(x − μ) + (b + Wμ) = Wx + b. With μ the mean of x, the cone is gone there. So it is at the head's input of every model; and
inside, wherever the output of a norm goes to linear layers only. On the residual stream there is no such freedom: norms
and additions read it. (A layer norm takes the mean over coordinates away, so a stream read by layer norms alone may be
moved along the vector of ones; nothing else is free, and root-mean-square norms leave not even that.)
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.pytorch_utils import Conv1D

from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Loading, TokenizerLike
from headscan.model.traits import output_layer
from headscan.run import BadInput
from headscan.text import Windows
from headscan.text.source import TextLike

M = TypeVar("M", bound=ModelLike)
# Difference of logits, relative to the largest, up to which they count as the same; 5e-2 in half precision.
SAME = {torch.float64: 1e-9, torch.float32: 1e-4}


class Moved(nn.Module):
    """A layer whose output is moved by a vector: for norms that have no bias of their own.

    >>> Moved(nn.Identity(), torch.tensor([1.0, 2.0]))(torch.zeros(2)).tolist()
    [1.0, 2.0]
    """

    def __init__(self, layer: nn.Module, by: Float[Tensor, " d"]) -> None:
        super().__init__()
        self.layer = layer
        self.by = nn.Parameter(by, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        moved: Tensor = self.layer(x) + self.by
        return moved


def decone(
    model: M, text: TextLike | Int[Tensor, "n T"] = "stories", *, tokenizer: TokenizerLike | None = None,
    max_tokens: int = 8192, context: int = 128, inside: bool = False,
) -> M | Lens:  # fmt: skip
    """A copy of the model with the same logits, to rounding, and with no cone at the head's input.

    The mean of what the head reads goes out of the norm before it (into the norm's bias, or a layer that subtracts it) and
    into a bias of the head, which a head without one gets. Weights are shared with the model, tied ones stay tied; the model
    is left as it is.

    Args:
        model: a name, a folder, a Lens, or a live model of transformers, with a head.
        text: what the mean is taken over; or token ids [n, T]. On another text the logits are the same, the mean is near 0.
        tokenizer: for a live model that brings none.
        max_tokens, context: how many tokens of the text, in windows of how many.
        inside: take the mean out of every norm whose output only linear layers read, too. Each is tried, and put back
            where a logit changes.

    Returns:
        A Lens for a name, a folder or a Lens; for a live model another one. `save_pretrained` writes weights that the
        family's own class cannot use, for it has no place for the biases: decone after loading.

    Raises:
        BadInput: the model has no head, its weights are quantised, or there is no tokenizer for a text.

    Cost: one forward pass of the text, and two of 64 tokens; inside, one of 64 tokens for every norm.

    >>> from headscan import Lens
    >>> lens = Lens.load("gpt-vanilla")
    >>> round_ = decone(lens)
    >>> ids = torch.arange(20).reshape(1, 20)
    >>> bool((lens.run(ids, sites="head")["head"] - round_.run(ids, sites="head")["head"]).abs().max() < 1e-3)
    True
    """
    lens = open_model(model, Loading(tokenizer=tokenizer))
    head = output_layer(lens.model)
    if head is None or "head" not in lens.sites:
        raise BadInput(f"{lens.name} has no head, so there are no logits to keep.")
    if lens.traits.quantised or not head.weight.is_floating_point():
        raise BadInput(f"The head of {lens.name} is quantised: a bias beside it would not keep its logits.")
    ids = text if isinstance(text, Tensor) else _ids(lens, text, max_tokens, context)
    shared = {id(tensor): tensor for tensor in (*lens.model.parameters(), *lens.model.buffers())}
    found = Lens(copy.deepcopy(lens.model, shared), lens.tokenizer, name=f"{lens.name}, deconed")
    last = next(name for name, module in found.model.named_modules() if module is output_layer(found.model).module)  # type: ignore[union-attr]
    sample = ids[:1, :64]
    links = {norm: readers for norm, readers in _links(found, sample).items() if inside or last in readers}
    means = _means(found, ids, [*links, last])
    wanted, free = found.run(sample, sites="head")["head"], False
    for norm, readers in links.items():
        kept = _moved(found, norm, readers, means[norm], wanted, sample)
        free = free or (kept and last in readers)
    if not free:
        layer = found.model.get_submodule(last)
        _put(found.model, last, CentredHead(layer.weight, layer.bias, means[last]))
    return cast(M, found.model) if isinstance(model, nn.Module) else found


class CentredHead(nn.Linear):
    """A head that takes the mean out of its input itself, where no norm stands directly before it: W(x − μ) + (b + Wμ)."""

    def __init__(
        self, weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None, mean: Float[Tensor, " d"]
    ) -> None:
        super().__init__(weight.shape[1], weight.shape[0], device="meta")
        assert isinstance(weight, nn.Parameter)
        self.weight, self.bias = weight, _with(bias, weight, mean)
        self.mean: Tensor
        self.register_buffer("mean", mean.to(weight))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x - self.mean, self.weight, self.bias)


def _ids(lens: Lens, text: TextLike, tokens: int, context: int) -> Tensor:
    context = min(context, lens.context_length or context)
    windows = Windows(text, lens.require_tokenizer(), context, max_tokens=max(tokens, context))
    return torch.from_numpy(np.stack([window.ids for window in windows]))


def _with(bias: Tensor | None, weight: Tensor, mean: Tensor) -> nn.Parameter:
    added = weight.detach().double() @ mean.to(weight.device)
    return nn.Parameter(
        (added if bias is None else bias.detach().double() + added).to(weight.dtype), requires_grad=False
    )


@contextmanager
def _hooked(handles: list[RemovableHandle]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _links(lens: Lens, ids: Tensor) -> dict[str, list[str]]:
    written: dict[tuple[int, int], str] = {}
    held: list[Tensor] = []  # so that no memory is written twice
    links: dict[str, list[str]] = {}

    def wrote(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, given: object, output: object) -> None:
            if isinstance(output, Tensor):
                held.append(output)
                written[output.data_ptr(), output.numel()] = name

        return hook

    def reads(name: str) -> Callable[[nn.Module, tuple[object, ...]], None]:
        def hook(module: nn.Module, given: tuple[object, ...]) -> None:
            x = given[0] if given else None
            norm = written.get((x.data_ptr(), x.numel())) if isinstance(x, Tensor) else None
            if norm is not None and name not in links.setdefault(norm, []):
                links[norm].append(name)

        return hook

    handles = []
    for name, module in lens.model.named_modules():
        if type(module) in (nn.Linear, Conv1D):
            handles.append(module.register_forward_pre_hook(reads(name)))
        elif next(module.children(), None) is None and "norm" in f"{name} {type(module).__name__}".lower():
            handles.append(module.register_forward_hook(wrote(name)))
    with _hooked(handles):
        lens.run(ids, sites="head", each=lambda site, states: None)
    return links


def _means(lens: Lens, ids: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = defaultdict(int)

    def add(name: str, x: object) -> None:
        assert isinstance(x, Tensor)
        rows = x.detach().double().reshape(-1, x.shape[-1])
        totals[name] = totals.get(name, 0) + rows.sum(0)
        counts[name] += len(rows)

    handles = [
        lens.model.get_submodule(name).register_forward_hook(lambda _, given, output, name=name: add(name, output))
        for name in names[:-1]
    ]
    head = lens.model.get_submodule(names[-1])
    handles.append(head.register_forward_pre_hook(lambda _, given: add(names[-1], given[0])))
    with _hooked(handles):
        for part in ids.split(max(1, 2048 // ids.shape[1])):
            lens.run(part, sites="head", each=lambda site, states: None)
    return {name: total / counts[name] for name, total in totals.items()}


def _moved(lens: Lens, norm: str, readers: list[str], mean: Tensor, wanted: Tensor, ids: Tensor) -> bool:
    model = lens.model
    layer, linear = model.get_submodule(norm), [model.get_submodule(name) for name in readers]
    before = [(one, one.bias) for one in linear]
    own = layer.bias if isinstance(layer, nn.LayerNorm) and layer.bias is not None else None
    for one in linear:
        one.bias = _with(one.bias, one.weight.T if isinstance(one, Conv1D) else one.weight, mean)
    if own is not None:
        layer.bias = nn.Parameter((own.detach().double() - mean.to(own.device)).to(own.dtype), requires_grad=False)
    else:
        _put(model, norm, Moved(layer, -mean.to(linear[0].weight)))
    try:
        found = lens.run(ids, sites="head")["head"]
        limit = SAME.get(found.dtype, 5e-2) * float(wanted.abs().max())
        if bool((found - wanted).abs().max() <= limit):
            return True
    except (AttributeError, RuntimeError, TypeError):
        pass  # the model looks into the norm that was put into another layer
    for one, bias in before:
        one.bias = bias
    if own is not None:
        layer.bias = own
    else:
        _put(model, norm, layer)
    return False


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, layer)
