"""What is held to protect leaked states: their depth, few bits a number, a little noise; against
the best attack there is.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.attribution import attribute
from headscan.leaks import Mapped, cache_slice, read_format
from headscan.leaks.priors import Prior, prior_of
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords, Power
from headscan_lab.ledger.experiments.descents import causal, search_shown
from headscan_lab.ledger.measurement import (
    DIFFERENCE_TEST,
    SEEDS,
    difference_of,
    mean_of,
    own_seeds,
    share_of,
)
from headscan_lab.ledger.stand_ins import TWIN, VOCABULARY, OnModels, lens_of, prompts

PROTECTION_PROMPTS = 8
TOKENS = 6
Arm: TypeAlias = tuple[str, bool, Float[Tensor, "prompts tokens"]]
"""A release in words, whether it counts as protected, and which tokens were recovered: 1, else 0.
"""


@dataclass(frozen=True, kw_only=True)
class Protection(OnModels):
    """Prompts are read off releases that are said to protect and off others; the effect is what the
    protection saves.

    The attack is the strongest known: whoever attacks has the model and knows how the release was
    made. A weaker one that fails would say nothing of what is in the release.
    """

    words = ExperimentWords(
        quantity="share of tokens read off the open release less that of the protected one",
        test=DIFFERENCE_TEST,
        scope="one small trained model, prompts of the text it knows, an attacker who has the "
        "model and all positions",
        range=(-1.0, 1.0),
    )

    most: ClassVar[int] = (
        # tokens of a vocabulary: noise and few bits are read through by much of it at every
        # position
        8192
    )

    model: str = "specimen"

    def on(self, model: str) -> Self | None:
        fits = (
            not model.startswith(TWIN)
            and causal(lens := lens_of(model))
            and lens.vocabulary_size <= self.most
        )
        return replace(self, model=model) if fits else None

    @abstractmethod
    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """What is recovered of each release of these prompts."""

    def observe(self, seed: int) -> ExperimentOutcome:
        found: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        sides: dict[bool, list[np.ndarray]] = {True: [], False: []}
        names = []
        for own in own_seeds(seed):
            lens = lens_of(self.model, own)
            here = defaultdict[bool, list[Tensor]](list)
            for name, protected, hits in self.arms(
                lens, prompts(self.model, own, PROTECTION_PROMPTS, TOKENS), own
            ):
                found[name].append(hits.numpy())
                here[protected].append(hits)
            for protected, rows in here.items():  # several releases of one prompt are one cluster
                sides[protected].append(torch.cat(rows, 1).numpy())
            names.append(lens.name)
        chance = 1 / lens.vocabulary_size
        opened, kept = (
            share_of(name, sides[side], chance=chance)
            for name, side in (("open", False), ("protected", True))
        )
        return ExperimentOutcome(
            effect=difference_of("tokens that it saves", opened, kept),
            beside=tuple(
                share_of(f"tokens read off, {name}", rows, chance=chance)
                for name, rows in found.items()
            ),
            models=tuple(dict.fromkeys(names)),
        )


@EXPERIMENTS.register("depth-protects")
class Depth(Protection):
    """States of the first block, open, and of the middle and the last, without noise; exact search."""

    most = 65_536  # exact search needs few candidates

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        for name, block in (
            ("first", 0),
            ("middle", (lens.depth - 1) // 2),
            ("last", lens.depth - 1),
        ):
            yield f"{name} block", block > 0, _searched(_states(lens, block), ids)


@EXPERIMENTS.register("few-bits-protect")
class FewBits(Protection):
    """States of the middle block and its keys in the cache, as they are and in a number format;
    exact search, whose candidates are rounded as the release was.
    """

    format: str = "int4"

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        middle = (lens.depth - 1) // 2
        form = read_format(self.format)
        keys = cache_slice(lens, [middle], "keys")
        for name, cut, rounding in (
            ("states", _states(lens, middle), form),
            ("keys", keys, form.each(keys.parts)),
        ):
            yield f"{name}, full", False, _searched(cut, ids)
            yield f"{name}, {self.format}", True, _searched(Mapped(cut, rounding, self.format), ids)


@EXPERIMENTS.register("little-noise-protects")
class LittleNoise(Protection):
    """States of the middle block: as they are, by exact search; with Gaussian noise of `share` of
    their coordinates' rms, by an attack that is told neither the noise nor a token.
    """

    share: float = 0.05

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        cut = _states(lens, (lens.depth - 1) // 2)
        prior = prior_of("model", lens, [])
        with torch.no_grad():
            states = cut.run(ids)
        rms = float(states[:, 1:].flatten(0, 1).var(0, unbiased=False).mean().sqrt())
        noise = (
            self.share
            * rms
            * torch.randn(states.shape, generator=torch.Generator().manual_seed(seed))
        )
        yield "no noise", False, _searched(cut, ids)
        read = [_read_through_noise(cut, released, prior) for released in states + noise]
        yield f"noise {self.share:.0%}", True, (torch.stack(read) == ids).double()


def _states(lens: Lens, block: int) -> SlicedModel:
    return Slice(sites=(f"block.{block}",)).on(lens)


@torch.no_grad()
def _read_through_noise(
    cut: SlicedModel, seen: Float[Tensor, "T w"], prior: Prior
) -> Int[Tensor, " T"]:
    """The likeliest tokens of states with Gaussian noise of unknown size, from left to right.

    With residuals r of n numbers so far the likelihood, at the noise that makes it largest (σ² = Σ
    r² / n), is −(n/2) ln Σ r² up to a constant: that plus ln p of the token decides. One prefix is
    followed, which is enough where noise is little.
    """
    ids = torch.zeros(1, 0, dtype=torch.int64)
    goal = seen.double().cpu()
    every = torch.arange(cut.vocabulary_size, device=cut.lens.device)
    squares = torch.zeros(1, dtype=torch.float64)
    for place, target in enumerate(goal):
        points = Prefix(cut, ids).evaluate(torch.zeros_like(every), every).cpu().double()
        far = (points - target).square().sum(1) + squares
        beliefs = prior(ids)[0, -1].log() if place else torch.zeros_like(far)
        best = (beliefs - (place + 1) * goal.shape[1] / 2 * far.clamp_min(1e-300).log()).argmax()
        ids = torch.cat([ids, best.view(1, 1)], 1)
        squares = far[best]
    return ids[0]


@torch.no_grad()
def _searched(cut: SlicedModel, ids: Int[Tensor, "P T"]) -> Float[Tensor, "P T"]:
    return (search_shown(cut, cut.run(ids).float(), None) == ids).double()


# ---- How good a code of its own token one state is under noise: random weights against trained ones.


@EXPERIMENTS.register("noisy-code")
class NoisyCode(OnModels):
    """The first block's states of all single tokens, with noise of `noise` times their spread:
    nearest state decoding, before training (the same shape, fresh weights) less after.
    """

    words = ExperimentWords(
        quantity="share of tokens decoded from a noisy state, untrained less trained",
        test="Newcombe's interval of a difference of two shares, clustered by token and seed",
        scope="small models of one shape, single tokens, one level of noise",
        range=(-1.0, 1.0),
    )

    noise: float = 1.0
    model: str = "taught"

    def on(self, model: str) -> Self | None:
        return None if model.startswith(TWIN) else replace(self, model=model)

    def observe(self, seed: int) -> ExperimentOutcome:
        shares: dict[str, list[np.ndarray]] = {"untrained": [], "trained": []}
        for own in own_seeds(seed):
            lens = lens_of(self.model, own)
            order = torch.randperm(
                lens.vocabulary_size, generator=torch.Generator().manual_seed(own)
            )
            ids = order[:VOCABULARY].sort().values  # all of a stand-in's
            for name, model in (
                ("trained", lens),
                ("untrained", lens.random_init(own, first_block=True)),
            ):
                states = Slice().on(model).states(ids[:, None])[:, 0].float()
                drawn = torch.randn(states.shape, generator=torch.Generator().manual_seed(own))
                noisy = states + self.noise * float(states.std(0).mean()) * drawn
                shares[name].append(
                    (torch.cdist(noisy, states).argmin(1) == torch.arange(len(ids)))
                    .double()[:, None]
                    .numpy()
                )
        before, after = (
            share_of(f"tokens decoded, {name}", rows, chance=1 / len(ids))
            for name, rows in shares.items()
        )
        return ExperimentOutcome(
            effect=difference_of("tokens decoded, untrained less trained", before, after),
            beside=(before, after),
            models=tuple(dict.fromkeys(lens_of(self.model, own).name for own in own_seeds(seed))),
        )


# ---- Deletion curves of attribution methods: how fast the prediction goes when tokens go in a method's order.

DELETION_PROMPTS = 6
LENGTH = 7
METHODS = ("gradient-x-input", "occlusion", "combined")
LARGE = 100_000_000  # parameters: the curves of SmolLM2's 135 M take more than ten minutes


@EXPERIMENTS.register("deletion")
class Deletion(OnModels):
    """The area under the deletion curve of `method` less that of the best of `against` ("random" is
    a random order); below zero, the method's order takes the prediction away faster.
    """

    words = ExperimentWords(
        quantity="area under the method's deletion curve less the least of those it is held "
        "against, a training seed",
        test="interval of the mean over training seeds, the prompts of a seed averaged",
        scope="small models of a made-up language; tokens are replaced by the mean embedding",
        range=(-1.0, 1.0),
    )
    power = Power(SEEDS, 200)

    method: str = "gradient-x-input"
    against: tuple[str, ...] = ("random",)
    model: str = "taught"

    def __post_init__(self) -> None:
        object.__setattr__(self, "against", tuple(self.against))

    def on(self, model: str) -> Self | None:
        if model.startswith(TWIN):
            return None
        return (
            None
            if (lens_of(model).provenance().parameters or 0) > LARGE
            else replace(self, model=model)
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        areas = _areas(self.model, seed)
        least = [min(areas[one][k] for one in self.against) for k in range(SEEDS)]
        many = SEEDS * DELETION_PROMPTS
        area = partial(
            mean_of, unit="probability", bounds=(-1.0, 1.0), tokens=many * LENGTH, prompts=many
        )
        apart = [mine - other for mine, other in zip(areas[self.method], least, strict=True)]
        name = f"deletion area of {self.method} less {' or '.join(self.against)}"
        return ExperimentOutcome(
            effect=area(name, apart, chance=0.0),
            beside=tuple(
                area(f"deletion area of {one}", areas[one]) for one in (self.method, *self.against)
            ),
            models=tuple(dict.fromkeys(lens_of(self.model, own).name for own in own_seeds(seed))),
        )


@lru_cache(maxsize=4)
def _areas(model: str, seed: int) -> dict[str, list[float]]:
    """By method, and for random orders, a mean area a training seed."""
    found: dict[str, list[float]] = {name: [] for name in (*METHODS, "random")}
    for own in own_seeds(seed):
        lens = lens_of(model, own)
        sums = dict.fromkeys(found, 0.0)
        for ids in prompts(model, own, DELETION_PROMPTS, LENGTH):
            for method in METHODS:
                judged = attribute(
                    lens, ids.tolist(), method=method, signed=False, substitute="mean"
                ).faithfulness
                assert judged is not None
                sums[method] += judged.deletion.area / DELETION_PROMPTS
                if method == METHODS[0]:
                    sums["random"] += judged.random.deletion / DELETION_PROMPTS
        for name, value in sums.items():
            found[name].append(value)
    return found
