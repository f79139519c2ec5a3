"""Claims of five later papers on trained models in general: each is tried on a specimen and on the
models that are given.

2404.07647 (a head of low rank), 2401.12143 (anisotropy and self-attention), 2603.10145 (the
gradient that a head hands on), 2511.14808 (collisions of prompts); 2510.06477 (sinks, compression,
massive activations) stands in massive.py.
"""

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from headscan.measures.attention import head_rows, watched
from headscan.measures.cone import average_cosine
from headscan.measures.kept_gradient import GradientThroughHead
from headscan.model import Lens
from headscan.run import BadInput
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.descents import LARGE
from headscan_lab.ledger.measurement import Measurement, exactly, mean_of, own_seeds
from headscan_lab.ledger.stand_ins import OnModels, lens_of, prompts

# texts of a repeat, and tokens of each
ROWS = 4
LENGTH = 48


@dataclass(frozen=True, kw_only=True)
class OnTexts(OnModels):
    """An experiment on a model in five repeats with texts of their own, or, looked at once more, in
    twenty.
    """

    model: str = "specimen"
    times: int = 1

    def closer(self) -> Self | None:
        return (
            replace(self, times=4)
            if self.times == 1 and lens_of(self.model).input_embeddings.numel() <= LARGE
            else None
        )

    def outcome(self, name: str, values: list[float], unit: str, **more: Any) -> ExperimentOutcome:
        """The mean of one number a repeat."""
        return ExperimentOutcome(
            effect=self.number(name, values, unit),
            models=(lens_of(self.model).name,) * len(values),
            **more,
        )

    def number(self, name: str, values: list[float], unit: str, rows: int = ROWS) -> Measurement:
        """The same, of so many texts or prompts a repeat, between the bounds of the unit."""
        least = {"nats a token": -np.inf, "ratio": 0.0, "share": 0.0, "share of prompts": 0.0}.get(
            unit, -1.0
        )
        bounds = (least, np.inf if unit in ("nats a token", "ratio") else 1.0)
        many = len(values) * rows
        return mean_of(
            name, values, unit=unit, tokens=len(values) * ROWS * LENGTH, prompts=many, bounds=bounds
        )


def together(first: list[float], second: list[float]) -> float:
    """Spearman's rank correlation of two columns; 0 where one of them does not vary."""
    return (
        0.0
        if len(set(first)) < 2 or len(set(second)) < 2
        else float(spearmanr(first, second).statistic)
    )


# ---- 2401.12143: drift of the states, of queries and keys, and what an untrained attention makes of a shared direction.


