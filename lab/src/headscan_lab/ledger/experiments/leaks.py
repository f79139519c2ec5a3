"""Claims about what protects leaked states (depth, few bits, noise), and about attributions."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
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
from headscan_lab.ledger.experiments.search import is_causal, search_shown
from headscan_lab.ledger.language import VOCABULARY
from headscan_lab.ledger.measurement import (
    DIFFERENCE_TEST,
    SEEDS,
    difference_of,
    mean_of,
    repeat_seeds,
    share_of,
)
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import OnModels, lens_of, prompts

PROTECTION_PROMPTS = 8
TOKENS = 6


@dataclass(frozen=True, eq=False)
class Arm:
    """A release that was attacked.

    Attributes:
        name: the release in words.
        protected: whether it counts as protected.
        hits: which tokens [prompts, T] were recovered: 1, else 0.
    """

    name: str
    protected: bool
    hits: Float[Tensor, "prompts tokens"]


@dataclass(frozen=True, kw_only=True)
class Protection(OnModels):
    """The share of tokens that a protection saves from being read off a release.

    The attack is the strongest known: the attacker has the model and knows how the release was
    made. A weaker attack that fails would say nothing of what is in the release.
    """

    words = ExperimentWords(
        quantity="share of tokens read off the open release less that of the protected one",
        test=DIFFERENCE_TEST,
        scope="one small trained model, prompts of the text it knows, an attacker who has the "
        "model and all positions",
        range=(-1.0, 1.0),
    )

    # The largest vocabulary: an attack on noise and few bits tries much of it at every position.
    most: ClassVar[int] = 8192

    model: str = "specimen"

    def on(self, model: str) -> Self | None:
        if model.startswith(RANDOM_TWIN):
            return None
        lens = lens_of(model)
        if not is_causal(lens) or lens.vocabulary_size > self.most:
            return None
        return replace(self, model=model)

    @abstractmethod
    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        """Yield what is recovered of each release of these prompts."""

    def observe(self, seed: int) -> ExperimentOutcome:
        hits_by_release: defaultdict[str, list[npt.NDArray[np.float64]]] = defaultdict(list)
        open_hits = []
        protected_hits = []
        names = []
        chance = 1.0
        for repeat_seed in repeat_seeds(seed):
            lens = lens_of(self.model, repeat_seed)
            ids = prompts(self.model, repeat_seed, PROTECTION_PROMPTS, TOKENS)
            arms = list(self.arms(lens, ids, repeat_seed))
            for arm in arms:
                hits_by_release[arm.name].append(arm.hits.numpy())
            # Several releases of one prompt are one cluster.
            open_hits.append(_joined([arm for arm in arms if not arm.protected]))
            protected_hits.append(_joined([arm for arm in arms if arm.protected]))
            names.append(lens.name)
            chance = 1 / lens.vocabulary_size
        open_share = share_of("open", open_hits, chance=chance)
        protected_share = share_of("protected", protected_hits, chance=chance)
        beside = []
        for name, hits in hits_by_release.items():
            beside.append(share_of(f"tokens read off, {name}", hits, chance=chance))
        return ExperimentOutcome(
            effect=difference_of("tokens that it saves", open_share, protected_share),
            beside=tuple(beside),
            models=tuple(dict.fromkeys(names)),
        )


def _joined(arms: list[Arm]) -> npt.NDArray[np.float64]:
    """Return the hits [prompts, tokens of all arms]."""
    return torch.cat([arm.hits for arm in arms], 1).numpy()


@EXPERIMENTS.register("depth-protects")
class Depth(Protection):
    """Depth as protection: states of the middle and last block against the first; exact search."""

    most = 65_536  # exact search needs few candidates

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        last = lens.depth - 1
        blocks = {"first": 0, "middle": last // 2, "last": last}
        for name, block in blocks.items():
            yield Arm(f"{name} block", block > 0, _searched(_states(lens, block), ids))


@EXPERIMENTS.register("few-bits-protect")
class FewBits(Protection):
    """Few bits as protection: states and cached keys of the middle block in a number format.

    The attack is exact search, whose candidates are rounded as the release was.
    """

    format: str = "int4"

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        middle = (lens.depth - 1) // 2
        rounding = read_format(self.format)
        states = _states(lens, middle)
        rounded_states = Mapped(states, rounding, self.format)
        yield Arm("states, full", False, _searched(states, ids))
        yield Arm(f"states, {self.format}", True, _searched(rounded_states, ids))

        keys = cache_slice(lens, [middle], "keys")
        rounded_keys = Mapped(keys, rounding.each(keys.parts), self.format)
        yield Arm("keys, full", False, _searched(keys, ids))
        yield Arm(f"keys, {self.format}", True, _searched(rounded_keys, ids))


@EXPERIMENTS.register("little-noise-protects")
class LittleNoise(Protection):
    """Noise as protection: states of the middle block with Gaussian noise.

    The noise is `share` of the coordinates' rms; the attack knows neither its size nor a token. The
    states without noise are read by exact search.
    """

    share: float = 0.05

    def arms(self, lens: Lens, ids: Int[Tensor, "P T"], seed: int) -> Iterator[Arm]:
        cut = _states(lens, (lens.depth - 1) // 2)
        prior = prior_of("model", lens, [])
        with torch.no_grad():
            states = cut.run(ids)
        variances = states[:, 1:].flatten(0, 1).var(0, unbiased=False)
        rms = float(variances.mean().sqrt())
        generator = torch.Generator().manual_seed(seed)
        noise = self.share * rms * torch.randn(states.shape, generator=generator)
        yield Arm("no noise", False, _searched(cut, ids))
        tokens = [_read_through_noise(cut, released, prior) for released in states + noise]
        hits = (torch.stack(tokens) == ids).double()
        yield Arm(f"noise {self.share:.0%}", True, hits)


def _states(lens: Lens, block: int) -> SlicedModel:
    return Slice(sites=(f"block.{block}",)).on(lens)


@torch.no_grad()
def _read_through_noise(
    cut: SlicedModel, released: Float[Tensor, "T w"], prior: Prior
) -> Int[Tensor, " T"]:
    """Return the likeliest tokens of states with Gaussian noise of unknown size, left to right.

    With residuals r of n numbers so far the likelihood, at the noise that makes it largest (σ² = Σ
    r² / n), is −(n/2) ln Σ r² up to a constant: that plus ln p of the token decides. One prefix is
    followed, which is enough where noise is little.
    """
    ids = torch.zeros(1, 0, dtype=torch.int64)
    targets = released.double().cpu()
    width = targets.shape[1]
    vocabulary = torch.arange(cut.vocabulary_size, device=cut.lens.device)
    squares = torch.zeros(1, dtype=torch.float64)  # Σ r² of the tokens so far
    for position, target in enumerate(targets):
        prefix = Prefix(cut, ids)
        candidates = prefix.evaluate(torch.zeros_like(vocabulary), vocabulary).cpu().double()
        sums = (candidates - target).square().sum(1) + squares
        log_prior = prior(ids)[0, -1].log() if position else torch.zeros_like(sums)
        log_likelihood = -((position + 1) * width / 2 * sums.clamp_min(1e-300).log())
        best = (log_prior + log_likelihood).argmax()
        ids = torch.cat([ids, best.view(1, 1)], 1)
        squares = sums[best]
    return ids[0]


@torch.no_grad()
def _searched(cut: SlicedModel, ids: Int[Tensor, "P T"]) -> Float[Tensor, "P T"]:
    """Return which tokens exact search finds of a release: 1, else 0."""
    return (search_shown(cut, cut.run(ids).float(), None) == ids).double()


@EXPERIMENTS.register("noisy-code")
class NoisyCode(OnModels):
    """The share of single tokens decoded from noisy states of the first block, untrained less
    trained.

    The noise is `noise` times the states' spread; a state is decoded to the nearest one. The
    untrained model has the same shape and fresh weights.
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
        return None if model.startswith(RANDOM_TWIN) else replace(self, model=model)

    def observe(self, seed: int) -> ExperimentOutcome:
        untrained_hits = []
        trained_hits = []
        names = []
        chance = 1.0
        for repeat_seed in repeat_seeds(seed):
            lens = lens_of(self.model, repeat_seed)
            generator = torch.Generator().manual_seed(repeat_seed)
            order = torch.randperm(lens.vocabulary_size, generator=generator)
            ids = order[:VOCABULARY].sort().values  # all tokens of a proxy
            trained_hits.append(self._decoded(lens, ids, repeat_seed))
            fresh = lens.random_init(repeat_seed, first_block=True)
            untrained_hits.append(self._decoded(fresh, ids, repeat_seed))
            names.append(lens.name)
            chance = 1 / len(ids)
        untrained = share_of("tokens decoded, untrained", untrained_hits, chance=chance)
        trained = share_of("tokens decoded, trained", trained_hits, chance=chance)
        return ExperimentOutcome(
            effect=difference_of("tokens decoded, untrained less trained", untrained, trained),
            beside=(untrained, trained),
            models=tuple(dict.fromkeys(names)),
        )

    def _decoded(self, lens: Lens, ids: Tensor, seed: int) -> npt.NDArray[np.float64]:
        """Return which single tokens [n, 1] are decoded from their noisy state."""
        states = Slice().on(lens).states(ids[:, None])[:, 0].float()
        normal = torch.randn(states.shape, generator=torch.Generator().manual_seed(seed))
        noisy = states + self.noise * float(states.std(0).mean()) * normal
        nearest = torch.cdist(noisy, states).argmin(1)
        return (nearest == torch.arange(len(ids))).double()[:, None].numpy()


