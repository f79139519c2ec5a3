"""A defence at work: what passes a site, or is stored in the cache, is changed while the model goes on with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.leaks.channel import cross_entropy
from headscan.model.lens import Lens
from headscan.model.tap import first_tensor, input_tensor
from headscan.model.verify import evaluating
from headscan.run import BadInput

__all__ = ["ChangedCache", "applied", "loss_with", "loss_with_cache"]

Change = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch w"]]


@contextlib.contextmanager
def applied(lens: Lens, site: str, change: Change) -> Iterator[None]:
    """In this context the states at a site are `change(states)`, in every forward pass, and the model goes on with them.

    Raises:
        BadInput: a site whose values the model computes in another shape, or in several calls of one module.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> with applied(lens, "block.1", torch.zeros_like):
    ...     float(lens.run([[1, 2]], sites="block.1")["block.1"].abs().max())
    0.0
    """
    tap = lens.tap(site)
    if tap.calls > 1 or tap.shape_from is not None or site == "head":
        raise BadInput(f"What passes {site} of '{lens.name}' cannot be changed on its way.")

    def changed(states: Tensor) -> Tensor:
        return change(states.float()).to(states.dtype)

    def after(_: Any, __: Any, output: Any) -> Any:
        states = first_tensor(output)
        if states is None or states is output:
            return changed(output)
        return (changed(states), *output[1:])

    def before(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        states = input_tensor(args, kwargs)
        assert states is not None
        new = changed(states)
        given = tuple(new if value is states else value for value in args)
        return given, {name: new if value is states else value for name, value in kwargs.items()}

    if tap.where == "output":
        handle = tap.module.register_forward_hook(after, prepend=True)
    else:
        handle = tap.module.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        handle.remove()


class ChangedCache(DynamicCache):
    """A key-value cache that stores keys and values of some layers as `change` leaves them: give it as `past_key_values`.

    >>> cache = ChangedCache([0], torch.zeros_like, "values")
    >>> keys, values = cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    >>> float(keys.sum()), float(values.sum())
    (24.0, 0.0)
    """

    def __init__(self, layers: Sequence[int], change: Change, part: str = "both") -> None:
        super().__init__()
        self.changed, self.change, self.part = set(layers), change, part

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *rest: Any, **options: Any) -> Any:
        """As any cache, but for the change."""
        if layer_idx in self.changed:
            key_states = self._of(key_states) if self.part != "values" else key_states
            value_states = self._of(value_states) if self.part != "keys" else value_states
        return super().update(key_states, value_states, layer_idx, *rest, **options)

    def _of(self, stored: Tensor) -> Tensor:
        heads, size = stored.shape[1], stored.shape[-1]
        rows = self.change(stored.transpose(1, 2).flatten(2).float())
        found: Tensor = rows.unflatten(2, (heads, size)).transpose(1, 2).to(stored.dtype)
        return found


@torch.no_grad()
def loss_with(lens: Lens, site: str, ids: Int[Tensor, "B T"], change: Change) -> Float[Tensor, " B"]:
    """Nats a token of the model on each row if the states at a site are changed so."""
    with applied(lens, site, change):
        return cross_entropy(lens.run(ids, sites="head")["head"], ids)


@torch.no_grad()
def loss_with_cache(lens: Lens, layer: int, part: str, ids: Int[Tensor, "B T"], change: Change) -> Float[Tensor, " B"]:
    """Nats a token of the model on each row if what a layer stores in the cache is changed so, and read back by attention."""
    cache = ChangedCache([layer], change, part)
    inputs = lens.inputs.forward(ids, None, None, None, ("head",)) | {"past_key_values": cache, "use_cache": True}
    with evaluating(lens.model):
        return cross_entropy(lens.model(**inputs).logits, ids)
