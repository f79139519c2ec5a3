"""A release of every position: slices to run, and the loss of a model that goes on with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.leaks.defences import UNCHANGED, Change, Fitted, Map, Mechanism, working
from headscan.leaks.number_formats import NumberFormat
from headscan.model.framed import framed_ids
from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.cache_slice import CachePart
from headscan.model.slicing.mapped import Mapped
from headscan.text.tokens import Frame

Receiver = Callable[[str, float, torch.Generator], Change]
"""From a site, the noise and a generator to what the receiver has in place of the site's states."""
LossOf = Callable[[str, Int[Tensor, "B T"], Change], Float[Tensor, " B"]]
"""Nats a token of the model on each row of tokens if the states at a site are changed."""


@dataclass(frozen=True)
class Exposure:
    """A release at several sites.

    Attributes:
        sites: their names.
        combined: all of them as one slice, their features one after another.
        widths: of each site.
        alone: makes the slice of one site.
        parts: of each site the widths that are rounded together; empty where that is the whole.
        defence: the name of what is done to the release before the noise.
        rounded: whether that makes some releases equal, so that there are bits without noise.
        receiver: what whoever goes on with the states has of them; None for noise alone.
        loss: the model's loss with changed states; None where it cannot be run.
    """

    sites: tuple[str, ...]
    combined: SlicedModel
    widths: tuple[int, ...]
    alone: Callable[[str], SlicedModel]
    parts: tuple[tuple[int, ...], ...] = ()
    defence: str = "none"
    rounded: bool = False
    receiver: Receiver | None = None
    loss: LossOf | None = None

    @property
    def lens(self) -> Lens:
        return self.combined.lens

    def later_states(self, windows: Int[Tensor, "B T"]) -> list[Float[Tensor, "N w"]]:
        """Return each site's release at all positions but the first, which is often a sink."""
        states = self.combined.run(windows.to(self.lens.device))
        later = states[:, 1:].flatten(0, 1)
        return list(later.split(list(self.widths), 1))


def centred_rms(vectors: Float[Tensor, "N w"]) -> float:
    """Return the rms of the coordinates of vectors around their mean: the unit of the noise."""
    return float(vectors.var(0, unbiased=False).mean().sqrt())


