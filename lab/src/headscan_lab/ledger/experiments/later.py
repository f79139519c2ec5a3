"""Claims of four later papers on trained models in general.

Each is tried on the specimen and on models of the user: 2404.07647 (a head of low rank), 2401.12143
(anisotropy and self-attention), 2603.10145 (the gradient that a head hands on), 2511.14808
(collisions of prompts). 2510.06477 (sinks, compression, massive activations) stands in massive.py.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.measures.attention import head_rows, watched
from headscan.measures.cone import average_cosine
from headscan.measures.kept_gradient import GradientThroughHead
from headscan.model import Lens
from headscan.run import BadInput
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.on_texts import LENGTH, ROWS, OnTexts, rank_correlation
from headscan_lab.ledger.measurement import exactly, repeat_seeds
from headscan_lab.ledger.proxies import lens_of, prompts

CHARACTERS = 300  # the largest vocabulary of a model of characters or bytes


@EXPERIMENTS.register("drift")
class Drift(OnTexts):
    """The drift of states, queries and keys in one direction.

    `states`: rank correlation over sites of the mean vector's norm with the average cosine.
    `heads`: |cosine| of a head's mean query and mean key, over all heads, less that of a first
    block with random weights. `untrained`: average cosine that a first block of random weights adds
    to token vectors which share a direction. `characters`: average cosine over the blocks of a
    model whose vocabulary has at most 300 tokens.
    """

    words = ExperimentWords(
        quantity="rank correlation over sites; difference of |cosine|; difference of the average "
        "cosine; average cosine",
        test="interval of the mean over five repeats",
        scope="this model, windows of 48 tokens",
        range=(-1.0, 1.0),
    )

    measure: Literal["states", "heads", "untrained", "characters"] = "states"

    def observe(self, seed: int) -> ExperimentOutcome:
        lens = lens_of(self.model)
        seeds = repeat_seeds(seed, self.times)
        if self.measure == "states":
            return self.outcome(
                "norm of the mean vector with the average cosine, over sites",
                [_norm_with_cosine(self.model, repeat_seed) for repeat_seed in seeds],
                "rank correlation",
            )
        if self.measure == "heads":
            return self.outcome(
                "|cosine| of mean query and mean key, less that of random weights",
                [_trained_query_key_cosine(self.model, repeat_seed) for repeat_seed in seeds],
                "cosine",
            )
        if self.measure == "untrained":
            return self.outcome(
                "average cosine after an untrained block, less that before it",
                [_cosine_of_untrained_block(lens, repeat_seed) for repeat_seed in seeds],
                "cosine",
            )
        if lens.vocabulary_size > CHARACTERS:
            note = (
                f"{lens.name} is no model of characters or bytes: its vocabulary has "
                f"{lens.vocabulary_size:,} tokens."
            )
            return ExperimentOutcome(effect=None, note=note)
        return self.outcome(
            "average cosine over the blocks",
            [_mean_block_cosine(self.model, repeat_seed) for repeat_seed in seeds],
            "cosine",
        )


@dataclass(frozen=True)
class SiteDrift:
    """The norm of the mean vector at a site, and the average cosine."""

    mean_norm: float
    average_cosine: float


@cache
def drift_by_site(kind: str, seed: int) -> list[SiteDrift]:
    """Return the drift at each default site, with position 0 left out."""
    lens = lens_of(kind)
    with torch.no_grad():
        states = lens.run(prompts(kind, seed, ROWS, LENGTH), sites=lens.default_sites)
    drifts = []
    for site_states in states.values():
        later_states = site_states[:, 1:]
        mean_norm = float(later_states.mean((0, 1)).norm())
        drifts.append(SiteDrift(mean_norm, _cosine(later_states)))
    return drifts


def _cosine(states: Tensor) -> float:
    return float(average_cosine(states.flatten(0, 1).double().numpy()) or 0.0)


def _norm_with_cosine(kind: str, seed: int) -> float:
    drifts = drift_by_site(kind, seed)
    norms = [drift.mean_norm for drift in drifts]
    cosines = [drift.average_cosine for drift in drifts]
    return rank_correlation(norms, cosines)


def _mean_block_cosine(kind: str, seed: int) -> float:
    blocks = drift_by_site(kind, seed)[1:]  # without the embedding
    return float(np.mean([drift.average_cosine for drift in blocks]))


def _trained_query_key_cosine(kind: str, seed: int) -> float:
    """Return |cosine| of mean query and key over all heads, less that of random weights."""
    lens = lens_of(kind)
    ids = prompts(kind, seed, ROWS, LENGTH)
    trained = _query_key_cosine(lens, ids)
    return float(trained - _query_key_cosine(lens.random_init(seed, first_block=True), ids))


def _query_key_cosine(lens: Lens, ids: Tensor) -> np.floating:
    rows = head_rows(watched(lens, [ids])[0])
    return np.mean([abs(float(row["drift_cosine"] or 0.0)) for row in rows])  # type: ignore[arg-type]


def _cosine_of_untrained_block(lens: Lens, seed: int) -> float:
    """Return what a first block of random weights adds to the average cosine of its input.

    The input are token vectors of norm 1 with one common vector of half that norm: their average
    cosine is 0.2.
    """
    fresh = lens.random_init(seed, first_block=True)
    table = fresh.input_embeddings
    width = table.shape[1]
    generator = torch.Generator().manual_seed(seed)
    token_vectors = torch.randn(ROWS, LENGTH, width, generator=generator) / width**0.5
    common = torch.randn(width, generator=generator)
    inputs = token_vectors + 0.5 * common / common.norm()
    sites = ("block.0.attention", "block.0.mixer", "block.0")
    site = next(name for name in sites if name in fresh.sites)
    with torch.no_grad():
        outputs = fresh.run(inputs_embeds=inputs.to(table.dtype), sites=site)[site]
    return _cosine(outputs) - _cosine(inputs)


WIDE_HEAD = 10  # rows of a head a dimension: Pythia-12b has 10, GPT-2 65


@EXPERIMENTS.register("head-rank")
class HeadRank(OnTexts):
    """What a head of low rank loses.

    `gradient`: the share of the norm of the logits' gradient that the head does not hand on.
    `loss`: the loss that is added when the logits are cut to `rank` dimensions, the best ones for
    these states in the least squares of all logits.
    """

    words = ExperimentWords(
        quantity="share of the norm that is not handed on; nats a token",
        test="interval of the mean over five repeats of four texts",
        scope="this model's head and states, windows of 48 tokens",
        range=(-1.0, 12.0),
    )

    measure: Literal["gradient", "loss"] = "gradient"
    rank: int = 512

    def observe(self, seed: int) -> ExperimentOutcome:
        lens = lens_of(self.model)
        table = lens.output_embeddings
        if table is None or "head" not in lens.sites:
            raise BadInput(f"{lens.name} has no head.")
        rows, width = table.shape
        if self.measure == "gradient":
            if rows < WIDE_HEAD * width:
                note = (
                    f"The head of {lens.name} has {rows / width:.1f} rows a dimension; the "
                    f"paper's models have {WIDE_HEAD} or more."
                )
                return ExperimentOutcome(effect=None, note=note)
            return self._lost_gradient(seed)
        if width <= self.rank:
            note = f"The head of {lens.name} has {width} dimensions, not more than {self.rank}."
            return ExperimentOutcome(effect=None, note=note)
        seeds = repeat_seeds(seed, self.times)
        return self.outcome(
            f"loss of a head of rank {self.rank} less that of all {width}",
            [loss_by_rank(self.model, repeat_seed, self.rank) for repeat_seed in seeds],
            "nats a token",
        )

    def _lost_gradient(self, seed: int) -> ExperimentOutcome:
        seeds = repeat_seeds(seed, self.times)
        shares = [kept_by_head(self.model, repeat_seed) for repeat_seed in seeds]
        lost = [_lost(share.kept) for share in shares]
        lost_in_random_subspace = _lost(shares[0].random)
        lost_with_random_signs = [_lost(share.leverage) for share in shares]
        return self.outcome(
            "share of the gradient's norm that is lost",
            lost,
            "share",
            beside=(
                exactly(
                    "the same of a random subspace of so many dimensions",
                    lost_in_random_subspace,
                    unit="share",
                ),
                self.number(
                    "the same of gradients with random signs", lost_with_random_signs, "share"
                ),
            ),
        )


def _lost(kept_share: float) -> float:
    """Return the share of a norm that is orthogonal to a kept share."""
    return float((1 - kept_share**2) ** 0.5)


@cache
def _before_head(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """Return the states [n, d] at the head's input, and the tokens [n] that follow."""
    lens = lens_of(kind)
    site = lens.default_sites[-1]
    ids = prompts(kind, seed, ROWS, LENGTH)
    with torch.no_grad():
        states = lens.run(ids, sites=site)[site]
    return states[:, :-1].flatten(0, 1), ids[:, 1:].flatten()


