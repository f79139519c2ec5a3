"""What a comparison is asked for: the options of `headscan.compare` and of the command line, said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from headscan.comparison.covariance import SIMILARITIES, SimilarityMeasure
from headscan.comparison.nulls import NULLS, NullModel
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.source import TEXT, Reading, TextLike


@dataclass(frozen=True)
class ComparisonSettings(Loading, Reading, Running):
    """The options of a comparison; see each one's help."""

    text: Annotated[TextLike | None, TEXT] = None
    _: KW_ONLY
    context: Annotated[int, Option("Tokens of a window; one window is one row of a forward pass.", low=2)] = 128
    sites: Annotated[
        str | None,
        Option("Globs of sites, comma-separated, such as 'block.*,head'. Default: embedding, blocks, final norm."),
    ] = None
    skip_first: Annotated[
        int, Option("Leave out the first so many positions of each window: many models keep a sink there.", low=0)
    ] = 1
    measures: Annotated[str, Option("Which measures: globs, comma-separated.", metavar="GLOBS")] = "*"
    nulls: Annotated[
        str,
        Option(
            "What chance would give, comma-separated; the first is the one of p: permutation, rotation, random-init."
        ),
    ] = "permutation"
    draws: Annotated[int, Option("Draws of a null: the least p is 1/(draws + 1).", low=19)] = 99
    sample: Annotated[int, Option("Tokens of the sample, for RSA, neighbours and nulls.", low=64)] = 1024
    against: Annotated[
        Literal["8bit", "4bit"] | None,
        Option("Compare each model with itself in so few bits, too (needs headscan[quantize])."),
    ] = None
    revisions: Annotated[
        str | Sequence[str] | None,
        Option("Revisions of one Hugging Face id, in order, comma-separated: one model each, as checkpoints."),
    ] = None
    shape: Annotated[
        bool, Option("Paired differences of all measures of shape as well, as the scan of both would have them.")
    ] = False
    batch: Annotated[
        int | None, Option("Windows of a forward pass. Default: about 2,048 tokens, 16,384 on a GPU.", low=1)
    ] = None

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
                raise BadInput("--quantize rounds all models: --against is for models that are not rounded themselves.")
        if self.revisions is not None and self.revision is not None:
            raise BadInput("Give --revision or --revisions, not both.")

    def chosen(self) -> dict[str, SimilarityMeasure]:
        """The measures that are asked for, by name, in their order."""
        found = {name: SIMILARITIES[name]() for name in SIMILARITIES.match(self.measures)}
        return dict(sorted(found.items(), key=lambda one: one[1].words.order))

    def chance(self) -> dict[str, NullModel]:
        """The nulls that are asked for, by name, in the order in which they were named."""
        named = [name for glob in self.nulls.split(",") for name in NULLS.match(glob.strip())]
        return {name: NULLS[name]() for name in dict.fromkeys(named)}