@EXPERIMENTS.register("drift")
class Drift(OnTexts):
    """`states`: rank correlation over sites of the mean vector's norm with the average cosine.
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
        if self.measure == "characters" and lens.vocabulary_size > 300:
            note = (
                f"{lens.name} is no model of characters or bytes: its vocabulary has "
                f"{lens.vocabulary_size:,} tokens."
            )
            return ExperimentOutcome(effect=None, note=note)
        values = [
            getattr(self, f"_{self.measure}")(lens, own) for own in own_seeds(seed, self.times)
        ]
        names = {
            "states": (
                "norm of the mean vector with the average cosine, over sites",
                "rank correlation",
            ),
            "heads": ("|cosine| of mean query and mean key, less that of random weights", "cosine"),
            "untrained": ("average cosine after an untrained block, less that before it", "cosine"),
            "characters": ("average cosine over the blocks", "cosine"),
        }
        return self.outcome(names[self.measure][0], values, names[self.measure][1])

    def _states(self, lens: Lens, seed: int) -> float:
        return together(
            *(list(column) for column in zip(*drift_by_site(self.model, seed), strict=True))
        )

    def _characters(self, lens: Lens, seed: int) -> float:
        return float(np.mean([cosine for _, cosine in drift_by_site(self.model, seed)[1:]]))

    def _heads(self, lens: Lens, seed: int) -> float:
        ids = prompts(self.model, seed, ROWS, LENGTH)
        both = [watched(one, [ids])[0] for one in (lens, lens.random_init(seed, first_block=True))]
        trained, fresh = (
            np.mean([abs(float(row["drift_cosine"] or 0.0)) for row in head_rows(one)])
            for one in both
        )  # type: ignore[arg-type]
        return float(trained - fresh)

    def _untrained(self, lens: Lens, seed: int) -> float:
        """Token vectors of norm 1 with one common vector of half that norm: an average cosine of
        .2.
        """
        fresh = lens.random_init(seed, first_block=True)
        drawing = torch.Generator().manual_seed(seed)
        width = fresh.input_embeddings.shape[1]
        given = torch.randn(ROWS, LENGTH, width, generator=drawing) / width**0.5
        common = torch.randn(width, generator=drawing)
        given = given + 0.5 * common / common.norm()
        site = next(
            name
            for name in ("block.0.attention", "block.0.mixer", "block.0")
            if name in fresh.sites
        )
        with torch.no_grad():
            after = fresh.run(inputs_embeds=given.to(fresh.input_embeddings.dtype), sites=site)[
                site
            ]
        return _cosine(after) - _cosine(given)


def _cosine(states: Tensor) -> float:
    return float(average_cosine(states.flatten(0, 1).double().numpy()) or 0.0)


@cache
def drift_by_site(kind: str, seed: int) -> list[tuple[float, float]]:
    """At each default site: the norm of the mean vector, and the average cosine, position 0 left
    out.
    """
    lens = lens_of(kind)
    with torch.no_grad():
        seen = lens.run(prompts(kind, seed, ROWS, LENGTH), sites=lens.default_sites)
    return [(float(one[:, 1:].mean((0, 1)).norm()), _cosine(one[:, 1:])) for one in seen.values()]


# ---- 2603.10145 and 2404.07647: what a head hands on, and what a head of lower rank costs.

WIDE = 10  # rows of a head a dimension: Pythia-12b has 10, GPT-2 65


@EXPERIMENTS.register("head-rank")
class HeadRank(OnTexts):
    """`gradient`: the share of the norm of the logits' gradient that the head does not hand on.
    `loss`: what the loss gains when the logits are cut to `rank` dimensions, the best ones for
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
        if lens.output_embeddings is None or "head" not in lens.sites:
            raise BadInput(f"{lens.name} has no head.")
        rows, width = lens.output_embeddings.shape
        if self.measure == "gradient":
            if rows < WIDE * width:
                note = (
                    f"The head of {lens.name} has {rows / width:.1f} rows a dimension; the "
                    f"paper's models have {WIDE} or more."
                )
                return ExperimentOutcome(effect=None, note=note)
            kept = [kept_by_head(self.model, own) for own in own_seeds(seed, self.times)]
            lost = [
                [(1 - one[name] ** 2) ** 0.5 for one in kept]
                for name in ("kept", "random", "leverage")
            ]
            return self.outcome(
                "share of the gradient's norm that is lost",
                lost[0],
                "share",
                beside=(
                    exactly(
                        "the same of a random subspace of so many dimensions",
                        lost[1][0],
                        unit="share",
                    ),
                    self.number("the same of gradients with random signs", lost[2], "share"),
                ),
            )
        if width <= self.rank:
            note = f"The head of {lens.name} has {width} dimensions, not more than {self.rank}."
            return ExperimentOutcome(effect=None, note=note)
        return self.outcome(
            f"loss of a head of rank {self.rank} less that of all {width}",
            [loss_by_rank(self.model, own, self.rank) for own in own_seeds(seed, self.times)],
            "nats a token",
        )


