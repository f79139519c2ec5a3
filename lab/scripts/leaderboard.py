"""A tournament as a page of the documentation: leaderboard, and what was predicted.

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

from headscan_lab.pages.tournament import gradient, leaderboard, rates
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.reading import at_loss, final_nats, mean_over_seeds
from headscan_lab.tournament.table import TournamentResult

import headscan
from headscan.report.kit import Section, Table
from headscan.report.kit.words import number, written


def markdown(section: Section | None, *extra: str) -> list[str]:
    """Return the lines of a section of the result's page: title, lead, tables, and extra lines."""
    if section is None:
        return []
    lines = [f"## {section.title}", ""]
    if section.lead:
        lines += [section.lead, ""]
    for part in section.parts:
        if isinstance(part, Table):
            lines += _markdown_table(part)
    return [*lines, "", *extra]


def _markdown_table(table: Table) -> list[str]:
    columns = table.headings("page")
    titles = " | ".join(column.term.title for column in columns)
    lines = [f"| {titles} |", "|" + "---|" * len(columns)]
    for line in table.lines:
        cells = []
        for position, term, _ in columns[1:]:
            cell = line.cells[position - 1]
            text = written(cell.value, term)
            ends = ", ".join(written(end, term) for end in cell.interval or ())
            cells.append(f"{text} [{ends}]" if ends else text)
        lines.append(f"| {' | '.join([line.label, *cells])} |")
    return lines


@dataclass(frozen=True)
class Prediction:
    """A number of an arm's run against that of cross-entropy at the same seed, and its limit.

    Attributes:
        words: the prediction in words.
        value: the number of a run at the matched loss; None where it is undefined.
        against: combines the arm's number with that of cross-entropy.
        limit: the largest number for which the prediction holds; with `at_least` the smallest.
        places: decimals that are shown.
    """

    words: str
    arm: str
    value: Callable[[Race, float], float | None]
    against: Callable[[float, float], float]
    limit: float
    at_least: bool = False
    places: int = 3

    def holds(self, value: float) -> bool:
        """Return whether a number is on the predicted side of the limit."""
        return value >= self.limit if self.at_least else value <= self.limit

    def verdict(self, values: list[float], mean: float) -> str:
        """Return in how far the prediction holds: for every seed, in the mean, or not."""
        if all(self.holds(value) for value in values):
            return "yes"
        return "in the mean" if self.holds(mean) else "**no**"


def _cosine(race: Race, matched: float) -> float | None:
    return at_loss(race, matched)["average_cosine"]


def _tokens(race: Race, matched: float) -> float | None:
    return at_loss(race, matched)["tokens"]


def _final_nats(race: Race, _matched: float) -> float | None:
    return final_nats(race)


def _alone(value: float, _reference: float) -> float:
    return value


def _distance(value: float, reference: float) -> float:
    return abs(value - reference)


# From the first table (50 runs of an earlier programme).
PREDICTIONS = (
    Prediction(
        "untied cross-entropy: cosine of the last block at least .25",
        "ce",
        _cosine,
        _alone,
        0.25,
        at_least=True,
    ),
    Prediction("log-unigram bias: cosine at most .12", "ce+unigram", _cosine, _alone, 0.12),
    Prediction(
        "tokens with the bias: at most .75 of those without", "ce+unigram", _tokens, truediv, 0.75
    ),
    Prediction(
        "μ-centring, untied: end within 1e-4 nats of cross-entropy",
        "ce+mu-centre",
        _final_nats,
        _distance,
        1e-4,
        places=6,
    ),
    Prediction(
        "z-loss: end within .005 nats of cross-entropy",
        "ce+z-loss",
        _final_nats,
        _distance,
        5e-3,
        places=4,
    ),
)


