"""Claims 1-21, 28-104, 123-126: what a transformer's blocks give back, by each search.

One rule a kind of claim turns the numbers of an experiment into a verdict. The source concludes from failed descents that
information is lost; where an exact search finds every token from the same outputs, that is an artefact of the optimiser.
What the source shows on single prompts of models of 6 to 70 thousand million parameters is tried as a tendency on small
models, and the command that runs the original is in the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from headscan.claims.claim import Experiment, Verdict, claim
from headscan.claims.inversion_experiments import EXPERIMENTS
from headscan.claims.inversion_statements import STATEMENTS, Entry
from headscan.claims.inversion_variants import VARIANTS
from headscan.claims.stand_ins import NoTrainedModel, Numbers

__all__ = ["SOURCE"]

SOURCE = "Badger, Language Modeling and Discrete Encodings, blbadger.github.io"
FOUND = 0.9  # of tokens: recovered


def recovered(numbers: Numbers, key: str, exact: str = "") -> Verdict:
    """The source recovers the prompt (or nearly)."""
    share = numbers[key]
    if share >= FOUND:
        return Verdict("reproduced", f"The descent recovers {share:.0%} of the tokens ({key}).")
    tail = f", though the exact search finds {numbers[exact]:.0%}" if exact else ""
    return Verdict("not reproduced", f"The descent recovers {share:.0%} of the tokens ({key}){tail}.")


def lost(numbers: Numbers, key: str, exact: str = "") -> Verdict:
    """The source fails to recover the prompt."""
    share = numbers[key]
    if share >= FOUND:
        return Verdict("not reproduced", f"The descent recovers {share:.0%} of the tokens ({key}).")
    if exact and numbers[exact] >= 0.99:
        why = f"The descent recovers {share:.0%} ({key}), but an exact search of the same outputs finds {numbers[exact]:.0%}: "
        return Verdict("artefact", why + "the optimiser failed, the information is there.")
    return Verdict("reproduced", f"The descent recovers {share:.0%} of the tokens ({key}).")


def more(numbers: Numbers, high: str, low: str) -> Verdict:
    """The source finds the first number larger than the second."""
    a, b = numbers[high], numbers[low]
    words = f"{high} {a:.0%}, {low} {b:.0%}."
    return Verdict("reproduced" if a > b + 0.02 else "not reproduced", words)


def same(numbers: Numbers, one: str, two: str) -> Verdict:
    """The source finds no difference."""
    a, b = numbers[one], numbers[two]
    return Verdict("reproduced" if abs(a - b) <= 0.1 else "not reproduced", f"{one} {a:.0%}, {two} {b:.0%}.")


def start_wins(numbers: Numbers, noise: str, zero: str, exact: str) -> Verdict:
    """Direct inversion fails in the source; from zero instead of noise, and by search, it need not."""
    a, b, c = numbers[noise], numbers[zero], numbers[exact]
    words = f"From noise {a:.0%}, from zero {b:.0%}, by exact search {c:.0%} of the tokens"
    if a >= FOUND:
        return Verdict("not reproduced", f"{words}.")
    if max(b, c) >= FOUND:
        return Verdict(
            "artefact", f"{words}: what the start has in the null space of W^T never changes and wins the argmax."
        )
    return Verdict("reproduced", f"{words}.")


def partly(numbers: Numbers, key: str) -> Verdict:
    """The source recovers some of the prompt, neither all nor nothing."""
    share = numbers[key]
    outcome = "reproduced" if 0.1 <= share < FOUND else "not reproduced"
    return Verdict(outcome, f"The descent recovers {share:.0%} of the tokens ({key}).")  # type: ignore[arg-type]


def failed_by(numbers: Numbers, failing: str, working: str, why: str) -> Verdict:
    """The source fails; with one thing put right the same must work, or the failure stands."""
    a, b = numbers[failing], numbers[working]
    words = f"{failing} {a:.0%}, {working} {b:.0%}."
    if a >= FOUND:
        return Verdict("not reproduced", words)
    return Verdict("artefact", f"{words} {why}") if b >= FOUND else Verdict("reproduced", words)


def near(numbers: Numbers, distance: str, share: str, exact: str, limit: float) -> Verdict:
    """The output comes within a share of a slight shift's distance, and the tokens are wrong all the same."""
    far, a, b = numbers[distance], numbers[share], numbers[exact]
    words = f"The output comes to {far:.2g} of a slight shift's distance, with {a:.0%} of the tokens right"
    if far > limit or a >= FOUND:
        return Verdict("not reproduced", f"{words}.")
    if b >= 0.99:
        return Verdict("artefact", f"{words}; an exact search finds {b:.0%}: that distance certifies nothing.")
    return Verdict("reproduced", f"{words}.")


def differ(numbers: Numbers, key: str, why: str) -> Verdict:
    """The source finds two answers different: at most half of their tokens may be the same."""
    value = numbers[key]
    return (
        Verdict("reproduced", f"{key}: {value:.0%}.")
        if value <= 0.5
        else Verdict("not reproduced", f"{key}: {value:.0%}. {why}")
    )


def yes(numbers: Numbers, key: str, limit: float = 0.99) -> Verdict:
    """The source says that something holds; the number must reach the limit."""
    value = float(numbers[key])
    return Verdict("reproduced" if value >= limit else "not reproduced", f"{key}: {value:.3g}.")


def small(numbers: Numbers, key: str, limit: float) -> Verdict:
    """A number that must be small."""
    value = float(numbers[key])
    return Verdict("reproduced" if value <= limit else "not reproduced", f"{key}: {value:.3g}.")


def artefact(numbers: Numbers, key: str, limit: float, why: str, otherwise: str = "reproduced") -> Verdict:
    """What was seen is seen again, for another reason, if the number reaches the limit; else it is as `otherwise` says."""
    value = float(numbers[key])
    if value >= limit:
        return Verdict("artefact", f"{key}: {value:.3g}. {why}")
    return Verdict(otherwise, f"{key}: {value:.3g}.")  # type: ignore[arg-type]


def larger(numbers: Numbers, *keys: str) -> Verdict:
    """Small models cannot decide it; what they show is told."""
    shown = ", ".join(f"{key} {numbers[key]:.0%}" for key in keys)
    return Verdict("needs a larger model", f"On small models: {shown}.")


RULES: dict[str, Callable[..., Verdict]] = {
    "recovered": recovered, "lost": lost, "more": more, "same": same, "start": start_wins, "yes": yes, "small": small,
    "artefact": artefact, "larger": larger, "partly": partly, "failed_by": failed_by, "near": near, "differ": differ,
}  # fmt: skip


@cache
def _measured(name: str, seed: int) -> Numbers:
    """The numbers of one experiment, T1 to T26 of the ledger, which several claims share; computed once a seed."""
    return (EXPERIMENTS | VARIANTS)[name](seed)


def _experiment(entry: Entry) -> Experiment:
    def run(seed: int) -> Verdict:
        command = f" The original: {entry.command}" if entry.command else ""
        try:
            numbers = dict(_measured(entry.experiment, seed))
        except NoTrainedModel:
            why = "No trained model is at hand: set HEADSCAN_ASSETS to a folder with models/stories260K."
            return Verdict("needs a larger model", why + command)
        verdict = RULES[entry.rule](numbers, *entry.arguments)
        return replace(verdict, why=verdict.why + command, measured=numbers)

    return run


for _entry in STATEMENTS:
    claim(_entry.number, _entry.statement, SOURCE)(_experiment(_entry))
