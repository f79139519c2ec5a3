"""What an inversion found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from headscan.inversion.certificate import Certificate, Verdict
from headscan.model.slicing.specification import SliceSpecification
from headscan.run import Result, Row

__all__ = ["InvertResult", "PromptInversion"]


@dataclass(frozen=True, kw_only=True)
class PromptInversion:
    """One prompt as its output gives it back.

    Attributes:
        tokens: ids of the prompt [T], none where states were given without them; recovered: those found; strings,
            recovered_strings: the same as people see them.
        token_accuracy: the share of `tokens` recovered; None where they are not known.
        known: positions whose tokens were given (special tokens of encoders).
        verdict: on the whole prompt; verdicts: on each position; certified: the same as a sentence.
        certificate: residuals, margins, equivalent tokens.
        evaluations: candidates tried, or gradient steps made; evaluations_per_token: of each position, where known.
        passes: token positions run through the model; 0 where the method does not count them.
        top: the best five tokens of each position, of descents.
        notes: what happened on the way, as sentences.
    """

    tokens: list[int]
    recovered: list[int]
    strings: list[str]
    recovered_strings: list[str]
    token_accuracy: float | None
    known: list[int]
    verdict: Verdict
    verdicts: list[Verdict]
    certified: str
    certificate: Certificate
    evaluations: int
    evaluations_per_token: list[int] | None
    passes: int
    top: list[list[int]] | None
    notes: list[str]

    def __repr__(self) -> str:
        right = "" if self.token_accuracy is None else f"{self.token_accuracy:.0%} right, "
        return f"PromptInversion({''.join(self.recovered_strings)!r}, {right}{self.verdict})"

    def right(self, place: int) -> bool | None:
        """Whether the token found at a position is the true one; None where that is not known."""
        return self.tokens[place] == self.recovered[place] if self.tokens else None


@dataclass(frozen=True, repr=False, kw_only=True)
class InvertResult(Result):
    """Recovered tokens with their certificates.

    Attributes:
        prompts: one entry a prompt.
        token_accuracy: the share of tokens recovered, over all prompts; None where they are not known.
        estimated_noise: of states that were given: the root mean square of the residuals of the tokens found, relative to
            the states' norms; None of prompts, and where nothing was recovered.
        verdict: the least good of all prompts.
        slice, slice_text: what was run, as fields and as text.
        method: by its name; parameters: its settings.
        given: what was known, by its name.
        causal: whether no output sees a later token.
    """

    kind: ClassVar[str] = "invert"

    prompts: list[PromptInversion]
    token_accuracy: float | None
    estimated_noise: float | None = None
    verdict: Verdict
    slice: SliceSpecification
    slice_text: str
    method: str
    parameters: Row
    given: str
    causal: bool

    def frame(self) -> pd.DataFrame:
        """A pandas table, one row a token."""
        rows = []
        for number, prompt in enumerate(self.prompts):
            certificate, length = prompt.certificate, len(prompt.recovered)
            nothing: list[None] = [None] * length
            for place in range(length):
                rows.append(
                    {
                        "prompt": number,
                        "position": place,
                        "token": prompt.strings[place] if prompt.strings else None,
                        "recovered": prompt.recovered_strings[place],
                        "right": prompt.right(place),
                        "residual": certificate.residuals[place],
                        "margin": certificate.margins[place],
                        "nearest": certificate.nearest[place],
                        "compared": certificate.compared[place],
                        "certificate": certificate.types[place],
                        "equivalent": len(certificate.equivalent[place]),
                        "evaluations": (prompt.evaluations_per_token or nothing)[place],
                        "verdict": prompt.verdicts[place],
                    }
                )
        return pd.DataFrame(rows)
