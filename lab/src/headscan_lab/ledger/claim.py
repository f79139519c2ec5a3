"""A claim with its protocol, written before its experiment is run; the ledger of all claims, and
how its tables are read.
"""

import csv
import json
import math
from dataclasses import dataclass, replace
from importlib import resources
from typing import Literal

from headscan.run import BadInput, Registry
from headscan_lab.ledger.experiment import (
    DOCUMENTS,
    EXPERIMENTS,
    ClaimVerdict,
    DocumentName,
    Experiment,
    ExperimentOutcome,
    Power,
    Region,
    Tendency,
)
from headscan_lab.ledger.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim with its protocol.

    Attributes:
        id: in the ledger: 1 to 126 the article, 201 on the slides, 301 on what the field holds, 401
            on the paper.
        document, place: where it stands: a slide, page, section or figure.
        statement: what is said, one sentence.
        model, data: what it is about; `large`: a model that is named and is not run here, so that
            nothing seen here decides it.
        experiment: what is measured and how; None where nothing here can measure it yet.
        counts: the values of the effect under which the claim holds.
        control: the values of the control under which an effect that was seen has another cause
            (confounded); None where the experiment has no control.
        command: runs it on the claim's own model, or says what would decide it.
        corrected: the formula that holds, where the one that is printed does not.
        untried: why nothing here measures it, a sentence.
    """

    id: int
    document: DocumentName
    place: str
    statement: str
    model: str
    data: str
    large: bool
    experiment: Experiment | None
    counts: Region | None
    control: Region | None = None
    command: str = ""
    corrected: str = ""
    untried: str = ""

    def __post_init__(self) -> None:
        if self.experiment is not None and self.counts is None:
            raise ValueError(f"claim {self.id} has an experiment, but no effect that would count")
        if self.experiment is None and not self.command:
            raise ValueError(
                f"claim {self.id} has neither an experiment nor a command that would decide it"
            )


CLAIMS: Registry[Claim] = Registry("claim", "headscan_lab.ledger.claim")
"""Every claim by its number (as text); `headscan_lab.ledger` has one table a document, plug-ins
`enter` their own.
"""


def enter(claim: Claim) -> Claim:
    """Put a claim into the ledger; BadInput where its number is taken."""
    if str(claim.id) in CLAIMS._items:
        raise BadInput(f"Claim {claim.id} is entered twice.")
    return CLAIMS.add(str(claim.id), claim)


def enter_table(document: DocumentName) -> None:
    """Enter the rows of `documents/DOCUMENT.tsv`, one claim a line.

    Columns: id, place, statement, model, data, about ("large" or "here"), experiment and its
    options (JSON), counts and control (JSON lists of two bounds; null is none), command; of the
    paper also corrected, of the slides also untried. A cell of one ditto mark is the cell above.
    """
    text = (resources.files("headscan_lab.ledger") / "data" / f"{document}.tsv").read_text(
        encoding="utf-8"
    )
    above: dict[str, str] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        above = {
            name: above[name] if value == '"' else (value or "") for name, value in row.items()
        }
        enter(_claim(document, above))


def _claim(document: DocumentName, row: dict[str, str]) -> Claim:
    if row["about"] not in ("large", "here") or document not in DOCUMENTS:
        raise BadInput(
            f"Claim {row['id']} is about a large model or one that is here, not {row['about']!r}."
        )
    kind = row["experiment"]
    return Claim(
        id=int(row["id"]),
        document=document,
        place=row["place"],
        statement=row["statement"],
        model=row["model"],
        data=row["data"],
        large=row["about"] == "large",
        counts=_region(row["counts"]),
        control=_region(row["control"]),
        experiment=EXPERIMENTS[kind].of(json.loads(row["options"] or "{}")) if kind else None,
        command=row["command"],
        corrected=row.get("corrected", ""),
        untried=row.get("untried", ""),
    )


def _region(cell: str) -> Region | None:
    return Region(*json.loads(cell)) if cell else None


# ---- The one rule that turns what was measured into a verdict, whatever the claim.
#
# The interval of the effect lies inside the region that counts: it holds. Outside: it fails. Across
# a bound, or with less power than the protocol asks: undecided. An effect that holds and has a
# control is confounded where the control lies inside its own region, stands where it lies outside,
# and is undecided between, or where the control could not work.

WORKS = Region(0.9, None)
"""A search counts as working where it finds so much of what is certainly there."""


@dataclass(frozen=True)
class Decision:
    """A verdict, and what is behind it.

    Attributes:
        verdict: of the claim; tendency: of the experiment, which a claim not tested keeps beside
            its verdict; None where nothing was measured.
        more: so many more prompts (or seeds, where there are no prompts) would decide at the effect
            seen; None where it is decided, or where the estimate lies on a bound and no number
            would.
        why: one sentence.
    """

    verdict: ClaimVerdict
    tendency: Tendency | None
    more: int | None
    why: str


def side(measured: Measurement, region: Region) -> Literal["in", "out", "across"]:
    """Where an interval lies against a region.

    >>> low = Measurement(name="x", value=0.1, interval=(0.05, 0.2))
    >>> side(low, Region(None, 0.5)), side(low, Region(0.5, None)), side(low, Region(0.15, None))
    ('in', 'out', 'across')
    """
    low, high = measured.interval
    if region.holds(low) and region.holds(high):
        return "in"
    below = region.low is not None and high < region.low
    return "out" if below or (region.high is not None and low > region.high) else "across"


def decide(claim: Claim, seen: ExperimentOutcome | None) -> Decision:
    """The verdict of a claim on what was seen; None where there is no experiment."""
    if seen is None or seen.effect is None or claim.counts is None or claim.experiment is None:
        why = (
            seen.note
            if seen is not None and seen.note
            else claim.untried or "Nothing here measures it yet; the command would."
        )
        return Decision("not tested", None, None, why)
    tendency, more, why = _tendency(claim.counts, claim.control, seen, claim.experiment.power)
    verdict: ClaimVerdict = "not tested" if claim.large else tendency
    if claim.corrected and verdict == "refuted":
        verdict = "misprint"
        why = f"{why} Instead: {claim.corrected}."
    return Decision(verdict, tendency, more, why)


def _tendency(
    counts: Region, control: Region | None, seen: ExperimentOutcome, power: Power
) -> tuple[Tendency, int | None, str]:
    effect = seen.effect
    assert effect is not None
    # Of one model that was given there are no seeds to draw: the protocol's tokens alone are asked
    # for.
    short = _shortfall(effect, replace(power, seeds=1) if len(set(seen.models)) == 1 else power)
    if short:
        return "undecided", short, f"{effect}: fewer seeds or tokens than the protocol asks."
    where = side(effect, counts)
    said = f"{effect}; {counts} would count"
    if where == "across":
        return "undecided", _more(effect, counts), f"{said}."
    if where == "out":
        return "refuted", None, f"{said}."
    if control is None:
        floor = counts.high if counts.low is not None and counts.low < 0 else None
        if (
            floor
            and len(seen.beside) > 1
            and all(one.interval[1] <= floor for one in seen.beside[:2])
        ):
            return "undecided", None, f"{said}; but neither of the two finds anything."
        return "supported", None, f"{said}."
    if seen.control is None:
        return "undecided", None, f"{said}, but the control was not measured."
    said = f"{said}. {seen.control}"
    verdict = side(seen.control, control)
    if verdict == "in":
        return "confounded", None, f"{said}: {seen.cause}."
    if seen.works is not None and side(seen.works, WORKS) != "in":
        return (
            "undecided",
            None,
            f"{said}; but the control itself is not seen to work: {seen.works}.",
        )
    if verdict == "across":
        return "undecided", _more(seen.control, control), f"{said}: whether {seen.cause} is open."
    return "supported", None, f"{said}: that {seen.cause} is ruled out."


def _shortfall(effect: Measurement, power: Power) -> int:
    """How many more prompts (or seeds) the protocol asks for."""
    if effect.tokens < power.tokens:
        a_prompt = effect.tokens / effect.prompts if effect.prompts else 1.0
        return math.ceil((power.tokens - effect.tokens) / max(a_prompt, 1e-9))
    return max(0, power.seeds - effect.seeds)


def _more(measured: Measurement, region: Region) -> int | None:
    """At the value seen an interval shrinks with the root of the sample: what is missing until it
    clears the nearest bound.
    """
    crossed = [
        bound for bound in region.bounds() if measured.interval[0] <= bound <= measured.interval[1]
    ]
    gap = min(abs(measured.value - bound) for bound in crossed)
    reach = max(
        measured.interval[1] - measured.value
        if bound >= measured.value
        else measured.value - measured.interval[0]
        for bound in crossed
    )
    sample = measured.prompts or measured.seeds
    return math.ceil(sample * ((reach / gap) ** 2 - 1)) or 1 if gap > 1e-9 and sample else None


for _document in ("article", "field", "paper", "slides", "later"):  # the tables in data/
    enter_table(_document)
