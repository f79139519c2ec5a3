"""What a scan is asked for: the options of `headscan.scan` and of the command line, said once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from headscan.geometry.choose import choose
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.run.spark import MASTER, check_engine
from headscan.text import PairSet, read_pair_files, synonyms
from headscan.text.settings import TEXT, Reading, TextLike

__all__ = ["Scanning"]


@dataclass(frozen=True)
class Scanning(Loading, Reading, Running):
    """The options of a scan; see each one's help."""

    text: Annotated[TextLike | None, TEXT] = None
    _: KW_ONLY
    context: Annotated[int, Option("Tokens of a window; one window is one row of a forward pass.", low=1)] = 128
    sites: Annotated[
        str | None,
        Option("Globs of sites, comma-separated, such as 'block.*,head'. Default: embedding, blocks, final norm."),
    ] = None
    skip_first: Annotated[int, Option("Leave out the first so many positions of each window.", low=0)] = 0
    null: Annotated[bool, Option("Scan the same architecture with random weights, too, and add the Gaussian null.")] = (
        False
    )
    sample: Annotated[int, Option("Tokens shown in the 3-D picture.", low=0)] = 600
    token_sums: Annotated[
        bool, Option("Keep the sum of the vectors of each token id, too (arrays token_sums/MODEL/SITE).")
    ] = False
    measures: Annotated[
        str | Sequence[str] | None,
        Option(
            "More measures: globs of names or groups, comma-separated (such as 'rogue,words,spectra'), 'all' but the "
            "expensive ones, or 'expensive' for everything. Expensive ones say their time and memory first.",
            metavar="GLOBS",
        ),
    ] = None
    revisions: Annotated[
        str | Sequence[str] | None,
        Option("Revisions of one Hugging Face id, in order, comma-separated: one model each, as checkpoints."),
    ] = None
    pairs: Annotated[
        Sequence[str | os.PathLike[str]],
        Option(
            "A file of pairs of texts that mean the same, for --measures alignment (again for more): .tsv of two columns, "
            ".csv as STS-B, .json as PUD; FILE or NAME=FILE. Default: a list of English synonyms.",
            metavar="FILE",
        ),
    ] = ()
    batch: Annotated[
        int | None, Option("Windows of a forward pass. Default: about 2,048 tokens, 16,384 on a GPU.", low=1)
    ] = None
    engine: Annotated[
        Literal["here", "spark"],
        Option(
            "Who reads stored states: here (these processes) or spark (a cluster whose workers see them).",
            identity=False,
        ),
    ] = "here"
    master: Annotated[str | None, MASTER] = None

    def check(self) -> None:
        """Names of measures, files of pairs and lengths fit together."""
        super().check()
        check_engine(self.engine, self.master)
        _, probes = choose(self.measures)
        if self.skip_first >= self.context:
            raise BadInput(
                f"--skip-first must leave at least one of the {self.context} positions of a window, not {self.skip_first}."
            )
        if self.max_tokens is not None and self.max_tokens < self.context:
            raise BadInput(f"--max-tokens must be at least one window of {self.context} tokens, not {self.max_tokens}.")
        if self.revisions is not None and self.revision is not None:
            raise BadInput("Give --revision or --revisions, not both.")
        if self.pairs and "alignment" not in {probe.name for probe in probes}:
            raise BadInput("--pairs is for the measure alignment: add --measures alignment.")
        self.pair_sets()

    def pair_sets(self) -> tuple[PairSet, ...]:
        """The pairs in the files, or the shipped synonyms where there are none."""
        return tuple(read_pair_files(self.pairs)) or (synonyms(),)