def cross_entropy(logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Return nats a token of each row, of all its tokens but the first."""
    predictions = logits[:, :-1].double().flatten(0, 1)
    labels = ids[:, 1:].flatten().to(predictions.device)
    nats = torch.nn.functional.cross_entropy(predictions, labels, reduction="none")
    return nats.view(len(ids), -1).mean(1).cpu()


@torch.no_grad()
def loss_with(
    lens: Lens, site: str, ids: Int[Tensor, "B T"], change: Change
) -> Float[Tensor, " B"]:
    """Return nats a token of the model on each row if the states at a site are changed."""

    def changed(states: Tensor) -> Tensor:
        changed_states = states.clone()
        text = lens.frame.text(states.shape[1])
        changed_states[:, text] = change(states[:, text].float()).to(states.dtype)
        return changed_states

    with lens.patch({site: changed}):
        return cross_entropy(lens.run(ids, sites="head")["head"], ids)


@torch.no_grad()
def loss_with_cache(
    lens: Lens, layer: int, part: CachePart, ids: Int[Tensor, "B T"], change: Change
) -> Float[Tensor, " B"]:
    """Return nats a token of the model on each row if a layer's cache entries are changed."""
    framed = framed_ids(lens.inputs.ids(ids), Frame(lens.frame.front))
    inputs = lens.inputs.forward(framed, None, None, None, ("head",))
    added = len(lens.frame.front)
    inputs["past_key_values"] = ChangedCache([layer], change, part, lens.model.config, added)
    inputs["use_cache"] = True
    with evaluating(lens.model):
        return cross_entropy(lens.model(**inputs).logits[:, added:], ids)


class ChangedCache(DynamicCache):
    """A key-value cache that stores keys and values of some layers as `change` leaves them.

    It is given to a model as `past_key_values`; the first `added` positions stay as they are.

    >>> cache = ChangedCache([0], torch.zeros_like, "values")
    >>> keys, values = cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    >>> float(keys.sum()), float(values.sum())
    (24.0, 0.0)
    """

    def __init__(
        self,
        layers: Sequence[int],
        change: Change,
        part: CachePart = "both",
        config: Any = None,
        added: int = 0,
    ) -> None:
        super().__init__(config=config)
        self.added = added
        self.changed = set(layers)
        self.change = change
        self.part = part

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        if layer_idx in self.changed:
            if self.part != "values":
                key_states = self._changed(key_states)
            if self.part != "keys":
                value_states = self._changed(value_states)
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def _changed(self, entries: Float[Tensor, "B heads T size"]) -> Tensor:
        of_text = entries[:, :, self.added :]
        rows = self.change(of_text.transpose(1, 2).flatten(2).float())
        heads = entries.shape[1]
        by_head = rows.unflatten(2, (heads, -1)).transpose(1, 2).to(entries.dtype)
        return torch.cat([entries[:, :, : self.added], by_head], dim=2)


@torch.no_grad()
def protected(
    exposure: Exposure,
    defence: Mechanism | None,
    number_format: NumberFormat | None,
    windows: Int[Tensor, "B T"],
    seed: int,
) -> Exposure:
    """Return an exposure behind a defence, then a number format.

    Candidates pass both as the release did.
    """
    if defence is None and number_format is None:
        return exposure
    states = [part.float() for part in exposure.later_states(windows)]
    fits = [UNCHANGED if defence is None else defence.fit(part, seed) for part in states]
    widths = [
        fit.release(torch.zeros_like(part[:1])).shape[-1]
        for fit, part in zip(fits, states, strict=True)
    ]
    parts = exposure.parts
    if defence is not None or not parts:
        parts = tuple((width,) for width in widths)
    guarded = _Guarded(exposure, fits, parts, number_format)

    names = [item.name for item in (defence, number_format) if item is not None]
    label = " and ".join(names)
    description = label if defence is None else f"{label} {defence}"

    def alone(site: str) -> SlicedModel:
        return Mapped(exposure.alone(site), guarded.release(site), description)

    is_coarse = number_format is not None and number_format.name != "fp32"
    # A model does not go on with a cache behind a defence.
    loss = None if defence is not None and exposure.parts else exposure.loss
    return replace(
        exposure,
        combined=Mapped(exposure.combined, guarded.release_all, description),
        widths=tuple(widths),
        alone=alone,
        defence=label,
        rounded=is_coarse or (defence is not None and defence.rounds),
        receiver=guarded.receiver,
        loss=loss,
    )


@dataclass(frozen=True)
class _Guarded:
    """The maps of an exposure behind a defence and a number format.

    Attributes:
        exposure: the exposure as it was.
        fits: the defence at each site.
        parts: of each site the widths that are rounded together.
        number_format: the format of the release; None: as computed.
    """

    exposure: Exposure
    fits: list[Fitted]
    parts: tuple[tuple[int, ...], ...]
    number_format: NumberFormat | None

    def release(self, site: str) -> Map:
        """Return the map from a site's states to what is released."""
        index = self.exposure.sites.index(site)
        return _rounded(self.fits[index].release, self.number_format, self.parts[index])

    def release_all(self, values: Tensor) -> Tensor:
        """Return what is released of the features of all sites."""
        states = values.float().split(list(self.exposure.widths), -1)
        pieces = zip(self.exposure.sites, states, strict=True)
        return torch.cat([self.release(site)(piece) for site, piece in pieces], -1)

    def receiver(self, site: str, sigma: float, generator: torch.Generator) -> Change:
        """Return what the receiver has in place of a site's states."""
        index = self.exposure.sites.index(site)
        fit = self.fits[index]
        received = _rounded(fit.received, self.number_format, self.parts[index])
        return working(received, fit.restore, sigma, generator)


def _rounded(release: Map, number_format: NumberFormat | None, parts: tuple[int, ...]) -> Map:
    """Return a map followed by a number format, each part of a vector with scales of its own.

    A vector of another width than the parts' is rounded as a whole.
    """
    if number_format is None:
        return release
    by_part = number_format if len(parts) == 1 else number_format.each(parts)

    def rounded(values: Tensor) -> Tensor:
        released = release(values)
        if values.shape[-1] == sum(parts):
            return by_part(released)
        return number_format(released)

    return rounded
