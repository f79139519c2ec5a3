"""What one pass over a text shows of a model, five pieces of text each: claims that need no
training and no inversion but one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Self, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.descents import FEW, LARGE, Recovered, causal, descended
from headscan_lab.ledger.measurement import exactly, mean_of, own_seeds
from headscan_lab.ledger.stand_ins import TWIN, OnModels, lens_of, prompts

Pair: TypeAlias = tuple[float, float]
ROWS = 12
WINDOW = 32
# of a text's tokens: those that make up so much of it are its common ones, all others are rare
COMMON = 0.9


def _gap(lens: Lens, ids: Tensor) -> float:
    """Mean cosine of centred last states that the same token follows less that of the others."""
    states = (
        Slice(sites=(lens.default_sites[-1],)).on(lens).states(ids)[:, :-1].flatten(0, 1).double()
    )
    unit = F.normalize(states - states.mean(0), dim=1)
    cosines = unit @ unit.T
    follows = ids[:, 1:].flatten()
    apart = ~torch.eye(len(states), dtype=torch.bool)
    same = follows[:, None] == follows[None, :]
    return float(cosines[same & apart].mean() - cosines[~same].mean())


def collapse(kind: str, own: int) -> Pair:
    """Of the model, and of its architecture with random weights."""
    lens = lens_of(kind, own)
    ids = prompts(kind, own, ROWS, WINDOW)
    return _gap(lens, ids), _gap(lens.random_init(own), ids)


def rogue(kind: str, own: int) -> Pair:
    """Share of the average cosine that three dimensions make, and that three of the same states
    make after a random rotation.
    """
    lens = lens_of(kind, own)
    states = (
        Slice(sites=(f"block.{lens.depth // 2}",)).on(lens).states(prompts(kind, own, ROWS, WINDOW))
    )
    unit = F.normalize(states[:, :-1].flatten(0, 1).double(), dim=1)
    turn = torch.linalg.qr(
        torch.randn(
            unit.shape[1], unit.shape[1], generator=torch.Generator().manual_seed(own)
        ).double()
    ).Q
    shares = []
    for rows in (unit, unit @ turn):
        each = (rows.sum(0).square() - rows.square().sum(0)) / (len(rows) * (len(rows) - 1))
        if float(each.sum()) < 0.05:
            raise BadInput(
                f"In the middle of {lens.name} the average cosine is {float(each.sum()):.2g}: "
                "nothing to explain."
            )
        shares.append(float(each.sort(descending=True).values[:3].sum() / each.sum()))
    return shares[0], shares[1]


def unpredicted(kind: str, own: int) -> Pair:
    """Share of positions at which even the commonest token is not the one to predict, and the same
    of the tenth commonest.
    """
    lens = lens_of(kind, own)
    if lens.vocabulary_size < 256:
        raise BadInput(f"{lens.name} reads characters; this is of words and pieces of words.")
    counts = (
        torch.bincount(prompts(kind, own, 40, 100).flatten(), minlength=10)
        .double()
        .sort(descending=True)
        .values
    )
    return float(1 - counts[0] / counts.sum()), float(1 - counts[9] / counts.sum())


def rare(kind: str, own: int) -> Pair:
    """Share of wrong answers that are rare tokens, and of all tokens that are."""
    counts = torch.bincount(
        prompts(kind, 0, 400, 100).flatten(), minlength=lens_of(kind).vocabulary_size
    ).double()
    order = counts.argsort(descending=True)
    common = torch.zeros(len(counts), dtype=torch.bool)
    common[order[: 1 + int((counts[order].cumsum(0) < COMMON * counts.sum()).sum())]] = True
    ids = prompts(kind, own, FEW, 6)
    tokens = descended(Recovered(model=kind, least=FEW), own, FEW).tokens
    if not len(wrong := tokens[tokens != ids]):
        raise BadInput(f"No answer of {lens_of(kind).name} was wrong.")
    return float((~common[wrong]).double().mean()), float((~common).double().mean())


READINGS: dict[str, tuple[Callable[[str, int], Pair], str, str, str]] = {
    "collapse": (
        collapse,
        "cosine of states that one token follows less that of others",
        "random weights",
        "any weights do it",
    ),
    "rogue": (
        rogue,
        "share of the average cosine from three dimensions",
        "the states rotated",
        "any three axes do it",
    ),
    "unpredicted": (
        unpredicted,
        "positions where the commonest token is not to be predicted",
        "the tenth commonest",
        "",
    ),
    "rare": (
        rare,
        "wrong answers that are rare tokens",
        "tokens drawn by chance",
        "most tokens of a vocabulary are rare",
    ),
}
"""By name: the effect and its control of a piece of text, the words of both, and the cause that the
control would show.
"""


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
        if model.startswith(TWIN) or not causal(lens := lens_of(model)):
            return None
        # two models would be in memory
        twice = self.reading == "collapse" and lens.input_embeddings.numel() > LARGE
        return None if twice else replace(self, model=model)

    def observe(self, seed: int) -> ExperimentOutcome:
        measure, name, of, cause = READINGS[self.reading]
        pairs = [measure(self.model, own) for own in own_seeds(seed)]
        tokens = {"unpredicted": 5 * 4000, "rare": 5 * FEW * 6}.get(
            self.reading, 5 * ROWS * (WINDOW - 1)
        )
        bounds = (0.0, 1.0) if self.reading in ("unpredicted", "rare") else (-np.inf, np.inf)
        means = [
            mean_of(
                words, [pair[k] for pair in pairs], unit="", tokens=tokens, prompts=5, bounds=bounds
            )
            for k, words in enumerate((name, f"the same of {of}"))
        ]
        if self.reading == "rare":  # counted once of one text
            means[1] = exactly(means[1].name, means[1].value, unit="")
        return ExperimentOutcome(
            effect=means[0], control=means[1], cause=cause, models=(lens_of(self.model).name,)
        )
