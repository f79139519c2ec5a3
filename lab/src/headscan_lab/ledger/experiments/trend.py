"""Claims about size: how a measure of the trained family changes when a factor doubles."""

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from headscan.inversion import descend, preset
from headscan.measures.cone import average_cosine
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.statistics.uncertainty import student_quantile
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    StandIn,
)
from headscan_lab.ledger.experiments.descents import DEEPEST_BLOCK, Recovered
from headscan_lab.ledger.experiments.inversion import Contrast
from headscan_lab.ledger.family import HEADS, Member, cached, family_folder
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.proxies import lens_of

Numbers = npt.NDArray[np.float64]
ROWS = 8  # texts whose average cosine is measured
LENGTH = 32
PROMPTS = 8  # prompts that are recovered
TOKENS = 6
LEAST_MEMBERS = 24  # below, six coefficients leave too little to judge them by
FACTORS = ("width", "depth", "vocabulary")


@EXPERIMENTS.register("trend")
class Trend(Experiment):
    """The change of a measure of the trained family when one factor doubles.

    It is a coefficient of least squares on log2 of width, depth and vocabulary, on head and text.
    """

    words = ExperimentWords(
        quantity="change of the measure per doubling of the factor, the others held",
        test="Student's interval of a coefficient of least squares over the members, "
        "heteroscedastic (HC3)",
        scope="GPT-2s of widths 32 to 256, depths 1 to 8, V 256 to 8,192, at equal tokens",
        range=(-1.0, 1.0),
    )
    power = Power(LEAST_MEMBERS, 200)

    factor: Literal["width", "depth", "vocabulary"] = "width"
    measure: Literal[
        "recovered at the first block", "recovered at the last block", "average cosine"
    ] = "recovered at the last block"

    def on(self, model: str) -> Experiment | None:
        """Return the contrast of a deep block of the model with its first, for the depth alone.

        The descent is Adam's, which does not fail at the first block.
        """
        if self.factor != "depth":
            return None
        first_block = Recovered(adam=True, search=False).on(model)
        if first_block is None:
            return None
        deep = min(DEEPEST_BLOCK, lens_of(model).depth // 2)
        return Contrast(high=replace(first_block, at=f"block.{deep}"), low=first_block)

    def stand_ins(self) -> tuple[StandIn, ...]:
        why = (
            "Width, depth and vocabulary are varied by design, so that a trend with size can be "
            "told from its other causes."
        )
        return (StandIn("the trained family of small GPT-2s (lab/scripts/train_family.py)", why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        half = seed % 2
        members = cached(half)
        if len(members) < LEAST_MEMBERS:
            note = (
                f"{len(members)} members of the trained family are in the cache, {LEAST_MEMBERS} "
                f"are needed: python lab/scripts/train_family.py --half {half}."
            )
            return ExperimentOutcome(effect=None, note=note)
        values = np.array([measure_member(member, self.measure, seed) for member in members])
        coefficient = coefficient_of(_design(members), values, FACTORS.index(self.factor))
        reach = student_quantile(coefficient[2]) * coefficient[1]
        slope = coefficient[0]
        effect = Measurement(
            name=f"{self.measure} per doubling of {self.factor}",
            value=slope,
            interval=(slope - reach, slope + reach),
            unit=self.measure,
            chance=0.0,
            tokens=len(members) * PROMPTS * TOKENS,
            prompts=0,
            seeds=len(members),
        )
        return ExperimentOutcome(effect=effect, models=tuple(member.name for member in members))


def _design(members: list[Member]) -> Numbers:
    """Return the design [members, 7]: log2 of the factors, heads, the second text, and ones."""
    columns = [np.log2([getattr(member, factor) for member in members]) for factor in FACTORS]
    for head in HEADS[1:]:
        columns.append(np.array([float(member.head == head) for member in members]))
    columns.append(np.array([float(member.text == "second") for member in members]))
    columns.append(np.ones(len(members)))
    return np.stack(columns, 1)


def coefficient_of(design: Numbers, values: Numbers, column: int) -> tuple[float, float, int]:
    """Return a coefficient of least squares, its standard error, and the degrees of freedom.

    The error is HC3 (MacKinnon and White 1985).

    >>> design = np.array([[1.0, 1], [2, 1], [3, 1], [4, 1]])
    >>> slope, error, freedom = coefficient_of(design, np.array([2.0, 4, 6, 8]), 0)
    >>> round(slope, 9), round(error, 9), freedom
    (2.0, 0.0, 2)
    """
    inverse = np.linalg.pinv(design.T @ design)
    coefficients = inverse @ design.T @ values
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    residuals = (values - design @ coefficients) / np.clip(1 - leverage, 1e-6, None)
    covariance = inverse @ (design.T * residuals**2) @ design @ inverse
    error = float(np.sqrt(covariance[column, column]))
    return float(coefficients[column]), error, len(values) - design.shape[1]


@cache
def measure_member(member: Member, measure: str, seed: int) -> float:
    """Return a measure of one member at the end of its training, on random ids."""
    tokenizer = "bytes" if member.vocabulary == 256 else None
    lens = Lens.load(str(family_folder() / member.name), tokenizer=tokenizer)
    generator = torch.Generator().manual_seed(seed)
    if measure == "average cosine":
        ids = torch.randint(member.vocabulary, (ROWS, LENGTH), generator=generator)
        states = Slice(sites=("final_norm",)).on(lens).states(ids).flatten(0, 1)
        return float(average_cosine(states.numpy()) or 0.0)
    block = 0 if "first" in measure else member.depth - 1
    ready = Slice(sites=(f"block.{block}",)).on(lens)
    ids = torch.randint(member.vocabulary, (PROMPTS, TOKENS), generator=generator)
    settings = preset("seed", steps=200, seed=seed)
    tokens = descend(ready, ready.run(ids), TOKENS, settings).tokens
    return float((tokens == ids).double().mean())
