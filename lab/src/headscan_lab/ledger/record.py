"""What came of a claim: its protocol, its verdict and all that was measured, as the result keeps
it.
"""

import csv
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from headscan import __version__
from headscan.run import BadInput, Interval
from headscan_lab.ledger.claim import CLAIMS, Claim, Decision, decide, side
from headscan_lab.ledger.experiment import (
    ClaimVerdict,
    DocumentName,
    ExperimentOutcome,
    Power,
    Region,
    StandIn,
    Tendency,
)
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.stand_ins import about, decides


@dataclass(frozen=True, kw_only=True)
class ClaimEvidence(Measurement):
    """One number that was measured for a claim, and whether it speaks for the claim's words
    (`side`), against them, or stands beside them; a control that shows another cause speaks
    against.
    """

    side: Literal["for", "against", "beside"]


@dataclass(frozen=True, kw_only=True)
class ClaimTrial:
    """What a trained model that was given says to a claim about trained models in general, or to
    one about another model.

    Attributes:
        model: its name.
        tendency: of the experiment on this model alone; None where it could not be made, and `why`
            says why.
        decides, quantity: whether that decides the claim (the model is of the family it is about);
            what was measured.
        effect, interval, tokens, prompts, seeds, why, seconds: as of a claim.
    """

    model: str
    tendency: Tendency | None
    effect: float | None
    interval: Interval | None
    tokens: int
    prompts: int
    seeds: int
    why: str
    seconds: float
    decides: bool = False
    quantity: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimRecord:
    """A claim and what came of it.

    Attributes:
        id, document, place, statement, model, data: what is said, where, and of what.
        quantity, counts, control, test, scope, needs: the protocol, fixed before the run: what is
            measured, the values that count, the control's values that show another cause, the test,
            how far the answer reaches, the least power.
        stand_ins: what was examined in place of the claim's own, and why it may be.
        verdict, tendency, more, why: see `Decision`.
        effect, interval, unit, chance: the quantity that decides; None where nothing was measured.
        tokens, prompts, seeds, models: what it rests on.
        evidence: all that was measured, for and against.
        command: runs the claim on its own model, or would decide it.
        seconds: of one processor.
        trials: the same on trained models that were given (`--on`).
    """

    id: int
    document: DocumentName
    place: str
    statement: str
    model: str
    data: str
    quantity: str
    counts: Region | None
    control: Region | None
    test: str
    scope: str
    needs: Power | None
    stand_ins: list[StandIn]
    verdict: ClaimVerdict
    tendency: Tendency | None
    more: int | None
    why: str
    effect: float | None
    interval: Interval | None
    unit: str
    chance: float | None
    tokens: int
    prompts: int
    seeds: int
    models: list[str]
    evidence: list[ClaimEvidence]
    command: str
    seconds: float
    trials: list[ClaimTrial] = field(default_factory=list)


def tried(claim: Claim, model: str, seed: int) -> list[ClaimTrial]:
    """Run a claim's experiment on a given model in place of the stand-in; nothing where it cannot
    be, or would decide nothing.
    """
    settled = not claim.large or decides(claim.model, model)
    experiment = claim.experiment.on(model) if claim.experiment is not None and settled else None
    if experiment is None:
        return []
    if claim.control is None and getattr(experiment, "search", False):
        experiment = replace(experiment, search=False)  # type: ignore[call-arg]
    start = time.process_time()
    try:
        seen, found = _seen(replace(claim, experiment=experiment), seed)
    except BadInput as refused:
        seen = ExperimentOutcome(effect=None, note=str(refused))
        found = decide(claim, seen)
    effect = seen.effect if seen is not None else None
    beside = "".join(f" Beside: {one}." for one in seen.beside[:2]) if seen is not None else ""
    trial = ClaimTrial(
        model=about(model).name,
        tendency=found.tendency,
        why=found.why + beside,
        seconds=round(time.process_time() - start, 1),
        effect=effect.value if effect else None,
        interval=effect.interval if effect else None,
        tokens=effect.tokens if effect else 0,
        prompts=effect.prompts if effect else 0,
        seeds=effect.seeds if effect else 0,
        decides=settled,
        quantity=effect.name if effect else "",
    )
    return [trial]


