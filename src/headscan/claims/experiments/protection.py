"""What is held to protect leaked states: their depth, few bits a number, a little noise; against the best attack there is."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import difference_of, share_of
from headscan.claims.protocol import StandIn
from headscan.claims.recovery import search_shown
from headscan.claims.stand_ins import ModelKind, about, lens_of, prompts
from headscan.leaks import Mapped, cache_slice, read_format, read_through_noise
from headscan.leaks.priors import prior_of
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel

__all__ = ["Depth", "FewBits", "LittleNoise", "Protection"]

PROMPTS, TOKENS = 8, 6
Arm: TypeAlias = tuple[str, bool, Float[Tensor, "prompts tokens"]]
"""A release in words, whether it counts as protected, and which tokens were recovered: 1, else 0."""


@dataclass(frozen=True, kw_only=True)
class Protection(Experiment):
    """Prompts are read off releases that are said to protect and off others; the effect is what the protection saves.

    The attack is the strongest known: whoever attacks has the model and knows how the release was made. A weaker one that fails
    would say nothing of what is in the release.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens read off the open release less that of the protected one",
        test="Newcombe's interval of a difference of two shares, clustered by prompt and seed",
        scope="one small trained model, prompts of the text it knows, an attacker who has the model and all positions",
        range=(-1.0, 1.0),
    )

    model: ModelKind = "specimen"

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The model of its kind."""
        return (about(self.model),)

    @abstractmethod
    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """What is recovered of each release of these prompts."""

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        found: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        sides: dict[bool, list[np.ndarray]] = {True: [], False: []}
        names = []
        for own in own_seeds(seed):
            lens, here = lens_of(self.model, own), defaultdict[bool, list[Tensor]](list)
            for name, protected, hits in self.arms(lens, prompts(self.model, own, PROMPTS, TOKENS), own):
                found[name].append(hits.numpy())
                here[protected].append(hits)
            for protected, rows in here.items():  # several releases of one prompt are one cluster
                sides[protected].append(torch.cat(rows, 1).numpy())
            names.append(lens.name)
        chance = 1 / lens.vocabulary_size
        opened, kept = (
            share_of(name, sides[side], chance=chance) for name, side in (("open", False), ("protected", True))
        )
        return ExperimentOutcome(
            effect=difference_of("tokens that it saves", opened, kept),
            beside=tuple(share_of(f"tokens read off, {name}", rows, chance=chance) for name, rows in found.items()),
            models=tuple(dict.fromkeys(names)),
        )  # fmt: skip


@EXPERIMENTS.register("depth-protects")
@dataclass(frozen=True, kw_only=True)
class Depth(Protection):
    """States of the first block, open, and of the middle and the last, without noise; exact search."""

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """See the class."""
        for name, block in (("first", 0), ("middle", (lens.depth - 1) // 2), ("last", lens.depth - 1)):
            yield f"{name} block", block > 0, _searched(_states(lens, block), ids)


@EXPERIMENTS.register("few-bits-protect")
@dataclass(frozen=True, kw_only=True)
class FewBits(Protection):
    """States of the middle block and its keys in the cache, as they are and in a number format; exact search, whose candidates
    are rounded as the release was.
    """

    format: str = "int4"

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """See the class."""
        middle, form = (lens.depth - 1) // 2, read_format(self.format)
        keys = cache_slice(lens, [middle], "keys")
        for name, cut, rounding in (("states", _states(lens, middle), form), ("keys", keys, form.each(keys.parts))):
            yield f"{name}, full", False, _searched(cut, ids)
            yield f"{name}, {self.format}", True, _searched(Mapped(cut, rounding, self.format), ids)


@EXPERIMENTS.register("little-noise-protects")
@dataclass(frozen=True, kw_only=True)
class LittleNoise(Protection):
    """States of the middle block: as they are, by exact search; with Gaussian noise of `share` of their coordinates' rms, by an
    attack that is told neither the noise nor a token.
    """

    share: float = 0.05

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """See the class."""
        cut, prior = _states(lens, (lens.depth - 1) // 2), prior_of("model", lens, [])
        with torch.no_grad():
            states = cut.run(ids)
        rms = float(states[:, 1:].flatten(0, 1).var(0, unbiased=False).mean().sqrt())
        noise = self.share * rms * torch.randn(states.shape, generator=torch.Generator().manual_seed(seed))
        yield "no noise", False, _searched(cut, ids)
        # One prefix is enough where noise is little: more would only be right more often, at their own cost.
        read = [read_through_noise(cut, one, prior, beam=1)[0] for one in states + noise]
        yield f"noise {self.share:.0%}", True, (torch.stack(read) == ids).double()


def _states(lens: Lens, block: int) -> SlicedModel:
    return Slice(sites=(f"block.{block}",)).on(lens)


@torch.no_grad()
def _searched(cut: SlicedModel, ids: Int[Tensor, "P T"]) -> Float[Tensor, "P T"]:
    return (search_shown(cut, cut.run(ids).float(), None) == ids).double()
