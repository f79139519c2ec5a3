"""A slice made ready on one model: the thing that runs."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.errors import BadInput
from headscan.model.inputs import forward_inputs
from headscan.model.record import Recorder, Stop
from headscan.model.slices_surgery import Surgery, round_weights
from headscan.model.verify import evaluating

if TYPE_CHECKING:
    from headscan.model.lens import Lens
    from headscan.model.slices import Slice

__all__ = ["Cut"]


class Cut:
    """A `Slice` on a `Lens`. Made by `Slice.on`, which keeps it, so that the preparation is done once.

    Attributes:
        slice: the slice.
        lens: the model that runs: the one given, or its fresh or rounded twin.
        sites: the sites, in the order in which they are concatenated.
        width: w', the number of features of the output.
        causal: whether no output sees a later token, as measured on random embeddings, not as promised.
    """

    def __init__(self, slice_: Slice, lens: Lens) -> None:
        self.slice = slice_
        self.lens = _with_weights(slice_, lens)
        # The order asked for is the order of the features; globs expand in the order of depth.
        self.sites = tuple(dict.fromkeys(site for glob in slice_.sites for site in self.lens.match(glob)))
        stacks = [stack for stack in self.lens.stacks if any(site in stack.taps for site in self.sites)]
        self.stack = stacks[-1] if stacks else self.lens.stacks[-1]
        self.surgery = Surgery(slice_, self.lens, self.stack)
        self._taps = [self.lens._taps[site] for site in self.sites]
        self._index = slice_.chosen(sum(tap.width for tap in self._taps))
        everything = range(sum(tap.width for tap in self._taps))
        self.width = len(self._index) if isinstance(self._index, Tensor) else len(everything[self._index])
        self._forward = inspect.signature(self.lens.model.forward).parameters
        self._own_causal = _is_causal(self.lens)
        if not slice_.positions and not (self.surgery.positional or "position_ids" in self._forward):
            raise BadInput(f"'{lens.name}' has neither position embeddings nor rotary angles that could be taken out.")
        self.causal = self._measure_causal()
        if slice_.causal is not None and slice_.only != "mlp" and self.causal != slice_.causal:
            what = "imposed on" if slice_.causal else "lifted from"
            raise BadInput(f"A causal mask cannot be {what} '{lens.name}': it is not a mask that this family is given.")

    # ---- embeddings

    @cached_property
    def vectors(self) -> Tensor:
        """The vector of every token of the vocabulary, [V, e], as the model's embedding module gives it (detached)."""
        if self.slice.embedding is None:
            with torch.no_grad():
                module = self.lens.model.get_input_embeddings()
                return module(torch.arange(self.lens.vocabulary_size, device=self.lens.device)).detach()
        return _other_table(self.slice.embedding, self.lens).detach()

    @cached_property
    def twins(self) -> dict[int, list[int]]:
        """Tokens whose embedding rows are equal, by token; those with a row of their own are not in it."""
        # Equal rows have equal sums along any direction; the few that agree there are compared whole.
        direction = torch.randn(self.vectors.shape[1], generator=torch.Generator().manual_seed(0))
        _, group, counts = (self.vectors.double().cpu() @ direction.double()).unique(
            return_inverse=True, return_counts=True
        )
        found: dict[int, list[int]] = {}
        for token in (counts[group] > 1).nonzero()[:, 0].tolist():
            if token not in found:
                alike = (group == group[token]).nonzero()[:, 0]
                rows = self.vectors[alike.to(self.vectors.device)]
                same = alike[(rows == self.vectors[token]).all(1).cpu()].tolist()
                if len(same) > 1:
                    found |= dict.fromkeys(same, same)
        return found

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.lens.vocabulary_size

    def embed(self, ids: Tensor) -> Tensor:
        """ids [...] to vectors [..., e]."""
        return F.embedding(ids.to(self.vectors.device), self.vectors)

    def check(self, input_ids: Any) -> Tensor:
        """Token ids [B, T] on the model's device, checked as `Lens.run` checks them."""
        return forward_inputs(self.lens, input_ids, None, None, None, self.sites)["input_ids"]

    # ---- running

    def run(self, input_ids: Any = None, *, inputs_embeds: Tensor | None = None, grad: bool = False) -> Tensor:
        """[B, T', w']; see `Slice.run`."""
        return self.part(self.states(input_ids, inputs_embeds=inputs_embeds, grad=grad))

    def states(
        self,
        input_ids: Any = None,
        *,
        inputs_embeds: Tensor | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Tensor:
        """The output at every position, [B, T, w'], before `tokens` and `pool` take their part.

        `extra` is handed to the model's forward (a cache, for example); the length is not checked then.
        """
        if input_ids is not None and inputs_embeds is None:
            input_ids = self.check(input_ids)
            if self.slice.embedding is not None:
                input_ids, inputs_embeds = None, self.embed(input_ids)
        if inputs_embeds is not None:
            inputs_embeds = inputs_embeds.to(self.lens.device, self.lens.input_embeddings.dtype)
        inputs = forward_inputs(self.lens, input_ids, inputs_embeds, None, None, self.sites)
        first = inputs["input_ids"] if inputs_embeds is None else inputs["inputs_embeds"]
        inputs |= self._frame(first.shape[0], first.shape[1]) | (extra or {})
        found: dict[str, Tensor] = {}

        def keep(site: str, tensor: Tensor) -> None:
            found[site] = tensor.clone() if self.lens._taps[site].overwritten else tensor

        with (
            torch.set_grad_enabled(grad),
            evaluating(self.lens.model),
            self.surgery.active(),
            Recorder(self._taps, keep, stop=True),
            contextlib.suppress(Stop),
        ):
            self.lens.model(**inputs)
        parts = [found[site] for site in self.sites]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return whole if self.width == whole.shape[-1] and isinstance(self._index, slice) else whole[..., self._index]

    def part(self, states: Tensor) -> Tensor:
        """The kept positions of states [B, T, w'], pooled if the slice says so."""
        kept = self.slice.kept(states.shape[1])
        chosen = states if len(kept) == states.shape[1] else states[:, kept[0] : kept[-1] + 1]
        if self.slice.pool is None:
            return chosen
        return {"mean": chosen.mean(1, keepdim=True), "first": chosen[:, :1], "last": chosen[:, -1:]}[self.slice.pool]

    def kept(self, length: int) -> list[int]:
        """The positions of the output that are seen, of an input of `length` tokens."""
        return self.slice.kept(length)

    @property
    def plain_input(self) -> bool:
        """Whether the model is given nothing but embeddings, so that a key-value cache may be used."""
        return self.slice.positions and (self.slice.causal is None or self.slice.causal == self._own_causal)

    def _frame(self, batch: int, length: int) -> dict[str, Any]:
        """Mask and positions, where the slice changes them."""
        frame: dict[str, Any] = {}
        if not self.slice.positions and "position_ids" in self._forward:
            frame["position_ids"] = torch.zeros(1, length, dtype=torch.int64, device=self.lens.device)
        causal = self._own_causal if self.slice.causal is None else self.slice.causal
        # Equal positions look like packed texts to transformers, which then masks them from one another; a mask of
        # four dimensions is taken as it is.
        if causal != self._own_causal or "position_ids" in frame:
            dtype = self.lens.input_embeddings.dtype
            mask = torch.zeros(length, length, dtype=dtype, device=self.lens.device)
            if causal:
                mask = mask.masked_fill(torch.ones_like(mask).triu(1).bool(), torch.finfo(dtype).min)
            frame["attention_mask"] = mask.expand(batch, 1, length, length)
        return frame

    def _measure_causal(self) -> bool:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, self.vocabulary_size, (1, _probe_length(self.lens)), generator=generator)
        embeds = self.embed(ids)
        changed = embeds.clone()
        changed[:, -1] = self.vectors.mean(0) + self.vectors.std() * torch.randn(
            embeds.shape[-1], generator=generator
        ).to(embeds)
        try:
            both = self.states(inputs_embeds=torch.cat([embeds, changed]))
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            if isinstance(error, BadInput):
                raise
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise BadInput(f"'{self.lens.name}' cannot be run as the slice '{self.slice}' asks: {text}.") from error
        return bool((both[0, :-1] == both[1, :-1]).all()) or _close(both[0, :-1], both[1, :-1])


