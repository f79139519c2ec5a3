"""A tournament as a page of the documentation: the leaderboard, its sentences, and what was
predicted of it.

    headscan tournament --text stories.txt --arms 'ce,...' --out FOLDER
    python lab/scripts/leaderboard.py FOLDER > lab/docs/leaderboard.md

Everything on the page is read from the saved result; of a tournament that was stopped early the
page says how far it came.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import truediv
from pathlib import Path

import numpy as np
from headscan_lab.pages.tournament import elsewhere, gradient, leaderboard, rates, words
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.table import TournamentResult, at_loss, mean_over_seeds

import headscan
from headscan.report.kit import Section, Table
from headscan.report.kit.words import number, written


def markdown(section: Section | None, *more: str) -> list[str]:
    """The lines of a section of the result's page: title, lead, tables, and `more` below them."""
    if section is None:
        return []
    lines = [f"## {section.title}", "", *([section.lead, ""] if section.lead else [])]
    for table in (part for part in section.parts if isinstance(part, Table)):
        shown = table.headings("page")
        lines += [f"| {' | '.join(head.term.title for head in shown)} |", "|" + "---|" * len(shown)]
        for line in table.lines:
            cells = [(line.cells[place - 1], term) for place, term, _ in shown[1:]]
            ends = [
                ", ".join(written(end, term) for end in cell.interval or ()) for cell, term in cells
            ]
            told = [
                written(cell.value, term) + f" [{end}]" * bool(end)
                for (cell, term), end in zip(cells, ends, strict=True)
            ]
            lines.append(f"| {' | '.join([line.label, *told])} |")
    return [*lines, "", *more]


# ---- what was predicted, from the first table (50 runs of another programme)


@dataclass(frozen=True)
class Asked:
    """A prediction: a number of an arm's run, against that of cross-entropy at the same seed, and
    its limit.
    """

    words: str
    arm: str
    number: Callable[[Race], float | None]
    against: Callable[[float, float], float]
    limit: float
    least: bool = False
    places: int = 3

    def holds(self, value: float) -> bool:
        """On its side of the limit."""
        return value >= self.limit if self.least else value <= self.limit


def _predictions(result: TournamentResult) -> list[str]:
    """Each prediction at every rate, with the numbers of every seed."""
    main = result.plan.cells[0]
    matched = result.matched_loss

    def races(arm: str, rate: float) -> dict[int, Race]:
        wanted = (arm, rate, main.vocabulary, main.width)
        found = (
            one for one in result.races if (one.arm, one.rate, one.vocabulary, one.width) == wanted
        )
        return {one.seed: one for one in found}

    def cosine(race: Race) -> float | None:
        return at_loss(race, matched)["average_cosine"]

    def tokens(race: Race) -> float | None:
        return at_loss(race, matched)["tokens"]

    def end(race: Race) -> float | None:
        return race.moments[-1].nats if race.tuning_nats is not None else None

    def alone(one: float, other: float) -> float:
        return one

    def apart(one: float, other: float) -> float:
        return abs(one - other)

    asked = [
        Asked(
            "untied cross-entropy: cosine of the last block at least .25",
            "ce",
            cosine,
            alone,
            0.25,
            least=True,
        ),
        Asked("log-unigram bias: cosine at most .12", "ce+unigram", cosine, alone, 0.12),
        Asked(
            "tokens with the bias: at most .75 of those without",
            "ce+unigram",
            tokens,
            truediv,
            0.75,
        ),
        Asked(
            "μ-centring, untied: end within 1e-4 nats of cross-entropy",
            "ce+mu-centre",
            end,
            apart,
            1e-4,
            places=6,
        ),
        Asked(
            "z-loss: end within .005 nats of cross-entropy", "ce+z-loss", end, apart, 5e-3, places=4
        ),
    ]
    lines = ["| predicted | rate | every seed | mean | holds |", "|---|---|---|---|---|"]
    for one in asked:
        for rate in result.plan.rates:
            own = races(one.arm, rate)
            first = races("ce", rate)
            pairs = [
                (one.number(own[seed]), one.number(first[seed]))
                for seed in sorted(own)
                if seed in first
            ]
            known = [
                one.against(mine, theirs)
                for mine, theirs in pairs
                if mine is not None and theirs is not None
            ]
            mean = mean_over_seeds(known)[0]
            if mean is None:
                continue
            seeds = ", ".join(number(each, places=one.places) for each in known)
            every = all(map(one.holds, known))
            verdict = "yes" if every else "in the mean" if one.holds(mean) else "**no**"
            lines.append(
                f"| {one.words} | {rate:g} | {seeds} | {number(mean, places=one.places)} | "
                f"{verdict} |"
            )
    return lines


def page(result: TournamentResult) -> str:
    """The whole page as Markdown."""
    plan, main, first = result.plan, result.plan.cells[0], result.protocol
    wanted = first.settings.get("seeds")
    source = Path(first.text.source if first.text else "a text").name
    trained = sum(race.seconds for race in result.races)
    early = f" of {wanted} that were asked for" if wanted != result.seeds else ""
    lines = [
        "# The leaderboard",
        "",
        "Written by `lab/scripts/leaderboard.py` from a run of `headscan tournament` "
        f"({first.started[:10]}; `{source}`): {len(result.arms)} arms, {result.seeds} "
        f"seeds{early}, {len(result.races)} runs. A GPT-2 of {plan.blocks} blocks, d = "
        f"{main.width}, V = {main.vocabulary:,}, {plan.steps} steps of {plan.batch} windows of "
        f"{plan.context} tokens; the rates {' and '.join(f'{rate:g}' for rate in plan.rates)} for "
        "every arm. The rules are in [Cures side by side](tournament.md).",
        "",
        f"The steps took {trained / 60:.0f} minutes of one core's time in all, "
        f"{trained / 120:.0f} of two cores, without the measurements. Brackets: 95 % intervals. "
        "What is told here is told of models of this size.",
        "",
        *markdown(leaderboard(result)),
        *markdown(words(result)),
        "## What was predicted of it",
        "",
        "From an earlier table (one programme, 50 runs). *Holds* is asked of every seed.",
        "",
        *_predictions(result),
        "",
        *markdown(gradient(result), *_below(result), ""),
        *markdown(elsewhere(result)),
        *markdown(rates(result)),
    ]
    return "\n".join(lines)


def _below(result: TournamentResult) -> list[str]:
    ratios = {}
    for row in result.arms:
        kept = row.number("kept_norm")
        null = row.number("kept_norm_null")
        if kept is not None and null:
            ratios[str(row["arm"])] = kept / null
    if not ratios:
        return []
    low = min(ratios, key=lambda name: ratios[name])
    high = max(ratios, key=lambda name: ratios[name])
    under = int(np.sum([each < 1 for each in ratios.values()]))
    return [
        f"{under} of {len(ratios)} arms lie below the null of their leverages; kept over null "
        f"runs from {ratios[low]:.2f} ({low}) to {ratios[high]:.2f} ({high})."
    ]


if __name__ == "__main__":
    found = headscan.load(Path(sys.argv[1]))
    assert isinstance(found, TournamentResult)
    print(page(found), end="")
