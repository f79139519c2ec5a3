"""A count with what is needed to look back at the text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import scipy.sparse as sp

from headscan.model.opening import ModelsLike
from headscan.model.settings import Loading
from headscan.ntp.entropy import BootstrapSpread, bootstrap
from headscan.run import BadInput, Run, TextRecord
from headscan.text.counts import (
    ContextCounts,
    TokenStore,
    count_prefixes,
    count_tokens,
    grouped_counts,
    prefix_tokens,
    store_text,
)
from headscan.text.source import Counting, Reading, TextLike


@dataclass(frozen=True, kw_only=True)
class Predicting(Loading, Reading, Counting):
    """The options of `headscan.ntp.run`; the tokenizer is by default that of the first model."""

    model: ModelsLike | None
    prefixes: bool
    gap: float
    budget: float
    train: int
    width: int | None
    reading: Literal["text", "alone"]
    max_contexts: int
    groups: int
    seed: int

    def check(self) -> None:
        super().check()
        if self.gap >= 1:
            raise BadInput(f"--gap must be less than 1, not {self.gap:g}.")
        if self.width is not None and not self.train:
            raise BadInput("--width is not used without --train.")
        if self.reading != "text" and self.model is None:
            raise BadInput("--reading is not used without --model.")
        if self.prefixes and self.model is not None:
            raise BadInput("Models are compared on contexts of a fixed order; leave out the prefixes.")
        if self.prefixes and self.engine != "sort":
            raise BadInput("--engine spark counts contexts of a fixed order; leave out the prefixes.")
        if self.tokenizer is None and self.model is None:
            raise BadInput("Name a tokenizer (an id, a folder or bytes) or a model that has one.")


_BOOTSTRAP_TOKENS = 20_000_000  # more are not counted again in memory


@dataclass(frozen=True, eq=False)
class Counted:
    """The counts, the tokens they were taken from, and the record of the text."""

    counts: ContextCounts
    held: TokenStore
    text: TextRecord
    prefixes: bool

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        return self.counts.matrix()

    def context(self, row: int) -> list[int]:
        """The tokens of a context."""
        if self.prefixes:
            return prefix_tokens(self.counts, row)
        return [int(token) for token in self.counts.contexts[row]]

    def bootstrap(self, groups: int, seed: int) -> BootstrapSpread | None:
        """Spread over groups of documents, or of stretches of a text that has fewer; None where `unsettled` says why."""
        if self.unsettled(groups):
            return None
        return bootstrap(grouped_counts(self.held, self.counts, groups), seed=seed)

    def unsettled(self, groups: int) -> str | None:
        """Why there is no bootstrap; None where there is one."""
        if groups < 2:
            return "there are no groups to draw"
        if self.prefixes:
            return "contexts of all lengths are counted once"
        if len(self.held.tokens) < 2 * groups:
            return f"the text is too short for {groups} groups"
        if len(self.held.tokens) > _BOOTSTRAP_TOKENS:
            return f"more than {_BOOTSTRAP_TOKENS:,} tokens are not counted again in memory"
        return None

    def note(self, groups: int) -> str:
        """What the bootstrap's errors mean, or why there are none."""
        reason = self.unsettled(groups)
        if reason is not None:
            return f"No bootstrap: {reason}."
        if len(self.held.starts) >= groups:
            return "Errors are standard errors of a bootstrap over groups of documents."
        return (
            f"Errors are standard errors of a bootstrap over {groups} stretches of text, as if these were independent: there "
            "are fewer documents than groups."
        )


def count(text: TextLike, tokenizer: Any, settings: Predicting, run: Run) -> Counted:
    """Count a text as the settings say; the counts stay in the run's folder, under `counts`."""
    place: Path | None = None if run.folder is None else run.folder / "counts"
    work: Path | None = None if run.parts.folder is None else run.parts.folder / "counts"
    counting, reading = Counting(**settings.part(Counting)), Reading(**settings.part(Reading))
    held, record = store_text(text, tokenizer, reading, work, resume=run.resume, progress=run.progress)
    if settings.prefixes:
        counts = count_prefixes(held, longest=settings.order, min_count=settings.min_count)
    else:
        counts = count_tokens(held, counting, folder=place, work=work, resume=run.resume, progress=run.progress)
    return Counted(counts, held, record, settings.prefixes)
