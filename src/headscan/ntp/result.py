"""What `headscan.ntp(...)` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["NtpResult"]


@dataclass(frozen=True, repr=False)
class NtpResult(Result):
    """The geometry that a text alone predicts, and how models compare with it.

    `document` has the contract's `tokens`, `order`, `contexts`, `supports`, `entropy_bound`, `single_successor_share`, and
    `data`, `certificate`, `solution`, `uncertainty`, `axes`, `words`, `heat`, `models`, `training`, `findings`, `notes` and
    `protocol`. `arrays` has `words` [V, r] (predicted, at most 64 axes), `word_axes` [n, 6], `sigma`, `sigma_centred`, and for
    the heat maps `heat/predicted` and `heat/MODEL` [s, s].
    """

    kind = "ntp"

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry a model (or checkpoint), in the order given."""
        return self.document["models"]

    def frame(self):
        """A pandas table: the data's own numbers, then one row a model with its distance from the prediction."""
        import pandas as pd

        d = self.document
        own = {"what": "data", "CE_minus_H": 0.0, "contexts": d["contexts"], "supports": d["supports"]}
        rows = [own | {"entropy_bound": d["entropy_bound"], "rank": (d["solution"] or {}).get("rank")}]
        for model in self.models:
            m = model["metrics"]
            rows.append(
                {
                    "what": model["name"],
                    "contexts": m["contexts"],
                    "CE_minus_H": m["SC6"]["excess"],
                    "in_support_distance": m["SC3"],
                    "direction_cosine": m["direction"],
                    "word_gram_cosine": m["SC2_words"],
                    "context_gram_cosine": m["SC2_contexts"],
                    "top_k_equal_support": m["SC4"],
                    "same_support_cosine": (m["SC1"]["after"] or {}).get("same_cosine"),
                }
            )
        return pd.DataFrame(rows)
