"""What `tournament` can be asked."""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, ClassVar, Literal

from headscan.run import BadInput, Option, Running
from headscan.text.settings import TEXT, Reading, TextLike
from headscan.training.arms import ARMS
from headscan.training.racing.plan import SIZES, TournamentPlan, cells_of, numbers_of

__all__ = ["Tournament", "seconds_of"]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> float | None:
    """A budget of time in seconds, None for "full"; BadInput where it is none.

    >>> seconds_of("90m"), seconds_of("2h"), seconds_of("full")
    (5400.0, 7200.0, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if text.strip() != "full" and (found is None or float(found[1]) <= 0):
        raise BadInput(f"--budget is a time such as 90s, 30m, 2h, or full; not {text!r}.")
    return None if found is None else float(found[1]) * UNITS[found[2]]


@dataclass(frozen=True)
class Tournament(Reading, Running):
    """Which arms, how large, how often. What was run stays: `resume` goes on after a budget was spent, or with more seeds."""

    continues: ClassVar[bool] = True
    text: Annotated[TextLike, TEXT]
    _: KW_ONLY
    arms: Annotated[str, Option("Arms by comma-separated globs, as in 'ce,ce+unigram,headless' or 'ce*'.")] = "*"
    size: Annotated[
        Literal["tiny", "small", "base"], Option("tiny (an hour on two cores), small (a day of them) or base (a card).")
    ] = "tiny"
    seeds: Annotated[int, Option("Seeds of every arm and rate in the first cell.", low=1, identity=False)] = 5
    budget: Annotated[
        str,
        Option("Begin no further seed after so much time (90s, 30m, 2h): --resume goes on. Or full.", identity=False),
    ] = "full"
    matched_loss: Annotated[
        float | None, Option("Held-out nats at which arms are compared. Default: the size's.", above=0)
    ] = None
    steps: Annotated[int | None, Option("Steps of a run. Default: the size's.", low=2)] = None
    rates: Annotated[
        str | None, Option("Learning rates that every arm is tried at. Default: the size's.", metavar="R,R,...")
    ] = None
    cells: Annotated[
        str | None,
        Option("Vocabularies and widths; the first is the leaderboard's. Default: the size's.", metavar="V/D,V/D,..."),
    ] = None
    processes: Annotated[
        int | None,
        Option("Runs at once, one thread each; no number depends on it. Default: one a core.", low=1, identity=False),
    ] = None

    def check(self) -> None:
        """What can be known before the text is read."""
        super().check()
        seconds_of(self.budget)
        _ = self.names
        plan = self.plan
        if any(cell.width % plan.heads for cell in plan.cells):
            raise BadInput(f"--cells: the widths must be divisible by the {plan.heads} attention heads of this size.")

    @property
    def names(self) -> list[str]:
        """The arms that run, the reference first: the others are compared with it."""
        return ARMS.match(self.arms)

    @property
    def plan(self) -> TournamentPlan:
        """The size's numbers, with what was asked for in their place."""
        plan = SIZES[self.size]
        return replace(
            plan,
            steps=self.steps or plan.steps,
            warmup=min(plan.warmup, (self.steps or plan.steps) // 2),
            rates=plan.rates if self.rates is None else tuple(numbers_of(self.rates, "--rates")),
            cells=plan.cells if self.cells is None else cells_of(self.cells),
            matched_loss=self.matched_loss or plan.matched_loss,
        )

    @property
    def workers(self) -> int:
        """Runs at once."""
        return self.processes or os.cpu_count() or 1
