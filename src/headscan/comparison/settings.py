"""What a comparison is asked for: the options of `headscan.compare` and of the command line, said once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headscan.comparison.covariance import SIMILARITIES, SimilarityMeasure
from headscan.comparison.nulls import NULLS, NullModel
from headscan.model.settings import Loading, Revisions, Sites
from headscan.run import BadInput
from headscan.text.source import BatchSize, Reading, TextLike


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings(Loading, Reading):
    """The options of a comparison; see each one's help."""

    text: TextLike | None
    context: int
    sites: Sites
    skip_first: int
    measures: str
    nulls: str
    draws: int
    sample: int
    against: Literal["8bit", "4bit"] | None
    revisions: Revisions
    shape: bool
    batch: BatchSize
    seed: int

    def check(self) -> None:
        super().check()
        SIMILARITIES.match(self.measures)
        NULLS.match(self.nulls)
        if self.skip_first >= self.context:
            raise BadInput(
                f"--skip-first must leave at least one of the {self.context} positions of a window, not {self.skip_first}."
            )
        if self.max_tokens is not None and self.max_tokens < self.context:
            raise BadInput(f"--max-tokens must be at least one window of {self.context} tokens, not {self.max_tokens}.")
        if self.against is not None:
            from headscan.model.weights import check_quantization

            check_quantization()
            if self.quantize is not None:
                raise BadInput(f"--dtype {self.dtype} rounds all models: --against is for models of whole weights.")

    def chosen(self) -> dict[str, SimilarityMeasure]:
        """The measures that are asked for, by name, in their order."""
        found = {name: SIMILARITIES[name]() for name in SIMILARITIES.match(self.measures)}
        return dict(sorted(found.items(), key=lambda one: one[1].words.order))

    def chance(self) -> dict[str, NullModel]:
        """The nulls that are asked for, by name, in the order in which they were named."""
        named = [name for glob in self.nulls.split(",") for name in NULLS.match(glob.strip())]
        return {name: NULLS[name]() for name in dict.fromkeys(named)}
