"""The record of a claim: its protocol, its verdict and all that was measured."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from headscan import __version__
from headscan.run import BadInput, Interval
from headscan_lab.ledger.claim import Claim
from headscan_lab.ledger.decision import Decision, decide, side
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
from headscan_lab.ledger.proxies import about, decides

EvidenceSide: TypeAlias = Literal["for", "against", "beside"]


@dataclass(frozen=True, kw_only=True)
class ClaimEvidence(Measurement):
    """One number that was measured for a claim.

    `side`: whether it speaks for the claim's words, against them, or stands beside them. A control
    that shows another cause speaks against.
    """

    side: EvidenceSide


@dataclass(frozen=True, kw_only=True)
class ClaimTrial:
    """The outcome of a claim on a trained model that a user named (`--on`).

    Attributes:
        model: its name.
        tendency: of the experiment on this model alone; None where it could not be made, and `why`
            says why.
        decides: whether that decides the claim (the model is of the family that the claim is
            about).
        quantity: what was measured.
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
    """A claim and what was found of it.

    Attributes:
        id, document, place, statement, model, data: what is said, where, and of what.
        quantity, counts, control, test, scope, needs: the protocol, fixed before the run: what is
            measured, the values that count, the control's values that show another cause, the test,
            how far the answer reaches, the least power.
        stand_ins: the proxies: what was examined in place of the claim's own, and why it may be.
        verdict, tendency, more, why: see `Decision`.
        effect, interval, unit, chance: the quantity that decides; None where nothing was measured.
        tokens, prompts, seeds, models: the sample.
        evidence: all that was measured, for and against.
        command: runs the claim on its own model, or would decide it.
        seconds: of one processor.
        trials: the outcomes on trained models that the user named (`--on`).
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


NOTHING = Measurement(name="", value=0.0, interval=(0.0, 0.0), unit="")
"""The sample of a quantity that was not measured."""


def try_on(claim: Claim, model: str, seed: int) -> list[ClaimTrial]:
    """Run a claim's experiment on a trained model in place of the proxy.

    Return one trial, or none where the experiment is not possible there or would decide nothing.
    """
    settled = not claim.large or decides(claim.model, model)
    if claim.experiment is None or not settled:
        return []
    experiment = claim.experiment.on(model)
    if experiment is None:
        return []
    if claim.control is None and getattr(experiment, "search", False):
        experiment = replace(experiment, search=False)  # type: ignore[call-arg]

    start = time.process_time()
    outcome: ExperimentOutcome | None
    try:
        outcome, decision = _observed(replace(claim, experiment=experiment), seed)
    except BadInput as error:
        outcome = ExperimentOutcome(effect=None, note=str(error))
        decision = decide(claim, outcome)
    effect = outcome.effect if outcome is not None else None
    beside = outcome.beside[:2] if outcome is not None else ()
    why = decision.why + "".join(f" Beside: {measurement}." for measurement in beside)
    sample = effect or NOTHING
    trial = ClaimTrial(
        model=about(model).name,
        tendency=decision.tendency,
        why=why,
        seconds=round(time.process_time() - start, 1),
        effect=effect.value if effect else None,
        interval=effect.interval if effect else None,
        tokens=sample.tokens,
        prompts=sample.prompts,
        seeds=sample.seeds,
        decides=settled,
        quantity=sample.name,
    )
    return [trial]


def stored_trials(
    folder: str | None, key: object, make: Callable[[], list[ClaimTrial]]
) -> list[ClaimTrial]:
    """Return trials from a folder in which an earlier run stored them, or make and store them.

    Args:
        folder: where trials are stored; None: nowhere.
        key: what the trials depend on: protocol, seed and model.
    """
    if folder is None:
        return make()
    name = hashlib.sha256(repr((__version__, key)).encode()).hexdigest()[:32]
    file = Path(folder) / f"{name}.json"
    adapter = TypeAdapter(list[ClaimTrial])
    if file.is_file():
        return adapter.validate_json(file.read_bytes())
    trials = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_bytes(adapter.dump_json(trials))
    partial.rename(file)
    return trials


def record_claim(claim: Claim, seed: int) -> ClaimRecord:
    """Run a claim's experiment, decide, and return the record."""
    start = time.process_time()
    experiment = claim.experiment
    outcome, decision = _observed(claim, seed)
    effect = outcome.effect if outcome is not None else None
    words = experiment.words if experiment is not None else None
    sample = effect or NOTHING
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
        verdict=decision.verdict,
        tendency=decision.tendency,
        more=decision.more,
        why=decision.why,
        effect=effect.value if effect else None,
        interval=effect.interval if effect else None,
        unit=sample.unit,
        chance=sample.chance,
        tokens=sample.tokens,
        prompts=sample.prompts,
        seeds=sample.seeds,
        models=list(outcome.models) if outcome is not None else [],
        evidence=_evidence(claim, outcome),
        command=claim.command,
        seconds=round(time.process_time() - start, 1),
    )


def _observed(claim: Claim, seed: int) -> tuple[ExperimentOutcome | None, Decision]:
    """Return the outcome of a claim's experiment and the verdict.

    Where that is undecided, the experiment is made once more with more prompts.
    """
    if claim.experiment is None:
        return None, decide(claim, None)
    outcome = claim.experiment.observe(seed)
    decision = decide(claim, outcome)
    if decision.tendency != "undecided":
        return outcome, decision
    closer = claim.experiment.closer()
    if closer is None:
        return outcome, decision
    second_look = closer.observe(seed)
    if second_look.effect is None:
        return outcome, decision
    return second_look, decide(claim, second_look)


def _evidence(claim: Claim, outcome: ExperimentOutcome | None) -> list[ClaimEvidence]:
    """Return the effect, its control, the control's own, and what stands beside them."""
    if outcome is None:
        return []
    evidence: list[ClaimEvidence] = []
    effect_is_seen = False
    if outcome.effect is not None and claim.counts is not None:
        position = side(outcome.effect, claim.counts)
        effect_is_seen = position == "in"
        sides: dict[str, EvidenceSide] = {"in": "for", "out": "against", "across": "beside"}
        evidence.append(_evidence_of(outcome.effect, sides[position]))
    if outcome.control is not None:
        # Where the effect was not seen there is no cause to look for.
        position = "across"
        if claim.control is not None and effect_is_seen:
            position = side(outcome.control, claim.control)
        sides = {"in": "against", "out": "for", "across": "beside"}
        evidence.append(_evidence_of(outcome.control, sides[position]))
    if outcome.works is not None:
        evidence.append(_evidence_of(outcome.works, "beside"))
    evidence += [_evidence_of(measurement, "beside") for measurement in outcome.beside]
    return evidence


def _evidence_of(measurement: Measurement, evidence_side: EvidenceSide) -> ClaimEvidence:
    return ClaimEvidence(side=evidence_side, **vars(measurement))