@cache
def _before_head(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """States [n, d] at the head's input and the tokens [n] that follow."""
    lens = lens_of(kind)
    ids = prompts(kind, seed, ROWS, LENGTH)
    with torch.no_grad():
        states = lens.run(ids, sites=lens.default_sites[-1])[lens.default_sites[-1]]
    return states[:, :-1].flatten(0, 1), ids[:, 1:].flatten()


@lru_cache(maxsize=1)
def _through_head(kind: str) -> GradientThroughHead:
    """The sums of a head, kept for its next repeat: the basis of a large one takes a minute."""
    return GradientThroughHead(lens_of(kind).output_embeddings, best=False)  # type: ignore[arg-type]


@cache
def kept_by_head(kind: str, seed: int) -> dict[str, float]:
    """Shares of the norm: kept, kept by a random subspace, kept by the head's leverages at random
    signs.
    """
    through = _through_head(kind)
    through.restart()
    through.update(*_before_head(kind, seed))
    found = through.result()
    return {
        "kept": found.kept_norm or 0.0,
        "random": found.kept_norm_random,
        "leverage": found.kept_norm_leverage or 0.0,
    }


@cache
def best_directions(kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the logits H Wᵀ over the states H of all repeats of a master seed: L, its inverse, and the
    directions [d, d], best last.

    With C = HᵀH and L its root, the best are the left singular vectors of L Wᵀ: eigenvectors of L
    (WᵀW) L.
    """
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    fitted = torch.cat([_before_head(kind, own)[0] for own in own_seeds(seed)]).double()
    ridge = 1e-6 * fitted.square().mean() * torch.eye(fitted.shape[1])
    values, vectors = torch.linalg.eigh(fitted.T @ fitted / len(fitted) + ridge)
    root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    gram = sum(
        ((part.T @ part).double() for part in weight.detach().split(8_192)),
        torch.zeros(()).double(),
    )
    return root, inverse, torch.linalg.eigh(root @ gram @ root).eigenvectors


def loss_by_rank(kind: str, seed: int, rank: int) -> float:
    """Of one repeat: the loss with the logits cut to their best `rank` dimensions, less the loss of
    all.
    """
    root, inverse, directions = best_directions(kind, seed // 1000)
    weight = lens_of(kind).output_embeddings
    best = directions[:, -rank:]
    assert weight is not None
    states, targets = _before_head(kind, seed)
    cut = (states.double() @ inverse @ best @ best.T @ root).to(states.dtype)
    losses = [F.cross_entropy((one @ weight.T).float(), targets) for one in (cut, states)]
    return float((losses[0] - losses[1]).detach())


# ---- 2511.14808: do two prompts give the same last state, and at how many bits?

COLLIDING = 200
TOKENS = 6


@EXPERIMENTS.register("collisions")
class Collisions(OnTexts):
    """The share of COLLIDING distinct prompts of six random tokens whose last state in the middle
    block equals another's, held in `bits`: uniform levels up to the largest magnitude of all these
    states (0: as computed). `shrinks`: the smallest distance a token between two of them, over that
    of the states as computed.
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
        found, whole = (
            [margins(self.model, own, bits) for own in own_seeds(seed, self.times)]
            for bits in (self.bits, 0)
        )
        shares = [one[0] for one in found]
        ratios = [one[1] / max(all_[1], 1e-30) for one, all_ in zip(found, whole, strict=True)]
        held = f"at {self.bits} bits" if self.bits else "as computed"
        share = self.number(
            f"prompts whose state another has, {held}", shares, "share of prompts", COLLIDING
        )
        ratio = self.number(
            f"smallest distance {held} over that as computed", ratios, "ratio", COLLIDING
        )
        effect, other = (ratio, share) if self.shrinks else (share, ratio)
        return ExperimentOutcome(
            effect=effect, beside=(other,), models=(lens_of(self.model).name,) * len(found)
        )


@cache
def _last_states(kind: str, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Distinct prompts of random tokens [n, t], and the last token's states [n, d] at every block."""
    lens = lens_of(kind)
    ids = torch.randint(
        lens.vocabulary_size, (COLLIDING, TOKENS), generator=torch.Generator().manual_seed(seed)
    ).unique(dim=0)
    kept: dict[str, list[Tensor]] = {site: [] for site in lens.match("block.*")}
    with torch.no_grad():
        for part in ids.split(50):
            lens.run(
                part, sites=kept, each=lambda site, states: kept[site].append(states[:, -1].clone())
            )
    return ids, {site: torch.cat(parts) for site, parts in kept.items()}


@cache
def margins(kind: str, seed: int, bits: int, site: str = "") -> tuple[float, float]:
    """The share of prompts that share their state with another, and the smallest distance of two
    states over the number of tokens in which their prompts differ; in the middle block unless a
    site is given.
    """
    ids, every = _last_states(kind, seed)
    states = every[site or list(every)[len(every) // 2]].double()
    if bits:
        step = states.abs().max() / (2 ** (bits - 1) - 1)
        states = (states / step).round() * step
    apart = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    differ = (ids[:, None] != ids[None]).sum(-1)
    off = ~torch.eye(len(ids), dtype=torch.bool)
    return float(((apart == 0) & off).any(1).double().mean()), float(
        (apart / differ.clamp(min=1))[off].min()
    )
