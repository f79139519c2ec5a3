"""A tournament as a page of the documentation: the leaderboard, its sentences, and what was predicted of it.

    headscan tournament --text stories.txt --arms 'ce,...' --out FOLDER
    python lab/scripts/leaderboard.py FOLDER > lab/docs/leaderboard.md

Everything on the page is read from the saved result; of a tournament that was stopped early the page says how far it came.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import truediv
from pathlib import Path

import numpy as np
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.table import TournamentResult, at_loss, mean_over_seeds

import headscan
from headscan.run import Row

COLUMNS = (
    ("held-out nats at the end", "heldout_nats", 3),
    ("nats at equal time", "heldout_nats_at_equal_seconds", 3),
    ("thousand tokens to it", "tokens_to_matched_loss", 1),
    ("cosine", "average_cosine_at_matched_loss", 3),
    ("without ones", "average_cosine_without_ones_at_matched_loss", 3),
    ("without mean", "average_cosine_without_mean_at_matched_loss", 3),
    ("rank", "effective_rank_at_matched_loss", 1),
    ("rank without ones", "effective_rank_without_ones_at_matched_loss", 1),
    ("rank without mean", "effective_rank_without_mean_at_matched_loss", 1),
)
GRADIENT = (
    ("kept, tokens", "kept_norm", 3),
    ("null, leverages", "kept_norm_null", 3),
    ("null, √(d/V)", "kept_norm_random", 3),
    ("best d directions", "kept_norm_best", 3),
    ("kept, batch", "kept_norm_batch", 3),
    ("null, leverages", "kept_norm_batch_null", 3),
    ("head's mean row", "head_mean_at_matched_loss", 3),
)


def _number(value: float | None, places: int) -> str:
    text = "—" if value is None else f"{value:.{places}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _cell(row: Row, name: str, places: int) -> str:
    value, spread = row.number(name), row.interval(name)
    if name == "tokens_to_matched_loss":
        value = None if value is None else value / 1000
        spread = None if spread is None else (spread[0] / 1000, spread[1] / 1000)
    told = _number(value, places)
    return (
        told
        if spread is None or spread[0] == spread[1]
        else f"{told} [{_number(spread[0], places)}, {_number(spread[1], places)}]"
    )


def _table(rows: Iterable[Row], columns: Sequence[tuple[str, str, int]], *, cells: bool = False) -> list[str]:
    before = ["arm", *(["V/d"] if cells else []), "rate", "seeds"]
    lines = [f"| {' | '.join([*before, *(title for title, _, _ in columns)])} |", "|" + "---|" * (len(before) + len(columns))]
    for row in rows:
        known = [str(row["arm"]), *([f"{row['vocabulary']}/{row['width']}"] if cells else []), f"{row['rate']:g}"]
        known += [f"{row['seeds_that_reach_it']} of {row['seeds']}" if cells else str(row["seeds"])]
        lines.append(f"| {' | '.join([*known, *(_cell(row, name, places) for _, name, places in columns)])} |")
    return lines


# ---- what was predicted, from the first table (50 runs of another programme)


@dataclass(frozen=True)
class Asked:
    """A prediction: a number of an arm's run, against that of cross-entropy at the same seed, and its limit."""

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
    main, matched = result.plan.cells[0], result.matched_loss

    def races(arm: str, rate: float) -> dict[int, Race]:
        wanted = (arm, rate, main.vocabulary, main.width)
        found = (one for one in result.races if (one.arm, one.rate, one.vocabulary, one.width) == wanted)
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
        Asked("untied cross-entropy: cosine of the last block at least .25", "ce", cosine, alone, 0.25, least=True),
        Asked("log-unigram bias: cosine at most .12", "ce+unigram", cosine, alone, 0.12),
        Asked("tokens with the bias: at most .75 of those without", "ce+unigram", tokens, truediv, 0.75),
        Asked("μ-centring, untied: end within 1e-4 nats of cross-entropy", "ce+mu-centre", end, apart, 1e-4, places=6),
        Asked("z-loss: end within .005 nats of cross-entropy", "ce+z-loss", end, apart, 5e-3, places=4),
    ]
    lines = ["| predicted | rate | every seed | mean | holds |", "|---|---|---|---|---|"]
    for one in asked:
        for rate in result.plan.rates:
            own, first = races(one.arm, rate), races("ce", rate)
            pairs = [(one.number(own[seed]), one.number(first[seed])) for seed in sorted(own) if seed in first]
            known = [one.against(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
            mean = mean_over_seeds(known)[0]
            if mean is None:
                continue
            seeds = ", ".join(_number(each, one.places) for each in known)
            every = all(map(one.holds, known))
            verdict = "yes" if every else "in the mean" if one.holds(mean) else "**no**"
            lines.append(f"| {one.words} | {rate:g} | {seeds} | {_number(mean, one.places)} | {verdict} |")
    return lines


def page(result: TournamentResult) -> str:
    """The whole page as Markdown."""
    plan, main, first = result.plan, result.plan.cells[0], result.protocol
    wanted, source = first.settings.get("seeds"), Path(first.text.source if first.text else "a text").name
    trained = sum(race.seconds for race in result.races)
    early = f" of {wanted} that were asked for" if wanted != result.seeds else ""
    text = [
        "# The leaderboard", "",
        f"Written by `lab/scripts/leaderboard.py` from a run of `headscan tournament` ({first.started[:10]}; `{source}`): "
        f"{len(result.arms)} arms, {result.seeds} seeds{early}, {len(result.races)} runs. A GPT-2 of {plan.blocks} blocks, "
        f"d = {main.width}, V = {main.vocabulary:,}, {plan.steps} steps of {plan.batch} windows of "
        f"{plan.context} tokens; the rates {' and '.join(f'{rate:g}' for rate in plan.rates)} for every arm, each shown at its "
        "best by windows that are used for nothing else. The rules are in [Cures side by side](tournament.md).", "",
        f"Shape is read where an arm's held-out loss first falls to {result.matched_loss:.2f} nats. Brackets: 95 % intervals "
        f"over seeds. The steps took {trained / 60:.0f} minutes of one core's time in all, {trained / 120:.0f} of two cores, "
        "without the measurements. What is told here is told of models of this size.", "",
        "## Arms by held-out loss", "", *_table(result.arms, COLUMNS), "",
        "*Without ones*: each state less the mean of its own coordinates, a direction that a layer norm deletes. *Without "
        "mean*: less the mean state of other windows.", "",
        "## In words", "",
        *(f"- **{row['arm']}** ({row['about']}). {row['sentence']}" for row in result.arms), "",
        "## What was predicted of it", "",
        "From an earlier table (one programme, 50 runs). *Holds* is asked of every seed.", "", *_predictions(result), "",
        "## The logits' gradient through the head", "",
        f"At {result.matched_loss:.2f} nats: the share of its norm that lies in the head's column space, for single tokens "
        "and for the mean gradient of a batch, beside what random signs at these leverages would keep, what a random head of "
        "that shape keeps, and what the best d directions would. Norm that is not kept is not necessarily lost learning.", "",
        *_table(result.arms, GRADIENT), "", *_below(result), "",
    ]  # fmt: skip
    if result.others:
        text += [
            "## Another vocabulary, another width",
            "",
            "Each arm at its rate above, read as far below its unigram law's loss.",
            "",
        ]
        text += [*_table(result.others, COLUMNS, cells=True), ""]
    text += ["## At every rate", "", *_table(result.rates, COLUMNS), ""]
    return "\n".join(text)


def _below(result: TournamentResult) -> list[str]:
    ratios = {}
    for row in result.arms:
        kept, null = row.number("kept_norm"), row.number("kept_norm_null")
        if kept is not None and null:
            ratios[str(row["arm"])] = kept / null
    if not ratios:
        return []
    low, high = min(ratios, key=lambda name: ratios[name]), max(ratios, key=lambda name: ratios[name])
    under = int(np.sum([each < 1 for each in ratios.values()]))
    return [
        f"{under} of {len(ratios)} arms lie below the null of their leverages; kept over null runs from {ratios[low]:.2f} "
        f"({low}) to {ratios[high]:.2f} ({high})."
    ]


if __name__ == "__main__":
    found = headscan.load(Path(sys.argv[1]))
    assert isinstance(found, TournamentResult)
    print(page(found), end="")
