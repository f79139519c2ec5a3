"""What an inversion found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["InvertResult"]


@dataclass(frozen=True, repr=False)
class InvertResult(Result):
    """Recovered tokens with their certificate.

    `document` holds `tokens`, `recovered`, `token_accuracy`, `verdict`, `certificate`, `evaluations`, `slice`, `method`,
    `protocol`, and `prompts`: the same for each prompt, with the text and the tokens as strings. With several prompts
    the fields above are lists over prompts; the accuracy is that of all tokens, the verdict the least good one.
    """

    kind = "invert"

    @property
    def prompts(self) -> list[dict[str, Any]]:
        """One entry a prompt."""
        return self.document["prompts"]

    @property
    def token_accuracy(self) -> float:
        """The share of tokens recovered, over all prompts."""
        return self.document["token_accuracy"]

    def frame(self):
        """A pandas table, one row a token."""
        import pandas as pd

        rows = []
        for number, prompt in enumerate(self.prompts):
            certificate = prompt["certificate"]
            for place, (token, found) in enumerate(zip(prompt["tokens"], prompt["recovered"], strict=True)):
                rows.append(
                    {
                        "prompt": number,
                        "position": place,
                        "token": prompt["strings"][place],
                        "recovered": prompt["recovered_strings"][place],
                        "right": token == found,
                        "residual": (certificate.get("residuals") or [None] * 10**6)[place],
                        "margin": (certificate.get("margins") or [None] * 10**6)[place],
                        "equivalent": len((certificate.get("equivalent") or [[]] * 10**6)[place]),
                        "evaluations": (prompt.get("evaluations_per_token") or [None] * 10**6)[place],
                        "verdict": prompt["verdicts"][place],
                    }
                )
        return pd.DataFrame(rows)
