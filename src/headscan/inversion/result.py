"""The result of `invert`: recovered tokens with their certificates."""

from dataclasses import dataclass
from typing import ClassVar

from headscan.inversion.reconstruction import Certificate, Verdict
from headscan.model.slicing.specification import SliceSpecification
from headscan.run import DataFrame, Result, Row, dataframe


@dataclass(frozen=True, kw_only=True)
class PromptInversion:
    """One prompt as its output gives it back.

    Attributes:
        tokens: ids of the prompt [T]; none where states were given without them.
        recovered: ids of the tokens recovered.
        strings, recovered_strings: both as people see them.
        token_accuracy: the share recovered; None where the tokens are not known.
        known: positions whose tokens were given (special tokens of encoders).
        lost: positions of the tokenizer's unknown token: the text that stood there is not in the
            states.
        verdict, verdicts: on the whole prompt, and on each position.
        certified: the verdict as a sentence.
        certificate: what the tokens are worth.
        evaluations: candidates tried, or gradient steps made.
        evaluations_per_token: of each position, where known.
        passes: token positions run through the model; 0 where they are not counted.
        top: the best five tokens of each position, of descents.
        notes: sentences about what happened on the way.
    """

    tokens: list[int]
    recovered: list[int]
    strings: list[str]
    recovered_strings: list[str]
    token_accuracy: float | None
    known: list[int]
    lost: list[int]
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

    def right(self, position: int) -> bool | None:
        """Return whether the token at a position is the true one, and stands for a text.

        None where that is not known.
        """
        if not self.tokens:
            return None
        return self.tokens[position] == self.recovered[position] and position not in self.lost


@dataclass(frozen=True, repr=False, kw_only=True)
class InvertResult(Result):
    """Recovered tokens with their certificates.

    Attributes:
        prompts: one entry a prompt.
        token_accuracy: over all prompts; None where the tokens are not known.
        estimated_noise: of given states: rms residual of the recovered tokens, relative to the
            norms.
        verdict: the worst of all prompts.
        slice, slice_text: what was run, and the same as text.
        method, parameters: the method and its settings.
        given: the name of the observation.
        causal: whether no output sees a later token.
    """

    kind: ClassVar[str] = "invert"
    looks_for: ClassVar[bool] = False

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

    def frame(self) -> DataFrame:
        rows = []
        for number, prompt in enumerate(self.prompts):
            certificate = prompt.certificate
            evaluations = prompt.evaluations_per_token
            for position, recovered in enumerate(prompt.recovered_strings):
                rows.append(
                    {
                        "prompt": number,
                        "position": position,
                        "token": prompt.strings[position] if prompt.strings else None,
                        "recovered": recovered,
                        "right": prompt.right(position),
                        "residual": certificate.residuals[position],
                        "margin": certificate.margins[position],
                        "nearest": certificate.nearest[position],
                        "compared": certificate.compared[position],
                        "certificate": certificate.types[position],
                        "equivalent": len(certificate.equivalent[position]),
                        "evaluations": evaluations and evaluations[position],
                        "verdict": prompt.verdicts[position],
                    }
                )
        return dataframe(rows)
