"""Exact inversion: the tokens themselves are searched, one position after another, and every token
found is verified.

With a causal model the output at position t depends on the tokens up to t only: once those before t
are known, the right token at t is the one whose output equals the target up to rounding. Source of
the scheme: Nikolaou et al., "Language Models are Injective and Hence Invertible", arXiv:2510.15511
(SipIt); the rankings, the batching over prompts and the backtracking are headscan's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.candidates import (
    Candidates,
    Fit,
    Ranking,
    SearchTrace,
    TableRanking,
    table_of,
)
from headscan.inversion.readout import TOKENS, ReadoutRanking, TokenScores, prior_pays, readouts_of
from headscan.inversion.reconstruction import accepted, accepts, noise_floor
from headscan.model.recording import evaluating
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Option, Progress, Settings

# Candidates at a position after one that failed, where a wrong prefix is all but certain and the
# vocabulary is long.
AFTER_FAILURE = 1024
# tokens nearest to a doubtful one that are tried; how many times farther others must be
LOOKALIKES = 256
CLEAR = 10.0
# numbers that the cached keys and values of one batch of candidates may have in a block
BATCH_NUMBERS = 1 << 27
LARGEST = 512  # candidates of the largest batch
# So many neighbours of the foremost candidate are tried with the first batch: a second pass would
# cost as much again.
COMPANIONS = 64
# the table is worth that many times the tokens of the readout's fit: it orders a little better, and
# is kept as well
WORTH = 8


@dataclass(frozen=True, kw_only=True)
class Search(Settings):
    """How to search from left to right."""

    order: Annotated[
        Literal["auto", "table", "readout", "random"],
        Option(
            "Candidates by the table of all first outputs, by a linear readout and the model's "
            "own prior (auto: the table up to a vocabulary of 32,768), or random (brute force)."
        ),
    ] = "auto"
    budget: Annotated[
        int | None, Option("Candidates at one position. Default: the whole vocabulary.", low=1)
    ] = None
    neighbours: Annotated[
        int,
        Option(
            "Nearest predicted tokens that are tried after a match, for the certificate.",
            low=0,
            python=True,
        ),
    ] = 16
    backtracks: Annotated[
        int, Option("Maximum number of backtracking steps, per prompt.", low=0, python=True)
    ] = 64

    def ranked_by(self, cut: SlicedModel) -> Literal["table", "readout", "random"]:
        """What ranks the candidates of a slice: the table costs two passes of the vocabulary, the
        readout's fit 8,192 tokens.
        """
        if self.order != "auto":
            return self.order
        return "table" if 2 * cut.vocabulary_size <= WORTH * TOKENS else "readout"


def refuse_unordered(cut: SlicedModel) -> None:
    """Raise BadInput for a slice whose outputs see later tokens."""
    if not cut.causal:
        raise BadInput(
            "Exact inversion goes from left to right and needs a causal slice; here every output "
            "sees every token: use the method 'joint'."
        )


@torch.no_grad()
def exact(
    cut: SlicedModel,
    targets: Sequence[Float[Tensor, "T w"]],
    search: Search | None = None,
    *,
    known: Int[Tensor, "P s"] | None = None,
    allowed: Bool[Tensor, " V"] | None = None,
    tolerance: float | None = None,
    certain: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[SearchTrace]:
    """Find the tokens of many prompts from their outputs at every position; one `SearchTrace` a
    prompt.

    `targets` are of each prompt [T, w'] (lengths may differ) the outputs of a causal slice after
    the `known` tokens, which come first and are not in the traces. `allowed` is the vocabulary
    searched (None: all of it), `tolerance` the largest relative residual ||O - O*|| / ||O*|| that
    counts as found; None chooses by precision. The search of a position ends at a residual within
    `certain` (None: a tolerance that is given, or what rounding makes), or at a larger one that
    stands alone.

    Memory: the model, the table (2 V w numbers) or 48 numbers a prompt and token; keys and values
        of a batch, at most 1 GB.
    """
    refuse_unordered(cut)
    with evaluating(cut.lens.model):  # once here, so that no forward pass has anything to switch
        work = _LeftToRight(
            cut, targets, search or Search(), known, allowed, tolerance, certain, seed, progress
        )
        traces = [SearchTrace() for _ in targets]
        for index in work.forward(list(range(len(traces))), work.start, traces):
            traces[index] = work.backtrack(index, traces[index])
    return traces


class _LeftToRight:
    """One call of `exact`: what is the same at all positions, and the walk over them."""

    def __init__(
        self,
        cut: SlicedModel,
        targets: Sequence[Tensor],
        search: Search,
        known: Tensor | None,
        allowed: Tensor | None,
        tolerance: float | None,
        certain: float | None,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.cut = cut
        self.search = search
        self.progress = progress
        self.goals = [target.to(cut.lens.device).float() for target in targets]
        self.start = torch.zeros(len(self.goals), 0, dtype=torch.int64) if known is None else known
        self.allowed = None if allowed is None else allowed.to(cut.lens.device)
        self.choice = cut.vocabulary_size if allowed is None else int(allowed.sum())
        ranked = search.ranked_by(cut)
        self.table = table_of(cut, progress=progress) if ranked == "table" else None
        self.readouts = readouts_of(cut, progress=progress) if ranked == "readout" else None
        self.generator = torch.Generator().manual_seed(seed)
        self.tolerance = accepted(cut) if tolerance is None else tolerance
        self.floor = noise_floor(cut)
        # Tokens that were never trained have nearly equal vectors and pass the tolerance for one
        # another: unless the tolerance was set on purpose, the search goes on until a residual is
        # as small as rounding makes it.
        self.certain = min(self.tolerance, certain or tolerance or 3 * self.floor)
        self.fits: dict[int, Fit] = {}  # of each prompt what its table was last fitted to
        self._done = 0
        self.scores = list[
            TokenScores
        ]()  # of each prompt how well each token fits; empty without readouts
        if self.readouts is not None:
            prior = prior_pays(cut)
            for goal, begin in zip(self.goals, self.start.tolist(), strict=True):
                self.scores.append(
                    TokenScores(cut, self.readouts, goal, begin, allowed=self.allowed, prior=prior)
                )

    # ---- From the first position to the last.

    def forward(
        self, active: list[int], start: Tensor, traces: list[SearchTrace], stop: bool = True
    ) -> list[int]:
        """Go on with these prompts, whose tokens so far are `start`; with `stop` one that fails
        drops out and is returned.
        """
        prefix = Prefix(self.cut, start)
        failed = list[int]()
        while True:
            going = [
                row
                for row, i in enumerate(active)
                if len(traces[i]) < len(self.goals[i]) and i not in failed
            ]
            if len(going) < len(active):
                prefix.keep(torch.tensor(going, dtype=torch.int64, device=prefix.ids.device))
                active = [active[row] for row in going]
            if not active:
                return failed
            passes = prefix.passes
            tries = self.find(prefix, active, traces)
            for index, tried in zip(active, tries, strict=True):
                trace = traces[index]
                trace.add(tried, self.tolerance, self.floor, self._twins(tried), self.choice)
                if trace.steps[-1].failed and stop and any(trace.rivals[:-1]):
                    failed.append(index)
                trace.passes += (prefix.passes - passes) // len(active)
            if any(len(traces[index]) < len(self.goals[index]) for index in active):
                prefix.extend(
                    torch.tensor([tried.token for tried in tries], device=prefix.ids.device)[
                        :, None
                    ]
                )
            self._done = sum(map(len, traces))
            self._tell()
            for index in active:
                traces[index].notes += [
                    note for note in prefix.notes if note not in traces[index].notes
                ]

    def _twins(self, tried: Candidates) -> list[int]:
        return self.cut.equal_rows.get(tried.token, [tried.token])

    def _tell(self, more: str = "") -> None:
        if self.progress:
            self.progress(f"exact search{more}", self._done, sum(map(len, self.goals)), "tokens")

    def backtrack(self, index: int, first: SearchTrace) -> SearchTrace:
        """Take back a prefix that led nowhere: try the rivals of earlier tokens, the latest first."""
        best = first
        current = first
        while current.failed and best.backtracks < self.search.backtracks:
            places = [place for place in range(current.failed[0]) if current.rivals[place]]
            if not places:
                break
            trial = current.upto(places[-1] + 1)
            trial.backtracks = best.backtracks = current.backtracks + 1
            # The rival takes the token's place and the token is not tried again.
            trial.steps[-1] = trial.steps[-1].exchanged()
            current = self._alone(index, trial)
            if len(current) == len(self.goals[index]) and not current.failed:
                return current
        if len(best) < len(self.goals[index]):
            self._alone(index, best, stop=False)
        return best

    def _alone(self, index: int, trace: SearchTrace, stop: bool = True) -> SearchTrace:
        """Go on with one prompt from what it has."""
        start = torch.cat(
            [self.start[index : index + 1], torch.tensor([trace.tokens], dtype=torch.int64)], dim=1
        )
        self.forward(
            [index],
            start,
            [trace if i == index else SearchTrace() for i in range(len(self.goals))],
            stop,
        )
        return trace

    # ---- One position: which token, after the tokens found, gives the output wanted?

    def find(
        self, prefix: Prefix, active: list[int], traces: list[SearchTrace]
    ) -> list[Candidates]:
        """What was tried for each of the prompts `active` at the position after what was found of
        it.
        """
        first = prefix.length == 0
        prefix.batch = min(
            prefix.batch,
            max(16, BATCH_NUMBERS // (self.cut.vectors.shape[1] * (prefix.length + 1))),
        )
        tries = []
        for index in active:
            goal = self.goals[index][len(traces[index])]
            tries.append(Candidates(self._ranking(index, goal, first, traces[index].tokens), goal))
        limit = min(self.search.budget or self.cut.vocabulary_size, self.cut.vocabulary_size)
        after = min(limit, AFTER_FAILURE) if self.readouts is not None else limit
        limits = [after if traces[index].failed else limit for index in active]
        size, growth = (8, 2) if self.readouts is None else (16, 2)
        open_rows = list(range(len(active)))
        while open_rows:
            asked = [
                tries[row].ranking.next(min(size, limits[row] - tries[row].searching))
                for row in open_rows
            ]
            self._evaluate(prefix, open_rows, self._with_companions(open_rows, asked, tries), tries)
            for row, tokens in zip(list(open_rows), asked, strict=True):
                tried = tries[row]
                tried.searching += len(tokens)
                tried.tried_all = len(tokens) == 0
                if (
                    accepts(tried.best, self.certain)
                    or len(tokens) == 0
                    or tried.searching >= limits[row]
                ):
                    open_rows.remove(row)
            if self.readouts is not None:
                open_rows = self._doubtful(prefix, open_rows, tries)
            size = min(growth * size, LARGEST)
            if open_rows and size == LARGEST:
                self._tell(
                    f" · position {prefix.length + 1}: {tries[open_rows[0]].count:,} candidates "
                    "tried"
                )
        self._certify(prefix, tries)
        for index, tried in zip(active, tries, strict=True):
            if (
                isinstance(tried.ranking, TableRanking) and not first
            ):  # the first position is the table's own
                self.fits[index] = tried.ranking.fit()
        return tries

    def _ranking(self, index: int, target: Tensor, first: bool, found: list[int]) -> Ranking:
        if self.table is not None:
            # What the position before told; at the second, that it is as after the table's short
            # text.
            guess = self.fits.get(index) or Fit(1.0, torch.zeros_like(self.table.outputs[0]))
            return TableRanking(self.table, target, self.allowed, None if first else guess)
        if self.readouts is not None:
            return ReadoutRanking(self.scores[index], found, target, self.allowed)
        drawn = torch.rand(self.cut.vocabulary_size, generator=self.generator).to(target.device)
        return Ranking(drawn, self.allowed)

    def _doubtful(self, prefix: Prefix, rows: list[int], tries: list[Candidates]) -> list[int]:
        """The prompts that must go on: those where a token predicted near to the one within the
        tolerance comes near, too.
        """
        for row in [row for row in rows if accepts(tries[row].best, self.tolerance)]:
            tried = tries[row]
            before = -1
            while before != tried.token:
                before = tried.token
                self._evaluate(prefix, [row], [tried.ranking.near(tried.token, LOOKALIKES)], tries)
            if tried.runner_up(self._twins(tried)) > max(self.tolerance, CLEAR * tried.best):
                rows = [other for other in rows if other != row]
        return rows

    def _with_companions(
        self, rows: list[int], asked: list[Tensor], tries: list[Candidates]
    ) -> list[Tensor]:
        """The first batches, each with the neighbours of its foremost candidate, which its
        certificate asks for.
        """
        wanted = self.search.neighbours
        batches = list(asked)
        if self.readouts is None or not 0 < wanted <= COMPANIONS:
            return batches
        for place, (tried, tokens) in enumerate(
            zip((tries[row] for row in rows), asked, strict=True)
        ):
            if not tried.count and len(tokens):
                tried.beside = int(tokens[0])
                batches[place] = torch.cat([tokens, tried.ranking.near(tried.beside, wanted)])
        return batches

    def _evaluate(
        self, prefix: Prefix, rows: list[int], asked: list[Tensor], tries: list[Candidates]
    ) -> None:
        sizes = [len(tokens) for tokens in asked]
        if not sum(sizes):
            return
        owner = torch.repeat_interleave(torch.tensor(rows), torch.tensor(sizes)).to(
            prefix.ids.device
        )
        for row, tokens, values in zip(
            rows, asked, prefix.evaluate(owner, torch.cat(asked)).split(sizes), strict=True
        ):
            tries[row].take(tokens, values)

    def _certify(self, prefix: Prefix, tries: list[Candidates]) -> None:
        count = self.search.neighbours
        rows = [
            row
            for row, one in enumerate(tries)
            if accepts(one.best, self.tolerance) and one.beside != one.token
        ]
        if count and rows:
            self._evaluate(
                prefix,
                rows,
                [tries[row].ranking.near(tries[row].token, count) for row in rows],
                tries,
            )
