"""What a headless model lacks, added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.training.recovery import RECOVERIES, HeadRecovery

__all__ = ["UnigramBias"]


@RECOVERIES.register("bias")
@dataclass(frozen=True, kw_only=True)
class UnigramBias(HeadRecovery):
    """The input rows and the log of the unigram probability, without training."""

    needs_counts: ClassVar[bool] = True