def kept(folder: str | None, key: object, make: Callable[[], list[ClaimTrial]]) -> list[ClaimTrial]:
    """What a model says to a claim, read from a folder where an earlier run of the same protocol,
    seed and model left it.
    """
    if folder is None:
        return make()
    file = (
        Path(folder) / f"{hashlib.sha256(repr((__version__, key)).encode()).hexdigest()[:32]}.json"
    )
    kind = TypeAdapter(list[ClaimTrial])
    if file.is_file():
        return kind.validate_json(file.read_bytes())
    made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(f".{os.getpid()}").write_bytes(kind.dump_json(made))
    file.with_suffix(f".{os.getpid()}").rename(file)
    return made


def recorded(claim: Claim, seed: int) -> ClaimRecord:
    """Run a claim's experiment, decide, and say what came of it."""
    start = time.process_time()
    experiment = claim.experiment
    seen, found = _seen(claim, seed)
    effect = seen.effect if seen is not None else None
    words = experiment.words if experiment is not None else None
    return ClaimRecord(
        id=claim.id,
        document=claim.document,
        place=claim.place,
        statement=claim.statement,
        model=claim.model,
        data=claim.data,
        quantity=words.quantity if words else "",
        counts=claim.counts,
        control=claim.control,
        test=words.test if words else "",
        scope=words.scope if words else "",
        needs=experiment.power if experiment is not None else None,
        stand_ins=list(experiment.stand_ins()) if experiment is not None else [],
        verdict=found.verdict,
        tendency=found.tendency,
        more=found.more,
        why=found.why,
        effect=effect.value if effect else None,
        interval=effect.interval if effect else None,
        unit=effect.unit if effect else "",
        chance=effect.chance if effect else None,
        tokens=effect.tokens if effect else 0,
        prompts=effect.prompts if effect else 0,
        seeds=effect.seeds if effect else 0,
        models=list(seen.models) if seen is not None else [],
        evidence=_evidence(claim, seen),
        command=claim.command,
        seconds=round(time.process_time() - start, 1),
    )


def _seen(claim: Claim, seed: int) -> tuple[ExperimentOutcome | None, Decision]:
    """What the experiment saw, and the verdict; where that is undecided, once more with more
    prompts.
    """
    seen = claim.experiment.observe(seed) if claim.experiment is not None else None
    found = decide(claim, seen)
    closer = (
        claim.experiment.closer()
        if claim.experiment is not None and found.tendency == "undecided"
        else None
    )
    again = closer.observe(seed) if closer is not None else None
    return (
        (again, decide(claim, again))
        if again is not None and again.effect is not None
        else (seen, found)
    )


def _evidence(claim: Claim, seen: ExperimentOutcome | None) -> list[ClaimEvidence]:
    """The effect, its control, the control's own, and what stands beside them."""
    if seen is None:
        return []
    rows: list[ClaimEvidence] = []
    held = False
    if seen.effect is not None and claim.counts is not None:
        where = side(seen.effect, claim.counts)
        held = where == "in"
        rows.append(_row(seen.effect, "for" if held else "against" if where == "out" else "beside"))
    if seen.control is not None:
        # Where the effect was not seen there is no cause to look for.
        where = (
            side(seen.control, claim.control) if claim.control is not None and held else "across"
        )
        rows.append(
            _row(
                seen.control, "against" if where == "in" else "for" if where == "out" else "beside"
            )
        )
    rest = ([seen.works] if seen.works is not None else []) + list(seen.beside)
    return rows + [_row(one, "beside") for one in rest]


def _row(one: Measurement, where: Literal["for", "against", "beside"]) -> ClaimEvidence:
    return ClaimEvidence(side=where, **vars(one))


# ---- What the documents say, a row a statement: the claims that are its instances, and what they say together, model by model.
#
# Claims repeat one another: several ask the same experiment for the same values. Such a cell is
# counted once, and a statement has the verdict of its cells where they agree.


