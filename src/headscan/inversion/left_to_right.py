"""Exact inversion: tokens are searched one position after another, and each one is verified.

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

from headscan.inversion.candidates import Candidates, Ranking, SearchTrace
from headscan.inversion.readout_fit import TOKENS, readouts_of
from headscan.inversion.reconstruction import accepted, accepts, noise_floor
from headscan.inversion.table import TableFit, TableRanking, table_of
from headscan.inversion.token_scores import TokenScores, prior_pays
from headscan.model.recording import evaluating
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Option, Progress, Settings

# Candidates at a position after one that failed, where a wrong prefix is all but certain and the
# vocabulary is long.
AFTER_FAILURE = 1024
LOOKALIKES = 256  # tokens nearest to a doubtful one that are tried
CLEAR = 10.0  # a token stands alone if others are so many times farther
# Numbers that the cached keys and values of one batch of candidates may have in a block.
BATCH_NUMBERS = 1 << 27
LEAST_BATCH = 16
FIRST_BATCH = {"table": 8, "random": 8, "readout": 16}  # candidates, by order; batches double
LARGEST_BATCH = 512
# So many neighbours of the foremost candidate are tried with the first batch: a second pass would
# cost as much again.
COMPANIONS = 64
# The table is worth so many times the tokens of the readout's fit: it orders a little better, and
# is stored as well.
WORTH = 8


@dataclass(frozen=True, kw_only=True)
class Search(Settings):
    """The settings of a search from left to right."""

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
        """Return what ranks the candidates of a slice.

        The table costs two passes of the vocabulary, the readout's fit 8,192 tokens.
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
    """Find the tokens of many prompts from their outputs at every position; return their traces.

    Memory: the model, the table (2 V w numbers) or 48 numbers a prompt and token; keys and values
    of a batch, at most 1 GB.

    Args:
        cut: a causal slice.
        targets: the outputs [T, w'] of each prompt after the `known` tokens; lengths may differ.
        search: the settings of the search.
        known: tokens that come first and are not in the traces.
        allowed: the vocabulary searched; None: all of it.
        tolerance: the largest relative residual ||O - O*|| / ||O*|| that counts as equal; None
            chooses by precision.
        certain: the search of a position ends at a residual within it, or at a larger one that
            stands alone; None: a tolerance that is given, or the residual that rounding causes.
        seed: seed of the random order.
        progress: called as the work goes on.

    Raises:
        BadInput: the slice is not causal.
    """
    refuse_unordered(cut)
    with evaluating(cut.lens.model):  # once here, so that no forward pass has anything to switch
        work = _LeftToRight(
            cut,
            targets,
            search or Search(),
            known=known,
            allowed=allowed,
            tolerance=tolerance,
            certain=certain,
            seed=seed,
            progress=progress,
        )
        traces = {index: SearchTrace() for index in range(len(targets))}
        for index in work.forward(list(traces), work.start, traces):
            traces[index] = work.backtrack(index, traces[index])
    return list(traces.values())


