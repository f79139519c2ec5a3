"""What may be done to a release before the noise: a known map, and the way back to the model's own states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.channel import Channel
from headscan.leaks.rounding import NumberFormat
from headscan.model.slicing.mapped import Mapped
from headscan.run import Registry, Settings

__all__ = ["DEFENCES", "Defence", "Fitted", "protected"]

Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]


@dataclass(frozen=True)
class Fitted:
    """A defence made ready for one site.

    Attributes:
        seen: from states to what is released, in coordinates in which the noise is equal and independent.
        back: from what is released to states, for whoever goes on with them.
    """

    seen: Map
    back: Map


@dataclass(frozen=True, kw_only=True)
class Defence(Settings, ABC):
    """A map that the attacker knows. Its fields are its parameters: options of the command line.

    All bounds hold for what is seen after it: a defence that is a known invertible map with noise of the same power changes
    no distance and therefore no bit.
    """

    name: ClassVar[str]

    @abstractmethod
    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        """Made ready on states of the site."""


DEFENCES: Registry[type[Defence]] = Registry("defence", "headscan.leaks.defences")
"""All defences by name."""


@torch.no_grad()
def protected(
    channel: Channel, defence: Defence | None, form: NumberFormat | None, windows: Int[Tensor, "B T"], seed: int
) -> Channel:
    """A channel behind a defence, then a number format: candidates pass both as the release did."""
    if defence is None and form is None:
        return channel
    raw = channel.together.run(windows.to(channel.together.lens.device))[:, 1:].flatten(0, 1).float()
    fits = [_fit(defence, part, seed) for part in raw.split(list(channel.widths), 1)]
    shapes = [
        fit.seen(raw[:1, :0].new_zeros(1, width)).shape[-1] for fit, width in zip(fits, channel.widths, strict=True)
    ]
    parts = channel.parts if defence is None and channel.parts else tuple((width,) for width in shapes)
    maps = [_then(fit.seen, form, part) for fit, part in zip(fits, parts, strict=True)]
    words = [defence.name if defence else "", form.name if form else ""]
    label = " and ".join(word for word in words if word)
    what = f"{label} {defence}" if defence else label

    def every(values: Tensor) -> Tensor:
        pieces = values.float().split(list(channel.widths), -1)
        return torch.cat([apply(piece) for apply, piece in zip(maps, pieces, strict=True)], -1)

    def alone(name: str) -> Mapped:
        return Mapped(channel.alone(name), maps[channel.names.index(name)], what)

    return replace(
        channel, together=Mapped(channel.together, every, what), widths=tuple(shapes), alone=alone, defence=label,
        rounded=form is not None and form.name != "fp32",
        seen=dict(zip(channel.names, maps, strict=True)),
        back={name: fit.back for name, fit in zip(channel.names, fits, strict=True)},
        loss=None if defence is not None and channel.parts else channel.loss,
    )  # fmt: skip


def _fit(defence: Defence | None, states: Tensor, seed: int) -> Fitted:
    return Fitted(_same, _same) if defence is None else defence.fit(states, seed)


def _then(seen: Map, form: NumberFormat | None, parts: Sequence[int]) -> Map:
    """A map, then the format, with scales of its own for each part; of one part, whatever its width."""
    if form is None:
        return seen
    each: Any = form if len(parts) == 1 else form.each(tuple(parts))
    return lambda values: (
        each(seen(values)) if values.shape[-1] == sum(parts) or len(parts) == 1 else form(seen(values))
    )


def _same(values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    return values
