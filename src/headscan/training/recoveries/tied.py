"""The rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.training.recovery import RECOVERIES, HeadRecovery

__all__ = ["Tied"]


@RECOVERIES.register("tied")
@dataclass(frozen=True, kw_only=True)
class Tied(HeadRecovery):
    """The input rows as they are."""

    tied: ClassVar[bool] = True
    biased: ClassVar[bool] = False
