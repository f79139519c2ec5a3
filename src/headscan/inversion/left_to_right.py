"""Exact inversion: the tokens themselves are searched, one position after another, and every find is verified.

With a causal model the output at position t depends on the tokens up to t only. So once the tokens before t are known,
trying every token of the vocabulary at t must find the right one: its output equals the target up to rounding. At most
T V candidates; the order of `headscan.inversion.ranking` makes it few. Source of the scheme: Nikolaou et al.,
"Language Models are Injective and Hence Invertible", arXiv:2510.15511 (SipIt); the table, its anchors, the batching over
prompts and the backtracking are headscan's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.candidates import Candidates, KeptSearch, Progressed, SearchTrace, copies
from headscan.inversion.fitting import TOKENS, readouts_of
from headscan.inversion.method import Search
from headscan.inversion.prior import Outlook, prior_pays
from headscan.inversion.ranking import Fit, FixedOrder, Order, RankedOrder, ReadoutOrder, TableOrder, propose
from headscan.inversion.reconstruction import accepted, accepts, noise_floor
from headscan.inversion.table import passes_of_table, table_of
from headscan.model.recording import evaluating
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Progress

# ---- One position of an exact search: which token, after the tokens found, gives the output wanted?

# Candidates at a position after one that failed, where a wrong prefix is all but certain and the vocabulary is long.
AFTER_FAILURE = 1024
# Tokens nearest to a doubtful find that are tried, and how many times farther all others must be.
LOOKALIKES = 256
CLEAR = 10.0
# Numbers that the cached keys and values of one batch of candidates may have in a block.
BATCH_NUMBERS = 1 << 27
# So many neighbours of the foremost candidate are tried with the first batch: a second pass would cost as much again.
COMPANIONS = 64


class PositionSearch:
    """What is the same at all positions of a search: the order of candidates and what is accepted.

    Args:
        cut: a causal slice.
        search: how to search.
        goals: for each prompt [T, w'], the outputs wanted.
        start: [P, s] tokens known to come first.
        allowed: bool [V] or None.
        tolerance: largest relative residual that counts as found; None chooses by precision.
        seed: of random orders.
        progress: told what is fitted.

    Attributes:
        fits: of each prompt what the table's order was last fitted to.
    """

    def __init__(
        self, cut: SlicedModel, search: Search, goals: list[Tensor], start: Tensor, allowed: Tensor | None,
        tolerance: float | None, seed: int, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.cut, self.search, self.goals, self.start = cut, search, goals, start
        self.allowed = None if allowed is None else allowed.to(cut.lens.device)
        self.choice = cut.vocabulary_size if allowed is None else int(allowed.sum())
        ranked = search.ranked_by(cut)
        self.table = table_of(cut, progress=progress) if ranked == "table" else None
        self.readouts = readouts_of(cut, search.fit, progress=progress) if ranked == "readout" else None
        self.generator = torch.Generator().manual_seed(seed)
        self.tolerance, self.floor = accepted(cut) if tolerance is None else tolerance, noise_floor(cut)
        # Tokens that were never trained have nearly equal vectors and pass the tolerance for one another: unless the
        # tolerance was set on purpose, the search goes on until a residual is as small as rounding makes it.
        self.certain = self.tolerance if tolerance is not None else min(self.tolerance, 3 * self.floor)
        self.fits: dict[int, Fit] = {}

    @cached_property
    def outlooks(self) -> list[Outlook]:
        """Of each prompt, how well each token fits; empty without readouts."""
        if self.readouts is None:
            return []
        prior = prior_pays(self.cut)
        return [
            Outlook(self.cut, self.readouts, goal, known, allowed=self.allowed, prior=prior)
            for goal, known in zip(self.goals, self.start.tolist(), strict=True)
        ]

    def find(
        self, prefix: Prefix, active: list[int], found: list[SearchTrace], tell: Callable[[str], None]
    ) -> list[Candidates]:
        """What was tried for each of the prompts `active` at the position after what was found of it.

        `tell` is told of long searches, in words that follow "exact search".
        """
        first = prefix.length == 0
        prefix.batch = min(prefix.batch, max(16, BATCH_NUMBERS // (self.cut.vectors.shape[1] * (prefix.length + 1))))
        goals = [self.goals[index][len(found[index].tokens)] for index in active]
        tries = [
            Candidates(self._order(index, goal, first, found[index].tokens), goal)
            for index, goal in zip(active, goals, strict=True)
        ]
        limits = self._limits(active, found)
        size, growth = self.search.batches(readout=self.readouts is not None)
        open_rows, hinted = list(range(len(active))), self.search.order != "gradient"
        if not hinted:
            self._hint(prefix, open_rows, tries)
        while open_rows:
            asked = [tries[row].order.next(min(size, limits[row] - tries[row].searching)) for row in open_rows]
            self._evaluate(prefix, open_rows, self._with_companions(open_rows, asked, tries), tries)
            for row, tokens in zip(list(open_rows), asked, strict=True):
                one = tries[row]
                one.searching += len(tokens)
                one.tried_all = len(tokens) == 0
                if accepts(one.best, self.certain) or len(tokens) == 0 or one.searching >= limits[row]:
                    open_rows.remove(row)
            if self.readouts is not None:
                open_rows = self._doubtful(prefix, open_rows, tries)
            size = min(growth * size, self.search.largest)
            after = self.search.gradient_after
            if open_rows and after is not None and tries[open_rows[0]].count >= after and self.table and hinted:
                self._hint(prefix, open_rows, tries)
                hinted, size = False, self.search.batches(readout=False)[0]
            if open_rows and size == self.search.largest:
                tell(f" · position {prefix.length + 1}: {tries[open_rows[0]].count:,} candidates tried")
        self._certify(prefix, tries)
        for index, one in zip(active, tries, strict=True):
            if isinstance(one.order, TableOrder) and not first:  # the first position is the table's own
                self.fits[index] = one.order.fit()
        return tries

    def _order(self, index: int, target: Tensor, first: bool, found: list[int]) -> Order:
        vocabulary = self.cut.vocabulary_size
        if self.table is not None:
            # What the position before told; at the second, that it is as after the table's short text.
            guess = self.fits.get(index) or Fit(1.0, torch.zeros_like(self.table.outputs[0]))
            return TableOrder(self.table, target, self.allowed, None if first else guess)
        if self.readouts is not None:
            outlook = self.outlooks[index]
            scores = outlook.scores(found)
            return ReadoutOrder(scores, lambda token: outlook.apart(found, token), self.allowed, outlook.alone(found))
        if self.search.order == "frequency":
            order = torch.arange(vocabulary)  # merges are numbered by frequency in every BPE vocabulary
        else:
            order = torch.randperm(vocabulary, generator=self.generator)
        order = order.to(target.device)
        return FixedOrder(order if self.allowed is None else order[self.allowed[order]])

    def _limits(self, active: list[int], found: list[SearchTrace]) -> list[int]:
        """Candidates that each prompt may try."""
        limit = min(self.search.budget or self.cut.vocabulary_size, self.cut.vocabulary_size)
        after = min(limit, AFTER_FAILURE) if self.readouts is not None else limit
        return [after if found[index].failed else limit for index in active]

    def _doubtful(self, prefix: Prefix, rows: list[int], tries: list[Candidates]) -> list[int]:
        """Those of the prompts that must go on.

        In a deep model rounding alone may exceed what is certain. A token within the tolerance is the one if none of those
        predicted nearest to it comes within the tolerance, too: tokens that pass for one another lie together.
        """
        for row in [row for row in rows if accepts(tries[row].best, self.tolerance)]:
            one, before = tries[row], -1
            while before != one.token:
                before = one.token
                self._evaluate(prefix, [row], [one.order.near(one.token, LOOKALIKES)], tries)
            twins = self.cut.equal_rows.get(one.token, [one.token])
            if one.runner_up(twins) > max(self.tolerance, CLEAR * one.best):
                rows = [other for other in rows if other != row]
        return rows

    def _with_companions(self, rows: list[int], asked: list[Tensor], tries: list[Candidates]) -> list[Tensor]:
        """The first batches, each with the neighbours of its foremost candidate.

        A readout's foremost candidate is nearly always the token, and then they are what its certificate asks for.
        """
        wanted, found = self.search.neighbours, list(asked)
        if self.readouts is None or not 0 < wanted <= COMPANIONS:
            return found
        for place, row in enumerate(rows):
            one, tokens = tries[row], asked[place]
            if not one.count and len(tokens):
                one.beside = int(tokens[0])
                found[place] = torch.cat([tokens, one.order.near(one.beside, wanted)])
        return found

    def _evaluate(self, prefix: Prefix, rows: list[int], asked: list[Tensor], tries: list[Candidates]) -> None:
        sizes = [len(tokens) for tokens in asked]
        if not sum(sizes):
            return
        owner = torch.repeat_interleave(torch.tensor(rows), torch.tensor(sizes)).to(prefix.ids.device)
        outputs = prefix.evaluate(owner, torch.cat(asked))
        for row, tokens, values in zip(rows, asked, outputs.split(sizes), strict=True):
            tries[row].take(tokens, values)

    def _hint(self, prefix: Prefix, rows: list[int], tries: list[Candidates]) -> None:
        index = torch.tensor(rows, device=prefix.ids.device)
        goals = torch.stack([tries[row].goal for row in rows])
        starts = [tries[row].token if tries[row].count else None for row in rows]
        for row, tokens in zip(rows, propose(prefix, index, goals, starts, count=1024), strict=True):
            order = tries[row].order
            if isinstance(order, RankedOrder):
                order.hint(tokens if self.allowed is None else tokens[self.allowed[tokens]])

    def _certify(self, prefix: Prefix, tries: list[Candidates]) -> None:
        count = self.search.neighbours
        rows = [row for row, one in enumerate(tries) if accepts(one.best, self.tolerance) and one.beside != one.token]
        if count and rows:
            count = self.cut.vocabulary_size if count < 0 else count
            self._evaluate(prefix, rows, [tries[row].order.near(tries[row].token, count) for row in rows], tries)


def refuse_unordered(cut: SlicedModel) -> None:
    """Raise BadInput for a slice whose outputs see later tokens."""
    if not cut.causal:
        raise BadInput(
            "Exact inversion goes from left to right and needs a causal slice; here every output sees every token: use "
            "the method 'joint'."
        )


@torch.no_grad()
def exact(
    cut: SlicedModel, targets: Sequence[Float[Tensor, "T w"]], search: Search | None = None, *,
    known: Int[Tensor, "P s"] | None = None, allowed: Bool[Tensor, " V"] | None = None,
    tolerance: float | None = None, seed: int = 0, progress: Progress | None = None, kept: KeptSearch | None = None,
) -> list[SearchTrace]:  # fmt: skip
    """Find the tokens of many prompts from their outputs at every position.

    Args:
        cut: a causal slice; the outputs of all positions after `known` are given.
        targets: for each prompt [T, w'] (lengths may differ): the outputs after the known tokens.
        search: how to search.
        known: [P, s] tokens that are known to come first.
        allowed: bool [V], the vocabulary searched; None is all of it.
        tolerance: largest relative residual ||O - O*|| / ||O*|| that counts as found; None chooses by precision.
        seed: of random orders.
        progress: told how many tokens are found.
        kept: stores what is found, from the 10th second on and when the search is interrupted, and goes on from there.

    Returns:
        One `SearchTrace` a prompt; its tokens do not include the known ones.

    Raises:
        BadInput: the slice is not causal.

    Memory: the model, the table where there is one (2 V w numbers), else 48 numbers a prompt and token of the vocabulary;
    the keys and values of a batch of candidates, at most 2 x 512 MB.
    """
    refuse_unordered(cut)
    goals = [target.to(cut.lens.device).float() for target in targets]
    with evaluating(cut.lens.model):  # once here, so that no forward pass has anything to switch
        start = torch.zeros(len(goals), 0, dtype=torch.int64) if known is None else known
        work = _LeftToRight(cut, search or Search(), goals, start, allowed, tolerance, seed, progress)
        found = [SearchTrace(notes=work.notes()) for _ in goals]
        failed = work.stored(found, kept)
        for index in failed:
            found[index] = work.backtrack(index, start[index : index + 1], found[index])
    return found


class _LeftToRight:
    """One call of `exact`."""

    def __init__(
        self, cut: SlicedModel, search: Search, goals: list[Tensor], start: Tensor, allowed: Tensor | None,
        tolerance: float | None, seed: int, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.cut, self.search, self.goals, self.progress = cut, search, goals, progress
        self.position = PositionSearch(cut, search, goals, start, allowed, tolerance, seed, progress)
        self._done = 0

    def notes(self) -> list[str]:
        """What is to be said of the search before it begins."""
        if self.position.readouts is None or self.search.order == "readout":
            return []
        return [
            f"Candidates were ordered by a readout fitted on {TOKENS:,} tokens; the table of all first outputs, which orders "
            f"smaller vocabularies, would have taken {passes_of_table(self.cut):,}."
        ]

    def stored(self, found: list[SearchTrace], kept: KeptSearch | None) -> list[int]:
        """`forward` for all prompts, from where an interrupted run stood, and stored as it goes on."""
        everything = list(range(len(self.goals)))
        if kept is None:
            return self.forward(everything, self.position.start, found)
        key = self.position.readouts.key if self.position.readouts is not None else self.search.order
        before = kept.read(key, self.cut.lens.device)
        state = before or Progressed(copies(found))

        def settle() -> None:
            nonlocal state
            state = Progressed(copies(found), [one.state() for one in self.position.outlooks], dict(self.position.fits))
            if kept.due():
                kept.write(state, key)

        try:
            return self.forward(everything, self.position.start, found, before=before, settle=settle)
        except BaseException:
            kept.write(state, key)
            raise

    def forward(
        self, active: list[int], start: Tensor, found: list[SearchTrace], stop: bool = True, *,
        before: Progressed | None = None, settle: Callable[[], None] | None = None,
    ) -> list[int]:  # fmt: skip
        """Go on with these prompts in step until each is done; with `stop` a prompt that fails drops out.

        `start` holds each prompt's tokens so far, known and found; `before` is where an interrupted run stood, whose steps
        are repeated without a search; `settle` is called after every position. Returns the prompts that failed.
        """
        prefix = Prefix(self.cut, start)
        failed: list[int] = []
        while True:
            going = [
                row for row, i in enumerate(active) if len(found[i].tokens) < len(self.goals[i]) and i not in failed
            ]
            if len(going) < len(active):
                prefix.keep(torch.tensor(going, dtype=torch.int64, device=prefix.ids.device))
                active = [active[row] for row in going]
            if not active:
                return failed
            passes = prefix.passes
            if before and all(len(before.traces[index].tokens) > len(found[index].tokens) for index in active):
                tokens = self._repeat(active, found, before)
            else:
                tokens = self._search(prefix, active, found)
            for index in active:
                place = len(found[index].tokens) - 1
                if place in found[index].failed and stop and any(found[index].rivals[:place]):
                    failed.append(index)
                found[index].passes += (prefix.passes - passes) // len(active)
            if any(len(found[index].tokens) < len(self.goals[index]) for index in active):
                prefix.extend(tokens[:, None])
            self._done = sum(len(one.tokens) for one in found)
            self._tell()
            for index in active:
                found[index].notes += [note for note in prefix.notes if note not in found[index].notes]
            if settle is not None:
                settle()

    def _tell(self, more: str = "") -> None:
        if self.progress:
            self.progress(f"exact search{more}", self._done, sum(map(len, self.goals)), "tokens")

    def _search(self, prefix: Prefix, active: list[int], found: list[SearchTrace]) -> Tensor:
        """One position further: the tokens found."""
        here = self.position
        tries = here.find(prefix, active, found, self._tell)
        for index, one in zip(active, tries, strict=True):
            twins = self.cut.equal_rows.get(one.token, [one.token])
            found[index].add(one, here.tolerance, here.floor, twins, here.choice)
        return torch.tensor([one.token for one in tries], device=prefix.ids.device)

    def _repeat(self, active: list[int], found: list[SearchTrace], before: Progressed) -> Tensor:
        """A position as the interrupted run left it; after the last, what orders the next is as it was."""
        for index in active:
            found[index].follow(before.traces[index])
            if self.search.order == "random":  # it drew an order
                torch.randperm(self.cut.vocabulary_size, generator=self.position.generator)
        if any(len(found[index].tokens) == len(before.traces[index].tokens) for index in active):
            self.position.fits = dict(before.fits)
            for index, (outlook, state) in enumerate(zip(self.position.outlooks, before.outlooks, strict=True)):
                if index in active:
                    outlook.restore(found[index].tokens, *state)
        return torch.tensor([found[index].tokens[-1] for index in active], device=self.cut.lens.device)

    def backtrack(self, index: int, known: Tensor, first: SearchTrace) -> SearchTrace:
        """Take back a prefix that led nowhere: try the rivals of earlier tokens, the latest first."""
        best, current = first, first
        while current.failed and best.backtracks < self.search.backtracks:
            places = [place for place in range(current.failed[0]) if current.rivals[place]]
            if not places:
                break
            place = places[-1]
            trial = current.upto(place + 1)
            trial.backtracks = best.backtracks = current.backtracks + 1
            # The rival takes the token's place and the token is not tried again.
            old, trial.tokens[place] = trial.tokens[place], trial.rivals[place].pop(0)
            trial.compared[place] = trial.compared[place].exchanged(old, trial.tokens[place])
            current = self._alone(index, known, trial)
            if len(current.tokens) == len(self.goals[index]) and not current.failed:
                return current
        if len(best.tokens) < len(self.goals[index]):
            self._alone(index, known, best, stop=False)
        return best

    def _alone(self, index: int, known: Tensor, trace: SearchTrace, stop: bool = True) -> SearchTrace:
        """Go on with one prompt from what it has."""
        start = torch.cat([known, torch.tensor([trace.tokens], dtype=torch.int64)], dim=1)
        self.forward([index], start, [trace if i == index else SearchTrace() for i in range(len(self.goals))], stop)
        return trace
