"""What may be done to a release: a map before the noise, the noise's law, what is withheld, and the way back to states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import GAUSSIAN, Law
from headscan.leaks.channel import Change, Channel
from headscan.leaks.rounding import NumberFormat
from headscan.model.lens import Lens
from headscan.model.slicing.mapped import Mapped
from headscan.run import Registry, Settings

__all__ = ["DEFENCES", "Defence", "Fitted", "protected", "working"]

Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]


@dataclass(frozen=True)
class Fitted:
    """A defence made ready for one site.

    Attributes:
        seen: from states to what is released, in coordinates in which the noise is equal and independent.
        back: from what is released to states, for whoever goes on with them.
        kept: what the receiver has in place of `seen`, where he knows something that the attacker does not.
        absent: [d] what stands for a state that was withheld.
    """

    seen: Map
    back: Map
    kept: Map | None = None
    absent: Float[Tensor, " d"] | None = None


@dataclass(frozen=True, kw_only=True)
class Defence(Settings, ABC):
    """A map that the attacker knows, a law of noise, and what is withheld. Its fields are its parameters: options.

    All bounds hold for what is seen after it: a defence that is a known invertible map with noise of the same power changes
    no distance and therefore no bit.
    """

    name: ClassVar[str]
    law: ClassVar[Law] = GAUSSIAN
    """Of the noise, which `--noise` makes large or small."""
    rounds: ClassVar[bool] = False
    """Whether it makes some releases equal, so that there are bits without noise."""

    @abstractmethod
    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """Made ready on states of the site."""

    def withheld(self, place: int) -> bool:
        """Whether nothing is released of the token at this position; the attacker knows it."""
        return False


DEFENCES: Registry[type[Defence]] = Registry("defence", "headscan.leaks.defences")
"""All defences by name."""


def working(
    defence: Defence | None, seen: Map, back: Map, absent: Tensor | None, sigma: float, generator: torch.Generator
) -> Change:
    """From states to what whoever goes on with them has of them: released, with noise, and brought back."""
    law = GAUSSIAN if defence is None else defence.law

    def change(states: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        out = seen(states)
        found = back(out + sigma * law.draw(out.shape, generator).to(out) if sigma else out)
        gone = [place for place in range(states.shape[-2]) if defence is not None and defence.withheld(place)]
        if gone and absent is not None:
            found = found.clone()
            found[..., gone, :] = absent.to(found)
        return found

    return change


@torch.no_grad()
def protected(
    channel: Channel, defence: Defence | None, form: NumberFormat | None, windows: Int[Tensor, "B T"], seed: int
) -> Channel:
    """A channel behind a defence, then a number format: candidates pass both as the release did."""
    if defence is None and form is None:
        return channel
    lens = channel.together.lens
    raw = channel.together.run(windows.to(lens.device))[:, 1:].flatten(0, 1).float()
    fits = [
        Fitted(_same, _same) if defence is None else defence.fit(part, seed, lens)
        for part in raw.split(list(channel.widths), 1)
    ]
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

    def change(name: str, sigma: float, generator: torch.Generator) -> Change:
        place = channel.names.index(name)
        fit = fits[place]
        has = maps[place] if fit.kept is None else _then(fit.kept, form, parts[place])
        return working(defence, has, fit.back, fit.absent, sigma, generator)

    return replace(
        channel, together=Mapped(channel.together, every, what), widths=tuple(shapes), alone=alone, defence=label,
        rounded=(form is not None and form.name != "fp32") or (defence is not None and defence.rounds),
        law=GAUSSIAN if defence is None else defence.law, working=change,
        withheld=channel.withheld if defence is None else defence.withheld,
        loss=None if defence is not None and channel.parts else channel.loss,
    )  # fmt: skip


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


plain = partial(working, None, _same, _same, None)
"""Gaussian noise alone: from sigma and a generator to the change."""
