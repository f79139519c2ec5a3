"""What a search from left to right tried: the candidates at one position, and what was found for a whole prompt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headscan.inversion.ranking import Ranking
from headscan.inversion.reconstruction import Evidence, accepts, relative

# A token is a rival of the best one if its residual is less than so many times as large.
RIVAL = 4.0


class Candidates:
    """The tokens tried for one prompt at one position, with the relative residual ||O - O*|| / ||O*|| of each."""

    def __init__(self, ranking: Ranking, goal: Tensor) -> None:
        self.ranking, self.goal = ranking, goal
        self.tokens: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.count = self.searching = 0  # candidates tried, and those of them that were tried to find the token
        self.best, self.token = float("inf"), 0
        self.beside: int | None = None  # the token whose neighbours were tried with the first candidates
        self.tried_all = False

    def take(self, tokens: Tensor, outputs: Tensor) -> None:
        """Note what some candidates gave: [n] tokens, [n, w'] outputs."""
        if not len(tokens):
            return
        residuals = relative(outputs, self.goal)
        self.tokens.append(tokens)
        self.residuals.append(residuals)
        self.count += len(tokens)
        low, place = residuals.min(0)
        if float(low) < self.best:
            self.best, self.token = float(low), int(tokens[place])
        self.ranking.learn(tokens, outputs)

    def runner_up(self, twins: list[int]) -> float:
        """The least residual of a token that is none of `twins`."""
        tokens, residuals = self.sorted()
        return next((r for token, r in zip(tokens, residuals, strict=True) if token not in twins), float("inf"))

    def sorted(self) -> tuple[list[int], list[float]]:
        """The best 256 of the tokens tried with their residuals, best first."""
        residuals, tokens = torch.cat(self.residuals), torch.cat(self.tokens)
        order = residuals.argsort()[:256]
        return tokens[order].tolist(), residuals[order].tolist()


@dataclass(frozen=True)
class Step:
    """What was found at one position of a prompt."""

    token: int
    residual: float
    margin: float  # residual of the second best candidate tried; infinite if there was none
    rivals: tuple[int, ...]  # other tokens that cannot be told from the one found
    evidence: Evidence
    evaluations: int  # candidates tried until the token was found
    certifying: int  # candidates tried after, for the certificate
    failed: bool  # no token came within the tolerance: the nearest was taken
    tried_all: bool  # no candidate was left

    def exchanged(self) -> Step:
        """The same with the first rival taken in place of the token found; the token is no rival."""
        rival, *rest = self.rivals
        evidence = self.evidence.exchanged(self.token, rival)
        return replace(self, token=rival, rivals=tuple(rest), evidence=evidence)


@dataclass
class SearchTrace:
    """What a search from left to right found for one prompt, position by position."""

    steps: list[Step] = field(default_factory=list)
    backtracks: int = 0  # prefixes taken back
    passes: int = 0  # token positions run
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def tokens(self) -> list[int]:
        return [step.token for step in self.steps]

    @property
    def residuals(self) -> list[float]:
        return [step.residual for step in self.steps]

    @property
    def margins(self) -> list[float]:
        return [step.margin for step in self.steps]

    @property
    def rivals(self) -> list[tuple[int, ...]]:
        return [step.rivals for step in self.steps]

    @property
    def evaluations(self) -> list[int]:
        return [step.evaluations for step in self.steps]

    @property
    def failed(self) -> list[int]:
        return [place for place, step in enumerate(self.steps) if step.failed]

    @property
    def exhausted(self) -> bool:
        return all(step.tried_all for step in self.steps if step.failed)

    def upto(self, length: int) -> SearchTrace:
        """A copy of the first positions; the work done stays counted."""
        return replace(self, steps=self.steps[:length], notes=list(self.notes))

    def add(self, tried: Candidates, tolerance: float, floor: float, twins: list[int], choice: int) -> None:
        """Go one position further, with the best candidate there.

        `tolerance` is the largest residual that counts as found, `floor` what rounding alone may cause, `twins` are the tokens
        with the same vector as the best one, `choice` is the number of tokens that may be returned.
        """
        tokens, residuals = tried.sorted()
        limit = max(RIVAL * tried.best, floor)
        rivals = [token for token, r in zip(tokens, residuals, strict=True) if r <= limit and token != tried.token]
        evidence = Evidence.of(
            torch.cat(tried.tokens), torch.cat(tried.residuals), tried.token, tolerance=tolerance, choice=choice,
            twins=tuple(twins),
        )  # fmt: skip
        step = Step(
            token=tried.token, residual=tried.best, margin=tried.runner_up(twins),
            rivals=(*rivals, *(token for token in twins if token not in rivals and token != tried.token)),
            evidence=evidence, evaluations=tried.searching, certifying=tried.count - tried.searching,
            failed=not accepts(tried.best, tolerance), tried_all=tried.tried_all,
        )  # fmt: skip
        self.steps.append(step)