def _close(one: Tensor, two: Tensor) -> bool:
    return bool((one.float() - two.float()).norm() <= 1e-6 * one.float().norm())


def _probe_length(lens: Lens) -> int:
    return min(4, lens.context_length or 4)


def _is_causal(lens: Lens) -> bool:
    """Whether the model as it is keeps later tokens from earlier outputs: seen at the deepest site, asked once."""
    if "_causal" not in lens.__dict__:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, lens.vocabulary_size, (2, _probe_length(lens)), generator=generator)
        ids[1, :-1] = ids[0, :-1]
        ids[1, -1] = (ids[0, -1] + 1) % lens.vocabulary_size
        site = lens.sites[-1]
        states = lens.run(ids, sites=site)[site]
        lens.__dict__["_causal"] = _close(states[0, :-1], states[1, :-1])
    return lens.__dict__["_causal"]


def _with_weights(slice_: Slice, lens: Lens) -> Lens:
    from headscan.model.lens import Lens as LensClass

    if slice_.weights is not None:
        lens = lens.twin(int(slice_.weights.partition(":")[2]))
    if slice_.bits is not None and getattr(lens.model, "is_quantized", False):
        raise BadInput(
            f"The weights of '{lens.name}' are quantised already: leave 'bits' away, or load the full weights."
        )
    if slice_.bits is not None:
        model = copy.deepcopy(lens.model)
        round_weights(model, slice_.bits)
        name = f"{lens.name} (weights of {slice_.bits} bits)"
        lens = LensClass(model, lens.tokenizer, name=name)
    return lens


def _other_table(name: str, lens: Lens) -> Tensor:
    own: Tensor = lens.input_embeddings
    kind, _, seed = name.partition(":")
    if kind == "random" and seed.isdigit():
        generator = torch.Generator().manual_seed(int(seed))
        table = torch.randn(own.shape, generator=generator) * own.detach().float().std().cpu()
        return table.to(own)
    table = type(lens).load(name).input_embeddings
    if table.shape != own.shape:
        raise BadInput(
            f"The embedding table of '{name}' has the shape {list(table.shape)}, not {list(own.shape)} as in '{lens.name}'."
        )
    return table.to(own)


def as_batch(ids: Sequence[int] | Tensor) -> Tensor:
    """Ids of one prompt [T] or of a batch [B, T] as [B, T]."""
    found = torch.as_tensor(ids)
    return found[None] if found.ndim == 1 else found