@lru_cache(maxsize=1)
def _gradient_through_head(kind: str) -> GradientThroughHead:
    """Return the sums of a head for its repeats: the basis of a large one takes a minute."""
    return GradientThroughHead(lens_of(kind).output_embeddings, best=False)  # type: ignore[arg-type]


@dataclass(frozen=True)
class KeptShares:
    """The share of the norm of the logits' gradient that the head keeps, and two nulls.

    Attributes:
        random: the share that a random subspace of the same dimension keeps.
        leverage: the share that the head keeps of gradients with random signs.
    """

    kept: float
    random: float
    leverage: float


@cache
def kept_by_head(kind: str, seed: int) -> KeptShares:
    """Return the kept shares of one repeat."""
    gradient = _gradient_through_head(kind)
    gradient.restart()
    gradient.update(*_before_head(kind, seed))
    result = gradient.result()
    return KeptShares(
        kept=result.kept_norm or 0.0,
        random=result.kept_norm_random,
        leverage=result.kept_norm_leverage or 0.0,
    )


@dataclass(frozen=True, eq=False)
class LogitBasis:
    """The root L of C = HᵀH, its inverse, and the directions [d, d] of the logits, best last."""

    root: Tensor
    inverse_root: Tensor
    directions: Tensor


@cache
def best_directions(kind: str, seed: int) -> LogitBasis:
    """Return the basis of the logits H Wᵀ over the states H of all repeats of a master seed.

    The best directions are the left singular vectors of L Wᵀ: eigenvectors of L (WᵀW) L.
    """
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    parts = [_before_head(kind, repeat_seed)[0] for repeat_seed in repeat_seeds(seed)]
    states = torch.cat(parts).double()
    ridge = 1e-6 * states.square().mean() * torch.eye(states.shape[1])
    values, vectors = torch.linalg.eigh(states.T @ states / len(states) + ridge)
    root = vectors * values**0.5 @ vectors.T
    inverse_root = vectors * values**-0.5 @ vectors.T
    gram = torch.zeros(()).double()
    for part in weight.detach().split(8_192):
        gram = gram + (part.T @ part).double()
    directions = torch.linalg.eigh(root @ gram @ root).eigenvectors
    return LogitBasis(root, inverse_root, directions)


