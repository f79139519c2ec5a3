"""Everything trained, as published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel

from headscan.run import Option, Progress
from headscan.training.fitting import fit_head
from headscan.training.records import CurvePoint
from headscan.training.recovery import RECOVERIES, HeadRecovery

__all__ = ["Finetuning"]


@RECOVERIES.register("finetune")
@dataclass(frozen=True, kw_only=True)
class Finetuning(HeadRecovery):
    """The biased rows as a start, then everything trained by cross-entropy (published: from the rows, at 1e-4)."""

    steps: Annotated[int, Option("Steps of the training of a recovered head.", low=0)] = 300
    batch: Annotated[int, Option("Windows a step of the training of a recovered head.", low=1)] = 16
    rate: Annotated[float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)] = 1e-4

    @property
    def budget(self) -> tuple[int, int]:
        """As asked for."""
        return self.steps, self.batch

    def train(
        self, whole: PreTrainedModel, rows: npt.NDArray[np.integer], *, seed: int = 0, progress: Progress | None = None
    ) -> list[CurvePoint]:
        """See `fit_head`."""
        return fit_head(whole, rows, steps=self.steps, batch=self.batch, rate=self.rate, seed=seed, progress=progress)
