"""Exact inversion: the tokens themselves are searched, one position after another, and every find is verified.

With a causal model the output at position t depends on the tokens up to t only. So once the tokens before t are known,
trying every token of the vocabulary at t must find the right one: its output equals the target up to rounding. At most
T V candidates; the order of `headscan.inversion.order` makes it few. Source of the scheme: Nikolaou et al.,
"Language Models are Injective and Hence Invertible", arXiv:2510.15511 (SipIt); the table, its anchors, the batching over
prompts and the backtracking are headscan's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.inversion.order import ORDERS, Fit, FixedOrder, TableOrder
from headscan.inversion.proposal import propose
from headscan.inversion.table import Progress, Table, table_of
from headscan.inversion.tolerance import accepted, noise_floor
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.model.verify import evaluating

__all__ = ["Found", "Search", "exact", "tolerance_of"]

# A token is a rival of the best one if its residual is less than so many times as large.
RIVAL = 4.0


@dataclass(frozen=True)
class Search:
    """How to search.

    Attributes:
        order: "table" (the default), "gradient" (a gradient first, the table after), "frequency" or "random" (brute
            force).
        tolerance: largest relative residual ||O - O*|| / ||O*|| that counts as found; None chooses by precision.
        first, largest: candidates of the first and of the largest batch; in between each is twice the last.
        budget: candidates at one position; None is the whole vocabulary.
        neighbours: after a find, so many of the tokens predicted to be most like it are tried too, for the
            certificate; None tries the whole vocabulary.
        gradient_after: candidates after which a gradient is asked for help; None never.
        backtracks: wrong prefixes that may be taken back, per prompt.
        seed: of random orders.
    """

    order: str = "table"
    tolerance: float | None = None
    first: int = 8
    largest: int = 512
    budget: int | None = None
    neighbours: int | None = 16
    gradient_after: int | None = 56
    backtracks: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise BadInput(f"There is no order '{self.order}'; choose one of {', '.join(ORDERS)}.")
        if self.first < 1 or self.largest < 1 or (self.budget is not None and self.budget < 1):
            raise BadInput("A search needs a budget and batches of at least one candidate.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise BadInput("The tolerance must be larger than zero: no two passes round alike.")
        if (self.neighbours is not None and self.neighbours < 0) or self.backtracks < 0:
            raise BadInput("Neighbours and backtracks cannot be fewer than none.")


@dataclass
class Found:
    """What was found for one prompt, position by position.

    Attributes:
        tokens: ids [T].
        residuals: relative residual of each.
        margins: relative residual of the second best candidate tried (infinite if there was none).
        rivals: for each position the other tokens that cannot be told from the one found.
        evaluations: candidates tried until each was found; `certifying`: those tried after, for the certificate.
        failed: positions at which no token came within the tolerance (the nearest was taken).
        exhausted: whether there every allowed token had been tried.
        backtracks: prefixes taken back.
    """

    tokens: list[int] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    rivals: list[list[int]] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    certifying: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    exhausted: bool = True
    backtracks: int = 0
    passes: int = 0
    notes: list[str] = field(default_factory=list)

    def upto(self, length: int) -> Found:
        """The first positions of it, as a start for another attempt; the work done stays counted."""
        kept = Found(backtracks=self.backtracks, passes=self.passes, notes=self.notes)
        for name in ("tokens", "residuals", "margins", "rivals", "evaluations", "certifying"):
            setattr(kept, name, list(getattr(self, name)[:length]))
        kept.failed = [place for place in self.failed if place < length]
        return kept


def tolerance_of(cut: SlicedModel, search: Search) -> float:
    """The relative residual that counts as found."""
    if search.tolerance is not None:
        return search.tolerance
    return accepted(cut)


@torch.no_grad()
def exact(
    cut: SlicedModel,
    targets: Sequence[Tensor],
    search: Search | None = None,
    *,
    known: Tensor | None = None,
    allowed: Tensor | None = None,
    frequency: Tensor | None = None,
    progress: Progress | None = None,
) -> list[Found]:
    """Find the tokens of many prompts from their outputs at every position.

    Args:
        cut: a causal slice; the outputs of all positions after `known` are given.
        targets: for each prompt [T, w'] (lengths may differ): the outputs after the known tokens.
        search: how to search.
        known: [P, s] tokens that are known to come first.
        allowed: bool [V], the vocabulary searched; None is all of it.
        frequency: [V] counts of tokens, used as a prior and by the order "frequency".
        progress: called with (name, done, all).

    Returns:
        One `Found` a prompt; its tokens do not include the known ones.

    Raises:
        BadInput: the slice is not causal.
    """
    search = search or Search()
    if not cut.causal:
        raise BadInput(
            "Exact inversion goes from left to right and needs a causal slice; here every output sees every token: use "
            "the method 'joint'."
        )
    goals = [target.to(cut.lens.device).float() for target in targets]
    with evaluating(cut.lens.model):  # once here, so that no forward pass has anything to switch
        work = _Work(cut, search, goals, allowed, frequency, progress)
        start = torch.zeros(len(goals), 0, dtype=torch.int64) if known is None else known
        found = [Found() for _ in goals]
        failed = work.forward(list(range(len(goals))), start, found)
        for index in failed:
            found[index] = work.backtrack(index, start[index : index + 1], found[index])
    return found


class _Work:
    """One call of `exact`."""

    def __init__(
        self,
        cut: SlicedModel,
        search: Search,
        goals: list[Tensor],
        allowed: Tensor | None,
        frequency: Tensor | None,
        progress: Progress | None,
    ) -> None:
        self.cut, self.search, self.goals, self.progress = cut, search, goals, progress
        self.allowed = None if allowed is None else allowed.to(cut.lens.device)
        self.table: Table | None = None
        if search.order in ("table", "gradient"):
            self.table = table_of(cut, progress=progress)
        self.prior = None
        if frequency is not None:
            counts = frequency.to(cut.lens.device).float() + 0.5
            self.prior = (counts / counts.sum()).log()
        self.generator = torch.Generator().manual_seed(search.seed)
        self.tolerance, self.floor = tolerance_of(cut, search), noise_floor(cut)
        # Tokens that were never trained have nearly equal vectors and pass the tolerance for one another: unless the
        # tolerance was set on purpose, the search goes on until a residual is as small as rounding makes it.
        self.certain = self.tolerance if search.tolerance is not None else min(self.tolerance, 3 * self.floor)
        self.fits: dict[int, Fit] = {}

    def forward(self, active: list[int], start: Tensor, found: list[Found], stop: bool = True) -> list[int]:
        """Go on with these prompts in step until each is done; with `stop` a prompt that fails drops out.

        `start` holds each prompt's tokens so far, known and found. Returns the prompts that failed.
        """
        prefix = Prefix(self.cut, start)
        failed: list[int] = []
        total = sum(len(self.goals[index]) for index in active)
        while True:
            going = [
                row for row, i in enumerate(active) if len(found[i].tokens) < len(self.goals[i]) and i not in failed
            ]
            if len(going) < len(active):
                prefix.keep(torch.tensor(going, dtype=torch.int64, device=prefix.ids.device))
                active = [active[row] for row in going]
            if not active:
                return failed
            before = prefix.passes
            tokens = self._position(prefix, active, found)
            for index in active:
                place = len(found[index].tokens) - 1
                if place in found[index].failed and stop and any(found[index].rivals[:place]):
                    failed.append(index)
                found[index].passes += (prefix.passes - before) // len(active)
            if any(len(found[index].tokens) < len(self.goals[index]) for index in active):
                prefix.extend(tokens[:, None])
            if self.progress:
                self.progress("tokens", sum(len(one.tokens) for one in found), total)
            for index in active:
                found[index].notes += [note for note in prefix.notes if note not in found[index].notes]

    def backtrack(self, index: int, known: Tensor, first: Found) -> Found:
        """Take back a prefix that led nowhere: try the rivals of earlier tokens, the latest first."""
        best, current = first, first
        while current.failed and best.backtracks < self.search.backtracks:
            places = [place for place in range(current.failed[0]) if current.rivals[place]]
            if not places:
                break
            place = places[-1]
            count = current.backtracks + 1
            trial = current.upto(place + 1)
            trial.backtracks = count
            # The rival takes the token's place and the token is not tried again.
            trial.tokens[place] = trial.rivals[place].pop(0)
            found = {index: trial}
            start = torch.cat([known, torch.tensor([trial.tokens], dtype=torch.int64)], dim=1)
            store = [found.get(i, Found()) for i in range(len(self.goals))]
            self.forward([index], start, store)
            current = store[index]
            current.backtracks = count
            best.backtracks = count
            if len(current.tokens) == len(self.goals[index]) and not current.failed:
                return current
        if len(best.tokens) < len(self.goals[index]):
            start = torch.cat([known, torch.tensor([best.tokens], dtype=torch.int64)], dim=1)
            store = [best if i == index else Found() for i in range(len(self.goals))]
            self.forward([index], start, store, stop=False)
        return best

    # ---- one position

    def _order(self, index: int, target: Tensor, first: bool) -> TableOrder | FixedOrder:
        vocabulary = self.cut.vocabulary_size
        if self.table is not None:
            return TableOrder(self.table, target, self.allowed, None if first else self._guess(index), self.prior)
        if self.search.order == "frequency" and self.prior is not None:
            order = self.prior.argsort(descending=True)
        elif self.search.order == "frequency":
            order = torch.arange(vocabulary)  # merges are numbered by frequency in every BPE vocabulary
        else:
            order = torch.randperm(vocabulary, generator=self.generator)
        order = order.to(target.device)
        return FixedOrder(order if self.allowed is None else order[self.allowed[order]])

    def _guess(self, index: int) -> Fit:
        """What the position before told; at the second, that it is as after the table's short text."""
        assert self.table is not None
        return self.fits.get(index) or Fit(1.0, torch.zeros_like(self.table.outputs[0]))

    def _position(self, prefix: Prefix, active: list[int], found: list[Found]) -> Tensor:
        goals = [self.goals[index][len(found[index].tokens)] for index in active]
        tries = [
            _Try(self._order(index, goal, prefix.length == 0), goal) for index, goal in zip(active, goals, strict=True)
        ]
        limit = min(self.search.budget or self.cut.vocabulary_size, self.cut.vocabulary_size)
        size, open_rows, hinted = self.search.first, list(range(len(active))), self.search.order != "gradient"
        if not hinted:
            self._hint(prefix, open_rows, tries)
        while open_rows:
            count = min(size, limit)
            asked = [tries[row].order.next(min(count, limit - tries[row].count)) for row in open_rows]
            self._evaluate(prefix, open_rows, asked, tries)
            for row, tokens in zip(list(open_rows), asked, strict=True):
                one = tries[row]
                one.tried_all = len(tokens) == 0
                if one.best <= self.certain or len(tokens) == 0 or one.count >= limit:
                    open_rows.remove(row)
            size = min(2 * size, self.search.largest)
            after = self.search.gradient_after
            if open_rows and after is not None and tries[open_rows[0]].count >= after and self.table and hinted:
                self._hint(prefix, open_rows, tries)
                hinted, size = False, self.search.first
        for one in tries:
            one.searching = one.count
        self._certify(prefix, tries)
        for index, one in zip(active, tries, strict=True):
            self._note(index, one, found[index], prefix.length == 0)
        return torch.tensor([one.token for one in tries], device=prefix.ids.device)

    def _evaluate(self, prefix: Prefix, rows: list[int], asked: list[Tensor], tries: list[_Try]) -> None:
        sizes = [len(tokens) for tokens in asked]
        if not sum(sizes):
            return
        owner = torch.repeat_interleave(torch.tensor(rows), torch.tensor(sizes)).to(prefix.ids.device)
        outputs = prefix.evaluate(owner, torch.cat(asked))
        for row, tokens, values in zip(rows, asked, outputs.split(sizes), strict=True):
            tries[row].take(tokens, values)

    def _hint(self, prefix: Prefix, rows: list[int], tries: list[_Try]) -> None:
        index = torch.tensor(rows, device=prefix.ids.device)
        goals = torch.stack([tries[row].goal for row in rows])
        starts = [tries[row].token if tries[row].count else None for row in rows]
        for row, tokens in zip(rows, propose(prefix, index, goals, starts, count=1024), strict=True):
            order = tries[row].order
            if isinstance(order, TableOrder):
                order.hint(tokens if self.allowed is None else tokens[self.allowed[tokens]])

    def _certify(self, prefix: Prefix, tries: list[_Try]) -> None:
        count = self.search.neighbours
        if count == 0:
            return
        rows = [row for row, one in enumerate(tries) if one.best <= self.tolerance]
        asked = []
        for row in rows:
            one = tries[row]
            asked.append(one.order.near(one.token, self.cut.vocabulary_size if count is None else count))
        if rows:
            self._evaluate(prefix, rows, asked, tries)

    def _note(self, index: int, one: _Try, found: Found, first: bool) -> None:
        order = one.order
        if (
            isinstance(order, TableOrder) and not first
        ):  # the first position is the table's own: it tells nothing of others
            self.fits[index] = order.fit()
        if one.best > self.tolerance:
            found.failed.append(len(found.tokens))
            found.exhausted = found.exhausted and one.tried_all
        tokens, residuals = one.sorted()
        limit = max(RIVAL * one.best, self.floor)
        same = self.cut.equal_rows.get(one.token, [one.token])
        rivals = [token for token, r in zip(tokens, residuals, strict=True) if r <= limit and token != one.token]
        found.tokens.append(one.token)
        found.residuals.append(one.best)
        others = [r for token, r in zip(tokens, residuals, strict=True) if token not in same]
        found.margins.append(others[0] if others else float("inf"))
        found.rivals.append(rivals + [token for token in same if token not in rivals and token != one.token])
        found.evaluations.append(one.searching)
        found.certifying.append(one.count - one.searching)


class _Try:
    """The candidates tried for one prompt at one position."""

    def __init__(self, order: TableOrder | FixedOrder, goal: Tensor) -> None:
        self.order, self.goal = order, goal
        self.scale = float(goal.norm().clamp_min(1e-30))
        self.tokens: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.count = self.searching = 0
        self.best, self.token = float("inf"), 0
        self.tried_all = False

    def take(self, tokens: Tensor, outputs: Tensor) -> None:
        if not len(tokens):
            return
        residuals = (outputs - self.goal).norm(dim=1) / self.scale
        self.tokens.append(tokens)
        self.residuals.append(residuals)
        self.count += len(tokens)
        low, place = residuals.min(0)
        if float(low) < self.best:
            self.best, self.token = float(low), int(tokens[place])
        self.order.learn(tokens, outputs)

    def sorted(self) -> tuple[list[int], list[float]]:
        """The best few of the tokens tried with their relative residuals, best first."""
        residuals, tokens = torch.cat(self.residuals), torch.cat(self.tokens)
        order = residuals.argsort()[:256]
        return tokens[order].tolist(), residuals[order].tolist()
