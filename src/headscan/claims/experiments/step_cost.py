"""What a step of the prediction costs with a head and without one: processor time, and memory kept for the backward pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.claims.experiment import EXPERIMENTS, SEEDS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import mean_of
from headscan.claims.protocol import Power
from headscan.training import cwt_loss

__all__ = ["StepCost"]

REPEATS, LEAST = 5, 0.005  # seconds a repeat: of a single quick step some clocks see nothing


def _headed(hidden: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(hidden @ table.T, targets)


LOSSES = (_headed, cwt_loss)


@EXPERIMENTS.register("step-cost")
@dataclass(frozen=True, kw_only=True)
class StepCost(Experiment):
    """Cross-entropy over `vocabulary` tokens against contrastive weight tying among `batch` targets drawn by Zipf's law, width
    `width`, forward and backward; the body, which both have, is left out.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="cost with a head over cost without one",
        test="Student's interval over five draws of targets; of seconds the medians of alternating repeats",
        scope="the loss alone at this vocabulary, batch and width, on one processor core",
        range=(0.0, 1000.0),
    )
    power: ClassVar[Power] = Power(SEEDS, 200)

    cost: Literal["seconds", "bytes"] = "seconds"
    vocabulary: int = 8192
    batch: int = 256
    width: int = 64

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        ratios = []
        for own in own_seeds(seed):
            drawing = torch.Generator().manual_seed(own)
            table = torch.randn(self.vocabulary, self.width, generator=drawing, requires_grad=True)
            hidden = torch.randn(self.batch, self.width, generator=drawing, requires_grad=True)
            law = 1 / torch.arange(1.0, self.vocabulary + 1)
            targets = torch.multinomial(law, self.batch, replacement=True, generator=drawing)
            costs = _kept(hidden, table, targets) if self.cost == "bytes" else _seconds(hidden, table, targets)
            ratios.append(costs[0] / costs[1])
        tokens = SEEDS * self.batch
        name = f"{self.cost} with a head over {self.cost} without (V = {self.vocabulary:,}, {self.batch} targets)"
        return ExperimentOutcome(effect=mean_of(name, ratios, unit="ratio", tokens=tokens, prompts=SEEDS, chance=1.0))


def _seconds(hidden: Tensor, table: Tensor, targets: Tensor) -> list[float]:
    found: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for which in (0, 1):
            start, steps, spent = time.process_time(), 0, 0.0
            while spent < LEAST:
                loss = LOSSES[which](hidden, table, targets)
                torch.autograd.grad(loss, (hidden, table))
                steps, spent = steps + 1, time.process_time() - start
            found[which].append(spent / steps)
    return [median(times) for times in found]


def _kept(hidden: Tensor, table: Tensor, targets: Tensor) -> list[float]:
    """Of the tensors that autograd keeps, the inputs not counted."""
    found = []
    for which in (0, 1):
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            if tensor.data_ptr() not in (hidden.data_ptr(), table.data_ptr()):
                kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = LOSSES[which](hidden, table, targets)
        found.append(float(sum(kept.values())))
        del loss
    return found
