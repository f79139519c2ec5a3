"""What an inversion found."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from headscan.inversion import reconstruction as proof
from headscan.inversion.reconstruction import (
    Certificate,
    Evidence,
    Reconstruction,
    Verdict,
    accepts,
)
from headscan.model.slicing.specification import SliceSpecification
from headscan.run import DataFrame, Result, Row, dataframe


@dataclass(frozen=True, kw_only=True)
class PromptInversion:
    """One prompt as its output gives it back."""

    tokens: list[int]  # ids of the prompt [T]; none where states were given without them
    recovered: list[int]  # ids of those that were recovered
    strings: list[str]  # the tokens as people see them
    recovered_strings: list[str]
    token_accuracy: float | None  # the share recovered; None where the tokens are not known
    known: list[int]  # positions whose tokens were given (special tokens of encoders)
    # positions of the tokenizer's unknown token: the text that stood there is not in the states
    lost: list[int]
    verdict: Verdict  # on the whole prompt
    verdicts: list[Verdict]  # on each position
    certified: str  # the verdict as a sentence
    certificate: Certificate
    evaluations: int  # candidates tried, or gradient steps made
    evaluations_per_token: list[int] | None  # of each position, where known
    passes: int  # token positions run through the model; 0 where they are not counted
    top: list[list[int]] | None  # the best five tokens of each position, of descents
    notes: list[str]  # what happened on the way, as sentences

    def __repr__(self) -> str:
        right = "" if self.token_accuracy is None else f"{self.token_accuracy:.0%} right, "
        return f"PromptInversion({''.join(self.recovered_strings)!r}, {right}{self.verdict})"

    def right(self, place: int) -> bool | None:
        """Whether the token found at a position is the true one, and stands for a text; None where
        that is not known.
        """
        return (
            self.tokens[place] == self.recovered[place] and place not in self.lost
            if self.tokens
            else None
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class InvertResult(Result):
    """Recovered tokens with their certificates."""

    kind: ClassVar[str] = "invert"

    prompts: list[PromptInversion]
    token_accuracy: float | None  # over all prompts; None where the tokens are not known
    estimated_noise: float | None = (
        None  # of given states: rms residual of the recovered tokens, relative to the norms
    )
    verdict: Verdict  # the least good of all prompts
    slice: SliceSpecification  # what was run
    slice_text: str  # the same as text
    method: str
    parameters: Row  # the method's settings
    given: str  # what was known, by its name
    causal: bool  # whether no output sees a later token

    def frame(self) -> DataFrame:
        rows = []
        for number, prompt in enumerate(self.prompts):
            certificate = prompt.certificate
            for place, recovered in enumerate(prompt.recovered_strings):
                tried = prompt.evaluations_per_token
                rows.append(
                    {
                        "prompt": number,
                        "position": place,
                        "token": prompt.strings[place] if prompt.strings else None,
                        "recovered": recovered,
                        "right": prompt.right(place),
                        "residual": certificate.residuals[place],
                        "margin": certificate.margins[place],
                        "nearest": certificate.nearest[place],
                        "compared": certificate.compared[place],
                        "certificate": certificate.types[place],
                        "equivalent": len(certificate.equivalent[place]),
                        "evaluations": tried and tried[place],
                        "verdict": prompt.verdicts[place],
                    }
                )
        return dataframe(rows)


# ---- What a certificate says, in words: no stronger than its type.


def checked(free: list[Evidence], choice: int, *, restricted: bool = False) -> str:
    """With how many of `choice` tokens those of the positions `free` were compared, such as "17 to
    30 of 50,257 tokens".
    """
    counts = sorted({one.count for one in free})
    tokens = "tokens of the restricted vocabulary" if restricted else "tokens"
    if not counts:
        return ""
    if all(one.why != "sampled" for one in free):
        return f"all {choice:,} {tokens} at each position"
    shown = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{shown} of {choice:,} {tokens} at each position"


def certified(
    verdict: Verdict,
    found: Certificate,
    compared: list[Evidence],
    made: Reconstruction,
    target: Tensor,
    choice: int,
    lost: int = 0,
) -> str:
    """What is proved of a prompt, in a sentence or two; `choice` tokens may be returned, `lost` are
    unknown tokens.
    """
    if verdict == proof.NOT_RECOVERED:
        return (
            f"Not recovered: {_why(found, compared, made, target, choice)}. The tokens shown are "
            "a guess."
        )
    what = f"Recovered: the tokens shown give the output within {found.tolerance:.1e} of its norm"
    if verdict == proof.ABSENT:
        if lost:
            return (
                f"{what}; {lost} of them are the unknown token, and what text stood there is not "
                "in the states."
            )
        return f"{what}; some tokens move no output given, and what is shown there is arbitrary."
    if verdict == proof.AMBIGUOUS:
        places = sum(bool(rest) for rest in found.equivalent)
        most = max(map(len, found.equivalent))
        at = "1 position" if places == 1 else f"{places} positions"
        return f"{what}, but so do others: at {at} up to {most} more ({found.checked} compared)."
    if verdict == proof.TRIED:
        return (
            f"{what}; no other that was tried does ({found.checked}). Whether one that was not "
            "tried does is open."
        )
    how = "run" if found.type == "exhaustive" else "proved farther by the distance of its vector"
    return (
        f"{what}; unique among {found.checked}: every other was {how}, so that no other prompt of "
        "this length does."
    )


def _why(
    found: Certificate, compared: list[Evidence], made: Reconstruction, target: Tensor, choice: int
) -> str:
    """Why no tokens fit."""
    if broken := (~target.isfinite().all(-1)).nonzero()[:, 0].tolist():
        shown = ", ".join(map(str, broken[:8])) + (", ..." if len(broken) > 8 else "")
        return (
            "what is given is no finite number at "
            f"{'position' if len(broken) == 1 else 'positions'} {shown}"
        )
    if found.residual is None:
        return "the tokens found give an output that is no finite number"
    for place, one in enumerate(compared):
        if one.count and not accepts(one.residual, found.tolerance):
            away = (
                f"the nearest is {one.residual:.1e} of the norm away, the tolerance is "
                f"{found.tolerance:.1e}"
            )
            if one.why != "sampled":
                return (
                    f"none of the {choice:,} tokens gives the output at position {place} ({away})"
                )
            return (
                f"the search stopped at its budget, {one.count:,} of {choice:,} tokens at "
                f"position {place} ({away})"
            )
    away = f"they are {found.residual:.1e} of the norm away, the tolerance is {found.tolerance:.1e}"
    if made.stopped:
        return f"the search stopped at its budget ({away})"
    how = "descent" if made.top is not None else "search"
    return f"the {how} ended at tokens that do not give the output ({away})"