class _LeftToRight:
    """One call of `exact`: the values that are the same at all positions, and the walk over them.

    Prompts are known by their index among the targets.
    """

    def __init__(
        self,
        cut: SlicedModel,
        targets: Sequence[Tensor],
        search: Search,
        *,
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
        self.order = search.ranked_by(cut)
        self.table = table_of(cut, progress=progress) if self.order == "table" else None
        self.generator = torch.Generator().manual_seed(seed)
        self.tolerance = accepted(cut) if tolerance is None else tolerance
        self.floor = noise_floor(cut)
        # Tokens that were never trained have nearly equal vectors and pass the tolerance for one
        # another: unless the tolerance was set on purpose, the search goes on until a residual is
        # as small as rounding makes it.
        self.certain = min(self.tolerance, certain or tolerance or 3 * self.floor)
        self.fits: dict[int, TableFit] = {}  # of the table, at the position before
        self.scores = self._token_scores() if self.order == "readout" else None
        self._done = 0

    def _token_scores(self) -> list[TokenScores]:
        readouts = readouts_of(self.cut, progress=self.progress)
        prior = prior_pays(self.cut)
        return [
            TokenScores(self.cut, readouts, goal, known, allowed=self.allowed, prior=prior)
            for goal, known in zip(self.goals, self.start.tolist(), strict=True)
        ]

    def forward(
        self, active: list[int], start: Tensor, traces: dict[int, SearchTrace], *, stop: bool = True
    ) -> list[int]:
        """Go on with the prompts `active`, whose tokens so far are `start`, to their ends.

        With `stop` a prompt that fails at a position, and has rivals at earlier ones, drops out.
        Return the prompts that did.
        """
        prefix = Prefix(self.cut, start)
        failed: list[int] = []
        while True:
            rows = [
                row
                for row, index in enumerate(active)
                if self._unfinished(traces, index) and index not in failed
            ]
            if len(rows) < len(active):
                prefix.keep(torch.tensor(rows, dtype=torch.int64, device=prefix.ids.device))
                active = [active[row] for row in rows]
            if not active:
                return failed
            passes = prefix.passes
            tries = self.find(prefix, active, traces)
            for index, tried in zip(active, tries, strict=True):
                trace = traces[index]
                trace.add(tried, self.tolerance, self.floor, self._twins(tried), self.choice)
                trace.passes += (prefix.passes - passes) // len(active)
                if trace.steps[-1].failed and stop and any(trace.rivals[:-1]):
                    failed.append(index)
            if any(self._unfinished(traces, index) for index in active):
                tokens = torch.tensor([tried.token for tried in tries], device=prefix.ids.device)
                prefix.extend(tokens[:, None])
            self._done = sum(map(len, traces.values()))
            self._report()

    def _unfinished(self, traces: dict[int, SearchTrace], index: int) -> bool:
        return len(traces[index]) < len(self.goals[index])

    def _twins(self, tried: Candidates) -> list[int]:
        """Return the tokens with the same vector as the best candidate."""
        return self.cut.equal_rows.get(tried.token, [tried.token])

    def _report(self, detail: str = "") -> None:
        if self.progress:
            total = sum(map(len, self.goals))
            self.progress(f"exact search{detail}", self._done, total, "tokens")

    def backtrack(self, index: int, first: SearchTrace) -> SearchTrace:
        """Take back a prefix that led nowhere, and return the best trace of a prompt.

        The rivals of earlier tokens are tried, the latest first.
        """
        best = first
        current = first
        while current.failed and best.backtracks < self.search.backtracks:
            rivals = current.rivals
            positions = [position for position in range(current.failed[0]) if rivals[position]]
            if not positions:
                break
            trial = current.upto(positions[-1] + 1)
            best.backtracks = current.backtracks + 1
            trial.backtracks = best.backtracks
            # The rival takes the token's place and the token is not tried again.
            trial.steps[-1] = trial.steps[-1].exchanged()
            self._go_on(index, trial)
            current = trial
            if len(current) == len(self.goals[index]) and not current.failed:
                return current
        if len(best) < len(self.goals[index]):
            self._go_on(index, best, stop=False)
        return best

    def _go_on(self, index: int, trace: SearchTrace, *, stop: bool = True) -> None:
        """Go on with one prompt from the tokens of its trace."""
        tokens = torch.tensor([trace.tokens], dtype=torch.int64)
        start = torch.cat([self.start[index : index + 1], tokens], dim=1)
        self.forward([index], start, {index: trace}, stop=stop)

    def find(
        self, prefix: Prefix, active: list[int], traces: dict[int, SearchTrace]
    ) -> list[Candidates]:
        """Search the token after the prefix of each prompt in `active`; return what was tried."""
        numbers = self.cut.vectors.shape[1] * (prefix.length + 1)  # of one candidate
        prefix.batch = min(prefix.batch, max(LEAST_BATCH, BATCH_NUMBERS // numbers))
        limit = min(self.search.budget or self.cut.vocabulary_size, self.cut.vocabulary_size)
        limit_after_failure = min(limit, AFTER_FAILURE) if self.scores is not None else limit
        tries = []
        limits = []
        for index in active:
            trace = traces[index]
            goal = self.goals[index][len(trace)]
            tries.append(Candidates(self._ranking(index, goal, prefix, trace.tokens), goal))
            limits.append(limit_after_failure if trace.failed else limit)

        self._search(prefix, tries, limits)
        self._certify(prefix, tries)
        for index, tried in zip(active, tries, strict=True):
            # The first position is the table's own: nothing is fitted there.
            if isinstance(tried.ranking, TableRanking) and prefix.length:
                self.fits[index] = tried.ranking.fit()
        return tries

    def _ranking(self, index: int, goal: Tensor, prefix: Prefix, tokens: list[int]) -> Ranking:
        if self.table is not None:
            if prefix.length == 0:
                return TableRanking(self.table, goal, self.allowed, None)
            # The second position is taken to be as after the table's short text.
            first_guess = TableFit(1.0, torch.zeros_like(self.table.outputs[0]))
            guess = self.fits.get(index, first_guess)
            return TableRanking(self.table, goal, self.allowed, guess)
        if self.scores is not None:
            return self.scores[index].ranking(tokens)
        order = torch.rand(self.cut.vocabulary_size, generator=self.generator).to(goal.device)
        return Ranking(order, self.allowed)

    def _search(self, prefix: Prefix, tries: list[Candidates], limits: list[int]) -> None:
        """Try batches of candidates until each prompt has its token or reached its limit."""
        size = FIRST_BATCH[self.order]
        rows = list(range(len(tries)))
        while rows:
            batches = []
            for row in rows:
                left = limits[row] - tries[row].searching
                batches.append(tries[row].ranking.next(min(size, left)))
            self._evaluate(prefix, rows, self._with_companions(rows, batches, tries), tries)
            unsolved = []
            for row, tokens in zip(rows, batches, strict=True):
                tried = tries[row]
                tried.searching += len(tokens)
                tried.tried_all = len(tokens) == 0
                at_limit = tried.tried_all or tried.searching >= limits[row]
                if not (accepts(tried.best, self.certain) or at_limit):
                    unsolved.append(row)
            rows = unsolved
            if self.scores is not None:
                rows = self._doubtful(prefix, rows, tries)
            size = min(2 * size, LARGEST_BATCH)
            if rows and size == LARGEST_BATCH:
                count = tries[rows[0]].count
                self._report(f" · position {prefix.length + 1}: {count:,} candidates tried")

    def _doubtful(self, prefix: Prefix, rows: list[int], tries: list[Candidates]) -> list[int]:
        """Return the rows that must go on.

        A token within the tolerance ends the search only if it stands alone among the tokens that
        are predicted near to it.
        """
        doubtful = []
        for row in rows:
            tried = tries[row]
            if accepts(tried.best, self.tolerance):
                self._try_lookalikes(prefix, row, tries)
                clear = max(self.tolerance, CLEAR * tried.best)
                if tried.runner_up(self._twins(tried)) > clear:
                    continue
            doubtful.append(row)
        return doubtful

    def _try_lookalikes(self, prefix: Prefix, row: int, tries: list[Candidates]) -> None:
        """Try the neighbours of the best candidate until none of them is better."""
        tried = tries[row]
        previous = -1
        while previous != tried.token:
            previous = tried.token
            lookalikes = tried.ranking.neighbours(tried.token, LOOKALIKES)
            self._evaluate(prefix, [row], [lookalikes], tries)

    def _with_companions(
        self, rows: list[int], batches: list[Tensor], tries: list[Candidates]
    ) -> list[Tensor]:
        """Return the batches; first ones with the neighbours of their foremost candidate.

        Its certificate asks for them.
        """
        count = self.search.neighbours
        if self.scores is None or not 0 < count <= COMPANIONS:
            return batches
        extended = []
        for row, tokens in zip(rows, batches, strict=True):
            tried = tries[row]
            if tried.count == 0 and len(tokens):
                tried.neighboured = int(tokens[0])
                companions = tried.ranking.neighbours(tried.neighboured, count)
                tokens = torch.cat([tokens, companions])
            extended.append(tokens)
        return extended

    def _evaluate(
        self, prefix: Prefix, rows: list[int], batches: list[Tensor], tries: list[Candidates]
    ) -> None:
        """Run a batch of candidates for each row behind its prefix, all in one pass."""
        sizes = [len(tokens) for tokens in batches]
        if sum(sizes) == 0:
            return
        owners = torch.repeat_interleave(torch.tensor(rows), torch.tensor(sizes))
        outputs = prefix.evaluate(owners.to(prefix.ids.device), torch.cat(batches)).split(sizes)
        for row, tokens, values in zip(rows, batches, outputs, strict=True):
            tries[row].add(tokens, values)

    def _certify(self, prefix: Prefix, tries: list[Candidates]) -> None:
        """Try the neighbours of each token found, unless its first batch had them."""
        count = self.search.neighbours
        if count == 0:
            return
        rows = [
            row
            for row, tried in enumerate(tries)
            if accepts(tried.best, self.tolerance) and tried.neighboured != tried.token
        ]
        batches = [tries[row].ranking.neighbours(tries[row].token, count) for row in rows]
        self._evaluate(prefix, rows, batches, tries)
