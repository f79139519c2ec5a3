"""Candidates for the next token: their order, what they gave, and the trace of a whole search."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.reconstruction import INFINITE, Evidence, accepts, relative

RIVAL = 4.0
"""A token is a rival of the best one if its residual is at most so many times as large."""
SHOWN = 256  # tokens tried at a position that are looked at once more


class Ranking:
    """An order of candidates by a score [V], the largest first; none is returned twice."""

    def __init__(
        self, scores: Float[Tensor, " V"], allowed: Bool[Tensor, " V"] | None = None
    ) -> None:
        self.scores = scores
        self.done = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        if allowed is not None:
            self.done |= ~allowed

    def distances(self) -> Float[Tensor, " V"]:
        """Return the predicted distance of every token's output from the target.

        Only its order counts, so that it may be any monotonic function of the distance.
        """
        return -self.scores

    def distances_from(self, _token: int) -> Float[Tensor, " V"]:
        """Return the predicted distance of every token's output from that of a tried token."""
        return self.distances()

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        """Take note of what candidates gave: [n] tokens, [n, w'] outputs."""

    def next(self, count: int) -> Tensor:
        """Return the best candidates that were not tried yet, at most `count`."""
        return self._first(self.distances(), count)

    def neighbours(self, token: int, count: int) -> Tensor:
        """Return the candidates not tried yet that are predicted nearest to a tried token."""
        return self._first(self.distances_from(token), count)

    def _first(self, distances: Tensor, count: int) -> Tensor:
        count = min(count, int((~self.done).sum()))
        masked = distances.masked_fill(self.done, INFINITE)
        best = masked.topk(count, largest=False, sorted=True).indices
        self.done[best] = True
        return best


class Candidates:
    """The tokens tried for one prompt at one position, each with its relative residual.

    Attributes:
        tokens, residuals: in the order of the trials, a batch a tensor.
        count: candidates tried.
        searching: those of them that were tried to find the token, not to certify it.
        token: the best candidate; `best` is its residual.
        neighboured: the token whose neighbours were tried with the first batch.
        tried_all: whether no candidate is left.
    """

    def __init__(self, ranking: Ranking, goal: Tensor) -> None:
        self.ranking = ranking
        self.goal = goal
        self.tokens: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.count = 0
        self.searching = 0
        self.best = INFINITE
        self.token = 0
        self.neighboured: int | None = None
        self.tried_all = False

    def add(self, tokens: Tensor, outputs: Tensor) -> None:
        """Note what some candidates gave: [n] tokens, [n, w'] outputs."""
        if not len(tokens):
            return
        residuals = relative(outputs, self.goal)
        self.tokens.append(tokens)
        self.residuals.append(residuals)
        self.count += len(tokens)
        least, index = residuals.min(0)
        if float(least) < self.best:
            self.best = float(least)
            self.token = int(tokens[index])
        self.ranking.learn(tokens, outputs)

    def runner_up(self, twins: list[int]) -> float:
        """Return the least residual of a token that is none of `twins`."""
        for token, residual in self.ranked():
            if token not in twins:
                return residual
        return INFINITE

    def ranked(self) -> list[tuple[int, float]]:
        """Return the best 256 of the tokens tried with their residuals, the best first."""
        residuals = torch.cat(self.residuals)
        tokens = torch.cat(self.tokens)
        order = residuals.argsort()[:SHOWN]
        return list(zip(tokens[order].tolist(), residuals[order].tolist(), strict=True))


@dataclass(frozen=True)
class Step:
    """The result of a search at one position of a prompt.

    Attributes:
        token: the token found.
        rivals: other tokens that cannot be told from it.
        evidence: what it was compared with.
        evaluations: candidates tried until it was found.
        failed: whether no token came within the tolerance; the token is then the nearest.
        tried_all: whether no candidate was left.
    """

    token: int
    rivals: tuple[int, ...]
    evidence: Evidence
    evaluations: int
    failed: bool
    tried_all: bool

    def exchanged(self) -> "Step":
        """Return the step with the first rival in place of the token, which is no rival then."""
        first, *further = self.rivals
        evidence = self.evidence.exchanged(self.token, first)
        return replace(self, token=first, rivals=tuple(further), evidence=evidence)


@dataclass
class SearchTrace:
    """The result of a search from left to right for one prompt, position by position.

    Attributes:
        steps: one a position.
        backtracks: prefixes taken back.
        passes: token positions run.
    """

    steps: list[Step] = field(default_factory=list)
    backtracks: int = 0
    passes: int = 0

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def tokens(self) -> list[int]:
        return [step.token for step in self.steps]

    @property
    def residuals(self) -> list[float]:
        return [step.evidence.residual for step in self.steps]

    @property
    def rivals(self) -> list[tuple[int, ...]]:
        return [step.rivals for step in self.steps]

    @property
    def evaluations(self) -> list[int]:
        return [step.evaluations for step in self.steps]

    @property
    def failed(self) -> list[int]:
        """Return the positions at which no token came within the tolerance."""
        return [position for position, step in enumerate(self.steps) if step.failed]

    @property
    def exhausted(self) -> bool:
        """Return whether every candidate was tried where the search failed."""
        return all(step.tried_all for step in self.steps if step.failed)

    def upto(self, length: int) -> "SearchTrace":
        """Return a copy of the first positions; the work done stays counted."""
        return replace(self, steps=self.steps[:length])

    def add(
        self, tried: Candidates, tolerance: float, floor: float, twins: list[int], choice: int
    ) -> None:
        """Add a position with the best candidate there.

        Args:
            tried: the candidates tried.
            tolerance: the residual up to which an output counts as equal.
            floor: the residual that rounding may cause.
            twins: tokens with the same vector as the best candidate.
            choice: the number of tokens that may be returned.
        """
        limit = max(RIVAL * tried.best, floor)
        rivals = [token for token, residual in tried.ranked() if residual <= limit]
        rivals = [token for token in rivals if token != tried.token]
        rivals += [token for token in twins if token not in rivals and token != tried.token]
        evidence = Evidence.of(
            torch.cat(tried.tokens),
            torch.cat(tried.residuals),
            tried.token,
            tolerance=tolerance,
            choice=choice,
            twins=tuple(twins),
        )
        self.steps.append(
            Step(
                token=tried.token,
                rivals=tuple(rivals),
                evidence=evidence,
                evaluations=tried.searching,
                failed=not accepts(tried.best, tolerance),
                tried_all=tried.tried_all,
            )
        )