DELETION_PROMPTS = 6
LENGTH = 7
METHODS = ("gradient-x-input", "occlusion", "combined")
LARGEST_MODEL = 100_000_000  # parameters: the curves of SmolLM2's 135 M take over ten minutes


@EXPERIMENTS.register("deletion")
class Deletion(OnModels):
    """The area under the deletion curve of an attribution method less the least of others.

    `against` names the others ("random": a random order). Below zero, the method's order removes
    the prediction faster.
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
        if model.startswith(RANDOM_TWIN):
            return None
        if (lens_of(model).provenance().parameters or 0) > LARGEST_MODEL:
            return None
        return replace(self, model=model)

    def observe(self, seed: int) -> ExperimentOutcome:
        areas = _areas(self.model, seed)
        seeds = repeat_seeds(seed)
        differences = []
        for repeat in range(len(seeds)):
            least = min(areas[method][repeat] for method in self.against)
            differences.append(areas[self.method][repeat] - least)
        prompt_count = SEEDS * DELETION_PROMPTS
        area = partial(
            mean_of,
            unit="probability",
            bounds=(-1.0, 1.0),
            tokens=prompt_count * LENGTH,
            prompts=prompt_count,
        )
        name = f"deletion area of {self.method} less {' or '.join(self.against)}"
        beside = []
        for method in (self.method, *self.against):
            beside.append(area(f"deletion area of {method}", areas[method]))
        names = [lens_of(self.model, repeat_seed).name for repeat_seed in seeds]
        return ExperimentOutcome(
            effect=area(name, differences, chance=0.0),
            beside=tuple(beside),
            models=tuple(dict.fromkeys(names)),
        )


@lru_cache(maxsize=4)
def _areas(model: str, seed: int) -> dict[str, list[float]]:
    """Return the mean deletion area of each repeat, by method, and for random orders."""
    areas: dict[str, list[float]] = {method: [] for method in (*METHODS, "random")}
    for repeat_seed in repeat_seeds(seed):
        lens = lens_of(model, repeat_seed)
        sums = dict.fromkeys(areas, 0.0)
        for ids in prompts(model, repeat_seed, DELETION_PROMPTS, LENGTH):
            for method in METHODS:
                faithfulness = attribute(
                    lens, ids.tolist(), method=method, signed=False, substitute="mean"
                ).faithfulness
                assert faithfulness is not None
                sums[method] += faithfulness.deletion.area / DELETION_PROMPTS
                if method == METHODS[0]:
                    sums["random"] += faithfulness.random.deletion / DELETION_PROMPTS
        for method, value in sums.items():
            areas[method].append(value)
    return areas
