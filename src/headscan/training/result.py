"""What a training run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["TrainResult"]


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """One training run: its protocol, its curves, its held-out likelihood and the geometry along the way.

    `document`: protocol, recipe, steps, tokens, loss, floor_corrected_loss, heldout_bits_per_byte, heldout (all ways of
    reading a headless model out), curve (one entry a log line), scan (one entry a measurement of all sites).
    """

    kind = "train"

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The log, one entry a line."""
        return self.document["curve"]

    def frame(self):
        """The learning curve as a pandas table, one row a log line."""
        import pandas as pd

        return pd.DataFrame(self.curve)
