"""One position of an exact search: which token, after the tokens found, gives the output wanted?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from headscan.inversion.candidates import Candidates, SearchTrace
from headscan.inversion.fitting import readouts_of
from headscan.inversion.order import FixedOrder, Order, RankedOrder, ReadoutOrder
from headscan.inversion.prior import Outlook, prior_pays
from headscan.inversion.proposal import propose
from headscan.inversion.search import Search
from headscan.inversion.table import table_of
from headscan.inversion.table_order import Fit, TableOrder
from headscan.inversion.tolerance import accepted, accepts, noise_floor
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Progress

__all__ = ["PositionSearch"]

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
