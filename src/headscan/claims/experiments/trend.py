"""How a measure of the trained family changes when width, depth or vocabulary doubles, all other factors held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.stats import t as student

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords
from headscan.claims.family import HEADS, Member, cached, family_folder
from headscan.claims.measurement import Measurement
from headscan.claims.protocol import Power, StandIn
from headscan.geometry import average_cosine
from headscan.inversion import descend, preset
from headscan.model import Lens
from headscan.model.slicing import Slice

__all__ = ["Trend"]

ROWS, LENGTH, PROMPTS, TOKENS = 8, 32, 8, 6
LEAST = 24  # members: below, six coefficients leave too little to judge them by


@EXPERIMENTS.register("trend")
@dataclass(frozen=True, kw_only=True)
class Trend(Experiment):
    """Least squares of a measure on log2 of width, depth and vocabulary, head and text: the coefficient of one factor."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="change of the measure per doubling of the factor, the others held",
        test="Student's interval of a coefficient of least squares over the members, heteroscedastic (HC3)",
        scope="GPT-2s of widths 32 to 256, depths 1 to 8, V 256 to 8,192, at equal tokens",
        range=(-1.0, 1.0),
    )
    power: ClassVar[Power] = Power(LEAST, 200)

    factor: Literal["width", "depth", "vocabulary"] = "width"
    measure: Literal["recovered at the first block", "recovered at the last block", "average cosine"] = (
        "recovered at the last block"
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The family."""
        why = "Width, depth and vocabulary are varied by design, so that a trend with size can be told from its other causes."
        return (StandIn("the trained family of small GPT-2s (scripts/train_family.py)", why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class. An even master seed looks at the first half of the family, an odd one at the second."""
        members = cached(seed % 2)
        if len(members) < LEAST:
            note = (
                f"{len(members)} members of the trained family are in the cache, {LEAST} are needed: "
                f"python scripts/train_family.py --half {seed % 2}."
            )
            return ExperimentOutcome(effect=None, note=note)
        values = np.array([measured(one, self.measure, seed) for one in members])
        factors = ("width", "depth", "vocabulary")
        columns = [np.log2([getattr(one, name) for one in members]) for name in factors]
        columns += [np.array([float(one.head == kind) for one in members]) for kind in HEADS[1:]]
        columns += [np.array([float(one.text == "second") for one in members]), np.ones(len(members))]
        slope, error, freedom = slope_of(np.stack(columns, 1), values, factors.index(self.factor))
        reach = float(student.ppf(0.975, freedom)) * error
        effect = Measurement(
            name=f"{self.measure} per doubling of {self.factor}", value=slope, interval=(slope - reach, slope + reach),
            unit=self.measure, chance=0.0, tokens=len(members) * PROMPTS * TOKENS, prompts=0, seeds=len(members),
        )  # fmt: skip
        return ExperimentOutcome(effect=effect, models=tuple(one.name for one in members))


def slope_of(design: np.ndarray, values: np.ndarray, column: int) -> tuple[float, float, int]:
    """A coefficient of least squares, its standard error (HC3: MacKinnon and White 1985), and the degrees of freedom.

    >>> slope, error, freedom = slope_of(np.array([[1.0, 1], [2, 1], [3, 1], [4, 1]]), np.array([2.0, 4, 6, 8]), 0)
    >>> round(slope, 9), round(error, 9), freedom
    (2.0, 0.0, 2)
    """
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ values
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    scaled = (values - design @ fitted) / np.clip(1 - leverage, 1e-6, None)
    covariance = inverse @ (design.T * scaled**2) @ design @ inverse
    return float(fitted[column]), float(np.sqrt(covariance[column, column])), len(values) - design.shape[1]


@cache
def measured(member: Member, measure: str, seed: int) -> float:
    """A measure of one member at the end of its training, on random ids of its vocabulary."""
    lens = Lens.load(str(family_folder() / member.name), tokenizer="bytes" if member.vocabulary == 256 else None)
    drawing = torch.Generator().manual_seed(seed)
    if measure == "average cosine":
        ids = torch.randint(member.vocabulary, (ROWS, LENGTH), generator=drawing)
        return float(average_cosine(Slice(sites=("final_norm",)).on(lens).states(ids).flatten(0, 1).numpy()) or 0.0)
    block = 0 if "first" in measure else member.depth - 1
    ready = Slice(sites=(f"block.{block}",)).on(lens)
    ids = torch.randint(member.vocabulary, (PROMPTS, TOKENS), generator=drawing)
    found = descend(ready, ready.run(ids), TOKENS, preset("seed", steps=200, seed=seed))
    return float((found.tokens == ids).double().mean())
