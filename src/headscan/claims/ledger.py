"""Running claims and writing the ledger: a result with one row a claim, and a Markdown page for the documentation."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

import headscan
from headscan.claims.claim import CLAIMS, OUTCOMES, Claim
from headscan.errors import BadInput
from headscan.results import Result

__all__ = ["ReproduceResult", "all_claims", "ledger_page", "reproduce", "wanted"]

# Every module that enters claims.
MODULES = (
    "headscan.claims.inversion",  # 1-21, 28-89, 93-97, 99, 102-104, 123, 125, 126
    "headscan.claims.attribution",  # 22-27
    "headscan.claims.mixers",  # 105-122
    "headscan.claims.ntp_theory",  # 401-
    "headscan.claims.ntp_training",
)


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """Verdicts: `document["claims"]` has one entry a claim (number, statement, source, outcome, why, measured, seconds)."""

    kind = "reproduce"

    def frame(self):
        """A pandas table, one row a claim."""
        import pandas as pd

        return pd.DataFrame([{k: v for k, v in row.items() if k != "measured"} for row in self.document["claims"]])


def all_claims() -> dict[int, Claim]:
    """The whole ledger by number, in order."""
    for name in MODULES:
        import_module(name)
    return dict(sorted(CLAIMS.items()))


def wanted(texts: Iterable[str]) -> list[int]:
    """Numbers from words such as "7" and "10-12"; none means all.

    >>> wanted(["3", "5-6"])
    [3, 5, 6]
    """
    known = all_claims()
    numbers: list[int] = []
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise BadInput(f"'{text}' is no claim: give numbers such as 7 or ranges such as 10-12.")
        numbers += range(int(first), int(last or first) + 1)
    if missing := [number for number in numbers if number not in known]:
        raise BadInput(f"There is no claim {missing[0]}; 'headscan reproduce --list' shows those there are.")
    return sorted(set(numbers)) or list(known)


def reproduce(
    claims: Sequence[str] = (),
    *,
    seed: int = 0,
    out: Any = None,
    command: str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> ReproduceResult:
    """Run claims as experiments.

    Args:
        claims: numbers or ranges; none means all.
        seed: of the experiments.
        out, command, progress: as for the other verbs.
    """
    numbers, known = wanted(claims), all_claims()
    rows = []
    for done, number in enumerate(numbers):
        entry = known[number]
        verdict = entry.check(seed)
        rows.append(
            {
                "number": number,
                "statement": entry.statement,
                "source": entry.source,
                "outcome": verdict.outcome,
                "why": verdict.why,
                "measured": verdict.measured,
                "seconds": verdict.seconds,
            }
        )
        if progress:
            progress("claims", done + 1, len(numbers))
    versions = {name: version(name) for name in ("headscan", "torch", "transformers", "numpy")}
    protocol = {"command": command, "seed": seed, "versions": versions | {"python": platform.python_version()}}
    document = {"headscan": headscan.__version__, "claims": rows, "protocol": protocol}
    result = ReproduceResult(document)
    if out is not None:
        result.save(out)
    return result


def ledger_page(document: dict) -> str:
    """The ledger as Markdown, from a saved result."""
    rows = document["claims"]
    counts = Counter(row["outcome"] for row in rows)
    lines = [
        "# The ledger",
        "",
        "Written by `headscan reproduce --page docs/ledger.md`. Each claim was run as an experiment on small models. *Artefact*:",
        "what was seen is seen again, but means something else. *Needs a larger model*: the command is in the row.",
        "",
        ", ".join(f"{outcome}: {counts[outcome]}" for outcome in OUTCOMES) + ".",
        "",
        "| claim | statement | verdict | why |",
        "|---|---|---|---|",
    ]
    for row in rows:
        why = row["why"].replace("|", "\\|")
        if " The original: " in why:
            why, _, command = why.partition(" The original: ")
            why = f"{why} The original: `{command}`"
        lines.append(f"| {row['number']} | {row['statement']} | {row['outcome']} | {why} |")
    return "\n".join(lines) + "\n"
