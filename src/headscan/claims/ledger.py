"""Running claims and writing the ledger: a result with one row a claim, and a Markdown page for the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from headscan.claims.claim import CLAIMS, OUTCOMES, Claim, Outcome
from headscan.run import BadInput, Json, ModelRecord, Option, Result, Run, Running, fingerprint, verb

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClaimRecord", "ReproduceResult", "Reproducing", "all_claims", "ledger_page", "reproduce", "wanted"]

# Every module that enters claims.
MODULES = (
    "headscan.claims.inversion",  # 1-21, 28-89, 93-97, 99, 102-104, 123, 125, 126
    "headscan.claims.attribution",  # 22-27
    "headscan.claims.mixers",  # 105-122
    "headscan.claims.ntp_theory",  # 401-
    "headscan.claims.ntp_training",
)


@dataclass(frozen=True)
class ClaimRecord:
    """What came of one claim.

    Attributes:
        number, statement, source: of the claim.
        outcome, why: the verdict, and one sentence on it.
        measured: plain numbers by name.
        seconds: of one processor, that its experiment took.
    """

    number: int
    statement: str
    source: str
    outcome: Outcome
    why: str
    measured: dict[str, Json]
    seconds: float


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """Verdicts: one entry of `claims` a claim, by number."""

    kind = "reproduce"
    claims: list[ClaimRecord]

    def frame(self) -> pd.DataFrame:
        """A pandas table, one row a claim."""
        import pandas as pd

        return pd.DataFrame(self.document["claims"]).drop(columns="measured")


@dataclass(frozen=True)
class Reproducing(Running):
    """What is reproduced."""

    claims: Annotated[
        str | Sequence[str | int],
        Option("Numbers or ranges, such as 7 or 10-12. Default: all.", metavar="CLAIM", repeat=True),
    ] = ()

    def check(self) -> None:
        """Every claim is one of the ledger."""
        super().check()
        wanted(self.claims)


def all_claims() -> dict[int, Claim]:
    """The whole ledger by number, in order."""
    for name in MODULES:
        import_module(name)
    return dict(sorted(CLAIMS.items()))


def wanted(claims: str | Sequence[str | int]) -> list[int]:
    """Numbers from words such as "7" and "10-12"; none means all.

    >>> wanted(["3", "5-6"]), wanted("7"), wanted([8])
    ([3, 5, 6], [7], [8])
    """
    known = all_claims()
    numbers: list[int] = []
    for text in [claims] if isinstance(claims, str) else map(str, claims):
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise BadInput(f"'{text}' is no claim: give numbers such as 7 or ranges such as 10-12.")
        numbers += range(int(first), int(last or first) + 1)
    if missing := [number for number in numbers if number not in known]:
        raise BadInput(f"There is no claim {missing[0]}; 'headscan reproduce --list' shows those there are.")
    return sorted(set(numbers)) or list(known)


@verb("reproduce", Reproducing)
def reproduce(settings: Reproducing, run: Run) -> ReproduceResult:
    """Run claims of the literature as experiments: reproduced, artefact, not reproduced, or needs a larger model.

    Raises:
        BadInput: a text that is no claim's number, or a number that no claim has.

    Cost: from a fraction of a second to some minutes a claim; all of them take tens of minutes on one core. Claims that
    were finished before an interruption are read back with `resume`.

    >>> result = reproduce(["7"])
    >>> result.claims[0].outcome, result.claims[0].measured["argmax_right"]
    ('reproduced', 1.0)
    """
    numbers, known = wanted(settings.claims), all_claims()
    models = stand_ins(numbers)
    for model in models:
        run.identify(f"the model {model.name}", fingerprint(model))
    records = []
    for done, number in enumerate(numbers):
        run.progress("experiments", done, len(numbers), "claims")
        records.append(run.unit(f"claim-{number}", ClaimRecord, partial(record, known[number], settings.seed)))
    run.progress("experiments", len(numbers), len(numbers), "claims")
    return ReproduceResult(protocol=run.protocol(), models=models, claims=records)


def stand_ins(numbers: Sequence[int]) -> list[ModelRecord]:
    """The trained model that stands for larger ones, where one of the claims may ask for it and it is there."""
    from headscan.claims.inversion_statements import STATEMENTS
    from headscan.claims.stand_ins import NoTrainedModel, lens_of  # transformers: not for the help

    if not {entry.number for entry in STATEMENTS}.intersection(numbers):
        return []
    try:
        return [lens_of("trained").provenance()]
    except NoTrainedModel:
        return []


def record(entry: Claim, seed: int) -> ClaimRecord:
    """Check one claim, and say what came of it."""
    verdict = entry.check(seed)
    return ClaimRecord(
        entry.number,
        entry.statement,
        entry.source,
        verdict.outcome,
        verdict.why,
        dict(verdict.measured),
        verdict.seconds,
    )


def ledger_page(result: ReproduceResult) -> str:
    """The ledger as Markdown."""
    counts = Counter(row.outcome for row in result.claims)
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
    for row in result.claims:
        why = row.why.replace("|", "\\|")
        if " The original: " in why:
            why, _, command = why.partition(" The original: ")
            why = f"{why} The original: `{command}`"
        lines.append(f"| {row.number} | {row.statement} | {row.outcome} | {why} |")
    return "\n".join(lines) + "\n"