def loss_by_rank(kind: str, seed: int, rank: int) -> float:
    """Return the loss with the logits cut to their best `rank` dimensions, less the loss of all.

    It is that of one repeat, in nats a token.
    """
    basis = best_directions(kind, seed // 1000)
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    best = basis.directions[:, -rank:]
    states, targets = _before_head(kind, seed)
    cut = (states.double() @ basis.inverse_root @ best @ best.T @ basis.root).to(states.dtype)
    cut_loss = F.cross_entropy((cut @ weight.T).float(), targets)
    full_loss = F.cross_entropy((states @ weight.T).float(), targets)
    return float((cut_loss - full_loss).detach())


COLLIDING = 200  # prompts of a repeat
TOKENS = 6  # of a prompt


@EXPERIMENTS.register("collisions")
class Collisions(OnTexts):
    """The share of distinct prompts whose last state in the middle block equals another's.

    The prompts have six random tokens. The states are rounded to `bits`: uniform levels up to the
    largest magnitude of all these states (0: as computed). With `shrinks` the effect is the
    smallest distance of two states a differing token, over that of the states as computed.
    """

    words = ExperimentWords(
        quantity="share of prompts whose state another has; ratio of the smallest distances",
        test="the score interval of a share, Student's of a ratio, over five or twenty repeats of "
        "200 prompts",
        scope="the middle block, prompts of six random tokens",
        range=(0.0, 2.0),
    )

    bits: int = 0
    shrinks: bool = False

    def observe(self, seed: int) -> ExperimentOutcome:
        seeds = repeat_seeds(seed, self.times)
        rounded = [margins(self.model, repeat_seed, self.bits) for repeat_seed in seeds]
        computed = [margins(self.model, repeat_seed, 0) for repeat_seed in seeds]
        shares = [margin.colliding_share for margin in rounded]
        ratios = [
            margin.distance / max(full.distance, 1e-30)
            for margin, full in zip(rounded, computed, strict=True)
        ]
        precision = f"at {self.bits} bits" if self.bits else "as computed"
        share = self.number(
            f"prompts whose state another has, {precision}", shares, "share of prompts", COLLIDING
        )
        ratio = self.number(
            f"smallest distance {precision} over that as computed", ratios, "ratio", COLLIDING
        )
        return ExperimentOutcome(
            effect=ratio if self.shrinks else share,
            beside=(share if self.shrinks else ratio,),
            models=(lens_of(self.model).name,) * len(seeds),
        )


@cache
def _last_states(kind: str, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return distinct prompts of random tokens [n, T], and the last states [n, d] by block."""
    lens = lens_of(kind)
    generator = torch.Generator().manual_seed(seed)
    size = (COLLIDING, TOKENS)
    ids = torch.randint(lens.vocabulary_size, size, generator=generator).unique(dim=0)
    parts: dict[str, list[Tensor]] = defaultdict(list)

    def remember_last(site: str, states: Tensor) -> None:
        parts[site].append(states[:, -1].clone())

    sites = lens.match("block.*")
    with torch.no_grad():
        for batch in ids.split(50):
            lens.run(batch, sites=sites, each=remember_last)
    return ids, {site: torch.cat(parts[site]) for site in sites}


@dataclass(frozen=True)
class Margin:
    """The nearness of the states of distinct prompts.

    Attributes:
        colliding_share: the share of prompts whose state another prompt has.
        distance: the smallest distance of two states over the number of tokens in which their
            prompts differ.
    """

    colliding_share: float
    distance: float


@cache
def margins(kind: str, seed: int, bits: int, site: str = "") -> Margin:
    """Return the margin of one repeat at a site, by default the middle block."""
    ids, states_by_site = _last_states(kind, seed)
    sites = list(states_by_site)
    states = states_by_site[site or sites[len(sites) // 2]].double()
    if bits:
        step = states.abs().max() / (2 ** (bits - 1) - 1)
        states = (states / step).round() * step
    distances = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    differing_tokens = (ids[:, None] != ids[None]).sum(-1)
    off_diagonal = ~torch.eye(len(ids), dtype=torch.bool)
    collides = ((distances == 0) & off_diagonal).any(1)
    distances_a_token = distances / differing_tokens.clamp(min=1)
    return Margin(
        colliding_share=float(collides.double().mean()),
        distance=float(distances_a_token[off_diagonal].min()),
    )