Word: TypeAlias = Literal[
    "supported", "refuted", "confounded", "misprint", "undecided", "mixed", "not tested"
]
STAND_INS = "stand-ins"


@dataclass(frozen=True, kw_only=True)
class StatementVerdict:
    """What one model, or the stand-ins, say to a statement.

    Attributes:
        model: its name.
        verdict: that of all cells that are decided, "mixed" where they differ.
        cells: how many cells have which word.
        proxy: whether no cell is decided on this model, all being about models of other families:
            what is seen only suggests.
    """

    model: str
    verdict: Word
    cells: dict[str, int]
    proxy: bool


@dataclass(frozen=True, kw_only=True)
class StatementRecord:
    """A statement of a document and what came of it.

    Attributes:
        id, document, statement: S1 of the slides, P1 of the paper, A1 of the article, F1 of the
            field; what is said, in our words.
        instances: the claims that were run of it; controls: what must come out the other way.
        verdict: where models decide and agree theirs, "mixed" where they differ, "not tested" where
            none is more than a proxy.
        models: what each says.
    """

    id: str
    document: DocumentName
    statement: str
    instances: list[int]
    controls: str
    verdict: Word
    models: list[StatementVerdict]


@cache
def table() -> tuple[dict[str, str], ...]:
    """The rows of data/statements.tsv: id, document, statement, claims (numbers), control."""
    text = (resources.files("headscan_lab.ledger") / "data" / "statements.tsv").read_text(
        encoding="utf-8"
    )
    return tuple(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def statements(rows: Iterable[ClaimRecord]) -> list[StatementRecord]:
    """The statements that the claims of a run are instances of; claims of plug-ins are in none."""
    run = {row.id: row for row in rows}
    found = []
    for row in table():
        claims = [run[number] for number in map(int, row["claims"].split()) if number in run]
        if claims:
            given = list(dict.fromkeys(trial.model for one in claims for trial in one.trials))
            models = [_said(claims, model) for model in (STAND_INS, *given)]
            verdict = (
                joined([one.verdict for one in models if not one.proxy]) if models else "not tested"
            )
            found.append(
                StatementRecord(
                    id=row["id"],
                    document=claims[0].document,
                    statement=row["statement"],
                    instances=[one.id for one in claims],
                    controls=row["control"],
                    verdict=verdict,
                    models=models,
                )
            )
    return found


def _said(claims: Sequence[ClaimRecord], model: str) -> StatementVerdict:
    """The verdict on a statement: each of its cells counts once; where some are decided on this
    model, those alone count.
    """
    cells: dict[bool, dict[object, Word]] = {True: {}, False: {}}
    for row in claims:
        claim = CLAIMS[str(row.id)]
        word, decided = _word(row, model, not claim.large)
        if word is not None:
            cells[decided].setdefault((claim.experiment, claim.counts, claim.control), word)
    proxy = not cells[True]
    words = list(cells[not proxy].values())
    return StatementVerdict(
        model=model, verdict=joined(words), cells=dict(Counter(words)), proxy=proxy
    )


def _word(row: ClaimRecord, model: str, general: bool) -> tuple[Word | None, bool]:
    """What a model says to a claim, and whether that decides it."""
    if model == STAND_INS:
        return "misprint" if row.verdict == "misprint" else row.tendency, general
    found = next((trial for trial in row.trials if trial.model == model), None)
    if found is not None and found.tendency == "refuted" and CLAIMS[str(row.id)].corrected:
        return "misprint", found.decides
    return (None, False) if found is None else (found.tendency, found.decides)


def joined(words: Sequence[Word]) -> Word:
    """What several say together.

    >>> joined(["supported", "undecided"]), joined(["supported", "refuted"]), joined(["undecided"]), joined([])
    ('supported', 'mixed', 'undecided', 'not tested')
    """
    decided = {word for word in words if word not in ("undecided", "not tested")}
    if len(decided) == 1:
        return next(iter(decided))
    return "mixed" if decided else "undecided" if "undecided" in words else "not tested"
