"""What an attribution found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["AttributeResult"]


@dataclass(frozen=True, repr=False)
class AttributeResult(Result):
    """Which tokens of a prompt a prediction rests on.

    `document` holds `tokens` (visible), `ids`, `special`, `roles`, `spans` (the units with their scores), `scores` (one
    a token, of the first method, averaged over the steps of a continuation), `target`, `method`, `steps` (each
    prediction with its own scores), `decoder` (of an encoder-decoder: what its decoder had said; else null), `maps`
    (each method), `agreement`, `faithfulness` and `protocol`; `arrays` holds `scores/METHOD` [S, T] and
    `units/METHOD` [S, n].
    """

    kind = "attribute"

    @property
    def tokens(self) -> list[str]:
        """The tokens as people can see them."""
        return self.document["tokens"]

    @property
    def scores(self) -> list[float]:
        """One score a token, of the first method."""
        return self.document["scores"]

    @property
    def faithfulness(self) -> dict[str, Any]:
        """Curves and numbers of the first method; {} where they were not asked for."""
        return self.document["faithfulness"]

    def frame(self, *, units: bool = False):
        """A pandas table: one row a token (or a unit), one column a method; of a continuation, steps averaged."""
        import pandas as pd

        kind = "units" if units else "scores"
        columns: dict[str, Any] = (
            {"unit": [span["text"] for span in self.document["spans"]]}
            if units
            else {"token": self.tokens, "id": self.document["ids"]}
        )
        for entry in self.document["maps"]:
            columns[entry["method"]] = self.arrays[f"{kind}/{entry['method']}"].mean(0)
        return pd.DataFrame(columns)

    def _repr_html_(self) -> str:
        return self._report("snippet")(self.document, self.arrays)