def _predictions(result: TournamentResult) -> list[str]:
    """Return the table of predictions at every rate, with the numbers of every seed."""
    lines = ["| predicted | rate | every seed | mean | holds |", "|---|---|---|---|---|"]
    for prediction in PREDICTIONS:
        for rate in result.plan.rates:
            values = _predicted_values(result, prediction, rate)
            mean = mean_over_seeds(values)[0]
            if mean is None:
                continue
            seeds = ", ".join(number(value, places=prediction.places) for value in values)
            mean_text = number(mean, places=prediction.places)
            verdict = prediction.verdict(values, mean)
            lines.append(f"| {prediction.words} | {rate:g} | {seeds} | {mean_text} | {verdict} |")
    return lines


def _predicted_values(result: TournamentResult, prediction: Prediction, rate: float) -> list[float]:
    """Return the number of each seed for which both runs have one."""
    races = _races_by_seed(result, prediction.arm, rate)
    references = _races_by_seed(result, "ce", rate)
    values = []
    for seed in sorted(races.keys() & references.keys()):
        value = prediction.value(races[seed], result.matched_loss)
        reference = prediction.value(references[seed], result.matched_loss)
        if value is not None and reference is not None:
            values.append(prediction.against(value, reference))
    return values


def _races_by_seed(result: TournamentResult, arm: str, rate: float) -> dict[int, Race]:
    """Return the races of an arm at a rate."""
    return {race.seed: race for race in result.races if race.arm == arm and race.rate == rate}


def page(result: TournamentResult) -> str:
    """Return the page as Markdown."""
    lines = [
        "# The leaderboard",
        "",
        *_introduction(result),
        "",
        *markdown(leaderboard(result)),
        "## What was predicted of it",
        "",
        "From an earlier table (one programme, 50 runs). *Holds* is asked of every seed.",
        "",
        *_predictions(result),
        "",
        *markdown(gradient(result), *_arms_below_null(result), ""),
        *markdown(rates(result)),
    ]
    return "\n".join(lines)


def _introduction(result: TournamentResult) -> list[str]:
    """Return what was run, and on what."""
    plan = result.plan
    protocol = result.protocol
    seeds = protocol.settings.get("seeds")
    early = f" of {seeds} that were asked for" if seeds != result.seeds else ""
    source = Path(protocol.text.source if protocol.text else "a text").name
    rate_names = " and ".join(f"{rate:g}" for rate in plan.rates)
    return [
        "Written by `lab/scripts/leaderboard.py` from a run of `headscan tournament` "
        f"({protocol.started[:10]}; `{source}`): {len(result.arms)} arms, {result.seeds} "
        f"seeds{early}, {len(result.races)} runs. A GPT-2 of {plan.blocks} blocks, d = "
        f"{plan.width}, V = {plan.vocabulary:,}, {plan.steps} steps of {plan.batch} windows of "
        f"{plan.context} tokens; the rates {rate_names} for every arm. The rules are in [Ways "
        "of training side by side](tournament.md).",
        "",
        "Brackets: 95 % intervals over seeds. The numbers are of models of this size.",
    ]


def _arms_below_null(result: TournamentResult) -> list[str]:
    """Return a line on the arms whose kept norm lies below the null of their leverages."""
    ratios = {}
    for row in result.arms:
        kept_norm = row.number("kept_norm")
        null = row.number("kept_norm_null")
        if kept_norm is not None and null:
            ratios[str(row["arm"])] = kept_norm / null
    if not ratios:
        return []
    lowest = min(ratios, key=lambda arm: ratios[arm])
    highest = max(ratios, key=lambda arm: ratios[arm])
    below = sum(ratio < 1 for ratio in ratios.values())
    return [
        f"{below} of {len(ratios)} arms lie below the null of their leverages; kept over null "
        f"runs from {ratios[lowest]:.2f} ({lowest}) to {ratios[highest]:.2f} ({highest})."
    ]


if __name__ == "__main__":
    loaded = headscan.load(Path(sys.argv[1]))
    assert isinstance(loaded, TournamentResult)
    print(page(loaded), end="")
