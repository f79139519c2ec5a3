"""Claims that one pass over five pieces of text decides, without training and mostly without
inversion.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput, Interval
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.descents import FEW_PROMPTS, Recovered, descended
from headscan_lab.ledger.experiments.search import is_causal
from headscan_lab.ledger.measurement import SEEDS, exactly, mean_of, repeat_seeds
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import LARGE_TABLE, OnModels, lens_of, prompts

ROWS = 12  # texts of a repeat
WINDOW = 32  # tokens of a text
COUNTED_ROWS = 40  # texts whose tokens are counted
COUNTED_WINDOW = 100
INVERTED_TOKENS = 6  # of a prompt
# A text's common tokens are those that make up this share of it; all others are rare.
COMMON_SHARE = 0.9
LEAST_COSINE = 0.05  # average cosine below which there is nothing to explain


@dataclass(frozen=True)
class Pair:
    """A number of a piece of text, and its control."""

    effect: float
    control: float


def collapse(kind: str, seed: int) -> Pair:
    """Return the gap of the model, and that of its architecture with random weights."""
    lens = lens_of(kind, seed)
    ids = prompts(kind, seed, ROWS, WINDOW)
    return Pair(_same_token_gap(lens, ids), _same_token_gap(lens.random_init(seed), ids))


def _same_token_gap(lens: Lens, ids: Tensor) -> float:
    """Return the mean cosine of centred last states that the same token follows, less that of the
    others.
    """
    all_states = Slice(sites=(lens.default_sites[-1],)).on(lens).states(ids)
    states = all_states[:, :-1].flatten(0, 1).double()
    unit = F.normalize(states - states.mean(0), dim=1)
    cosines = unit @ unit.T
    next_tokens = ids[:, 1:].flatten()
    same_token = next_tokens[:, None] == next_tokens[None, :]
    off_diagonal = ~torch.eye(len(states), dtype=torch.bool)
    return float(cosines[same_token & off_diagonal].mean() - cosines[~same_token].mean())


def rogue(kind: str, seed: int) -> Pair:
    """Return the share of the average cosine that three dimensions make.

    The control is the same after a random rotation.
    """
    lens = lens_of(kind, seed)
    middle = Slice(sites=(f"block.{lens.depth // 2}",)).on(lens)
    states = middle.states(prompts(kind, seed, ROWS, WINDOW))
    rows = states[:, :-1].flatten(0, 1).double()
    unit = F.normalize(rows, dim=1)
    width = unit.shape[1]
    normal = torch.randn(width, width, generator=torch.Generator().manual_seed(seed))
    rotation = torch.linalg.qr(normal.double()).Q
    return Pair(
        _share_of_three_dimensions(unit, lens.name),
        _share_of_three_dimensions(unit @ rotation, lens.name),
    )


def _share_of_three_dimensions(unit: Tensor, name: str) -> float:
    """Return the share of the average cosine of unit rows [n, d] that three dimensions make."""
    n = len(unit)
    by_dimension = (unit.sum(0).square() - unit.square().sum(0)) / (n * (n - 1))
    average = by_dimension.sum()
    if float(average) < LEAST_COSINE:
        raise BadInput(
            f"In the middle of {name} the average cosine is {float(average):.2g}: nothing to "
            "explain."
        )
    return float(by_dimension.sort(descending=True).values[:3].sum() / average)


def unpredicted(kind: str, seed: int) -> Pair:
    """Return the share of positions at which even the commonest token is not the one to predict.

    The control is that of the tenth commonest token.
    """
    lens = lens_of(kind, seed)
    if lens.vocabulary_size < 256:
        raise BadInput(f"{lens.name} reads characters; this is of words and pieces of words.")
    ids = prompts(kind, seed, COUNTED_ROWS, COUNTED_WINDOW)
    counts = torch.bincount(ids.flatten(), minlength=10).double().sort(descending=True).values
    total = counts.sum()
    return Pair(float(1 - counts[0] / total), float(1 - counts[9] / total))


def rare(kind: str, seed: int) -> Pair:
    """Return the share of wrong answers that are rare tokens, and that of all tokens."""
    common = _common_tokens(kind)
    ids = prompts(kind, seed, FEW_PROMPTS, INVERTED_TOKENS)
    tokens = descended(Recovered(model=kind, least=FEW_PROMPTS), seed, FEW_PROMPTS).tokens
    wrong = tokens[tokens != ids]
    if not len(wrong):
        raise BadInput(f"No answer of {lens_of(kind).name} was wrong.")
    rare_share = float((~common[wrong]).double().mean())
    return Pair(rare_share, float((~common).double().mean()))


def _common_tokens(kind: str) -> Tensor:
    """Return bool [V]: the tokens that make up the common share of a text."""
    ids = prompts(kind, 0, 400, COUNTED_WINDOW)
    counts = torch.bincount(ids.flatten(), minlength=lens_of(kind).vocabulary_size).double()
    order = counts.argsort(descending=True)
    below = counts[order].cumsum(0) < COMMON_SHARE * counts.sum()
    common = torch.zeros(len(counts), dtype=torch.bool)
    common[order[: 1 + int(below.sum())]] = True
    return common


@dataclass(frozen=True)
class Reading:
    """A reading: an effect and its control, both a number of a piece of text.

    Attributes:
        measure: the pair, from a model's kind and a seed.
        effect, control: the words of both.
        cause: the cause that the control would show.
        tokens: how many tokens the five pieces have.
        bounds: of both numbers.
    """

    measure: Callable[[str, int], Pair]
    effect: str
    control: str
    cause: str
    tokens: int = SEEDS * ROWS * (WINDOW - 1)
    bounds: Interval = (-np.inf, np.inf)


READINGS = {
    "collapse": Reading(
        collapse,
        "cosine of states that one token follows less that of others",
        "random weights",
        "any weights do it",
    ),
    "rogue": Reading(
        rogue,
        "share of the average cosine from three dimensions",
        "the states rotated",
        "any three axes do it",
    ),
    "unpredicted": Reading(
        unpredicted,
        "positions where the commonest token is not to be predicted",
        "the tenth commonest",
        "",
        tokens=SEEDS * COUNTED_ROWS * COUNTED_WINDOW,
        bounds=(0.0, 1.0),
    ),
    "rare": Reading(
        rare,
        "wrong answers that are rare tokens",
        "tokens drawn by chance",
        "most tokens of a vocabulary are rare",
        tokens=SEEDS * FEW_PROMPTS * INVERTED_TOKENS,
        bounds=(0.0, 1.0),
    ),
}


@EXPERIMENTS.register("readings")
class Readings(OnModels):
    """One of READINGS, on five pieces of the shipped stories."""

    words = ExperimentWords(
        quantity="the number named by the effect, a piece of text",
        test="interval of the mean over five pieces of text",
        scope="the model on the shipped stories",
        range=(-2.0, 2.0),
    )
    controlled = True

    reading: str
    model: str = "specimen"

    def on(self, model: str) -> Self | None:
        if model.startswith(RANDOM_TWIN):
            return None
        lens = lens_of(model)
        # For the control of `collapse` two models are in memory.
        too_large = self.reading == "collapse" and lens.input_embeddings.numel() > LARGE_TABLE
        if not is_causal(lens) or too_large:
            return None
        return replace(self, model=model)

    def observe(self, seed: int) -> ExperimentOutcome:
        reading = READINGS[self.reading]
        pairs = [reading.measure(self.model, repeat_seed) for repeat_seed in repeat_seeds(seed)]
        effect = mean_of(
            reading.effect,
            [pair.effect for pair in pairs],
            unit="",
            tokens=reading.tokens,
            prompts=SEEDS,
            bounds=reading.bounds,
        )
        control = mean_of(
            f"the same of {reading.control}",
            [pair.control for pair in pairs],
            unit="",
            tokens=reading.tokens,
            prompts=SEEDS,
            bounds=reading.bounds,
        )
        if self.reading == "rare":  # its control is counted once, of one text
            control = exactly(control.name, control.value, unit="")
        return ExperimentOutcome(
            effect=effect, control=control, cause=reading.cause, models=(lens_of(self.model).name,)
        )
