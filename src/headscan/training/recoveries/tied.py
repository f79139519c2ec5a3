"""The rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.training.recovery import RECOVERIES, Recovery

__all__ = ["Tied"]


@RECOVERIES.register("tied")
@dataclass(frozen=True, kw_only=True)
class Tied(Recovery):
    """The input rows as they are."""

    tied: ClassVar[bool] = True
    biased: ClassVar[bool] = False
