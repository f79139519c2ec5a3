"""Exact inversion: the tokens themselves are searched, one position after another, and every find is verified.

With a causal model the output at position t depends on the tokens up to t only. So once the tokens before t are known,
trying every token of the vocabulary at t must find the right one: its output equals the target up to rounding. At most
T V candidates; the order of `headscan.inversion.order` makes it few. Source of the scheme: Nikolaou et al.,
"Language Models are Injective and Hence Invertible", arXiv:2510.15511 (SipIt); the table, its anchors, the batching over
prompts and the backtracking are headscan's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.fitting import TOKENS
from headscan.inversion.kept import KeptSearch, Progressed, copies
from headscan.inversion.position import PositionSearch
from headscan.inversion.search import Search
from headscan.inversion.table import passes_of_table
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.model.verify import evaluating
from headscan.run import BadInput, Progress

__all__ = ["Search", "exact", "refuse_unordered"]


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
