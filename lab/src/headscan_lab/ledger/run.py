"""The verb `headscan reproduce`: it runs claims one after another and stores each at once."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Literal, Unpack

from headscan.run import (
    BadInput,
    DataFrame,
    Json,
    ModelRecord,
    Result,
    Run,
    dataframe,
    fingerprint,
    verb,
)
from headscan.run.settings import (
    Option,
    RunOptions,
    Seed32,
)
from headscan_lab.ledger.claim import CLAIMS, Claim
from headscan_lab.ledger.figures import FIGURES, RedrawnFigure, redraw
from headscan_lab.ledger.papers import paper_figure, paper_of
from headscan_lab.ledger.record import ClaimRecord, ClaimTrial, record_claim, stored_trials, try_on
from headscan_lab.ledger.statements import StatementRecord, statements

Document = Literal["slides", "paper", "article"]
FRAME_FIELDS = (
    "id",
    "document",
    "place",
    "statement",
    "model",
    "verdict",
    "tendency",
    "more",
    "quantity",
    "effect",
    "chance",
    "tokens",
    "prompts",
    "seeds",
    "why",
    "command",
    "seconds",
)


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """Verdicts on claims and statements.

    Attributes:
        claims: one entry a claim, by number.
        figures: the figures of a document redrawn, where they were asked for.
        statements: one entry a statement, with the claims that are its instances.
    """

    kind = "reproduce"
    looks_for = False
    claims: list[ClaimRecord]
    figures: list[RedrawnFigure] = field(default_factory=list)
    statements: list[StatementRecord] = field(default_factory=list)

    def frame(self) -> DataFrame:
        rows = []
        for record in self.claims:
            low, high = record.interval or (None, None)
            row = {name: getattr(record, name) for name in FRAME_FIELDS}
            row["counts"] = str(record.counts or "")
            row["stand_ins"] = "; ".join(proxy.name for proxy in record.stand_ins)
            row["low"] = low
            row["high"] = high
            rows.append(row)
        return dataframe(rows)


def all_claims() -> dict[int, Claim]:
    """Return the whole ledger by number, in order."""
    return {number: CLAIMS[str(number)] for number in sorted(map(int, CLAIMS))}


def wanted_claims(claims: str | Sequence[str | int]) -> list[int]:
    """Return the numbers of claims from words such as "7", "10-12" and "paper"; none means all.

    >>> wanted_claims(["3", "5-6"]), wanted_claims("7"), wanted_claims([8])
    ([3, 5, 6], [7], [8])
    """
    known = all_claims()
    selections = [claims] if isinstance(claims, str) else [str(claim) for claim in claims]
    numbers: list[int] = []
    for selection in selections:
        of_document = [n for n, claim in known.items() if claim.document == selection]
        numbers += of_document or _numbers_in(selection, known)
    return sorted(set(numbers)) or list(known)


def _numbers_in(word: str, known: dict[int, Claim]) -> list[int]:
    """Return the claims that a number or a range names.

    A range may run over numbers that no claim has, but must end at one; a number alone must be a
    claim's.
    """
    first, dash, last = word.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise BadInput(
            f"'{word}' is no claim: give numbers such as 7, ranges such as 10-12, or slides, "
            "paper, article, field, later."
        )
    numbers = [number for number in known if int(first) <= number <= int(last or first)]
    if not numbers or (dash and int(last) not in known):
        raise BadInput(
            f"There is no claim {last or first}; 'headscan reproduce --list' shows those there are."
        )
    return numbers


@verb("reproduce")
def reproduce(
    run: Run,
    claims: Annotated[
        str | Sequence[str | int],
        Option(
            "Numbers or ranges, such as 7 or 10-12, or a document: slides, paper, article, field, "
            "later. Default: all.",
            metavar="CLAIM",
            repeat=True,
            group="Input",
        ),
    ] = (),
    *,
    figures: Annotated[
        Document | None,
        Option(
            "Redraw the figures of a document from runs of our own, beside what was published; "
            "without CLAIM no claim is run."
        ),
    ] = None,
    paper: Annotated[
        str | None,
        Option(
            "Run the claims of a later paper, by its arXiv number (2510.06477, ...), and draw its "
            "figure for every model.",
            metavar="ARXIV-ID",
        ),
    ] = None,
    on: Annotated[
        str | Sequence[str],
        Option(
            "A trained model on which claims about trained models in general are tried, too; may "
            "be given more than once.",
            metavar="MODEL",
            repeat=True,
            group="Input",
        ),
    ] = (),
    seed: Seed32 = 0,
    **_run_options: Unpack[RunOptions],
) -> ReproduceResult:
    """Run claims of the literature as experiments, each under a protocol that was written before
    it.

    Verdicts: supported, refuted, confounded (seen here, with another cause), undecided (with how
    many more samples would decide), not tested (with the tendency seen on proxies, and the command
    that decides it there).

    Raises:
        BadInput: for a text that is no claim's number, a number that no claim has, or a model and
            no claim to be tried on it.

    Cost: from a fraction of a second to some minutes a claim; all of them take tens of minutes on
    one core. Claims that were finished before an interruption are read back with `resume`. The
    trials on models of the user are stored, by protocol, seed and the model's hash, in the folder
    that the environment variable HEADSCAN_LEDGER names, and read back by later runs.

    >>> result = reproduce(["7"])
    >>> result.claims[0].verdict, result.claims[0].effect, result.claims[0].seeds
    ('supported', 1.0, 5)
    """
    model_names = [on] if isinstance(on, str) else list(on)
    numbers = _numbers_to_run(claims, figures, paper)
    ledger = all_claims()
    chosen_claims = {number: ledger[number] for number in numbers}
    _check_models(model_names, chosen_claims)

    trial_models = {name: lens_record(name) for name in model_names}
    models = [*shipped_models(list(chosen_claims.values())), *trial_models.values()]
    run.identify("the number of models", len(models))
    for number, model in enumerate(models, 1):
        run.identify(f"the name of model {number}", model.name)
        run.identify(f"model {number}", fingerprint(model))
    records = _run_claims(run, chosen_claims, seed)
    for index, (name, model) in enumerate(trial_models.items()):
        subject = _TrialModel(index, name, model.name, fingerprint(model))
        trials = _run_trials(run, chosen_claims, subject, seed)
        records = [
            replace(record, trials=record.trials + new_trials)
            for record, new_trials in zip(records, trials, strict=True)
        ]
    drawn = _draw_figures(run, figures, seed)
    if paper is not None:
        kinds = ["specimen", *model_names]
        drawn.append(
            run.unit(f"figure-{paper}", RedrawnFigure, partial(paper_figure, paper, kinds, seed))
        )
    return ReproduceResult(
        protocol=run.protocol(),
        models=models,
        claims=records,
        figures=drawn,
        statements=statements(records),
    )


def _numbers_to_run(
    claims: str | Sequence[str | int], figures: Document | None, paper: str | None
) -> list[int]:
    """Return the numbers of the claims that the options ask for."""
    if paper is not None:
        paper_of(paper)
        if claims or figures:
            raise BadInput(
                "--paper runs the claims of a later paper and draws its figure: CLAIM and "
                "--figures do not go with it."
            )
        ledger = all_claims().items()
        return [number for number, claim in ledger if claim.place.startswith(paper)]
    numbers = wanted_claims(claims)
    return [] if figures and not claims else numbers


def _check_models(model_names: Sequence[str], claims: dict[int, Claim]) -> None:
    """Raise BadInput for a model on which none of the claims can be tried."""
    experiments = [claim.experiment for claim in claims.values() if claim.experiment is not None]
    for name in model_names:
        if not any(experiment.on(name) is not None for experiment in experiments):
            raise BadInput(
                "--on tries what is said of trained models in general; none of these claims can "
                "be tried so: 203 can."
            )


def _run_claims(run: Run, claims: dict[int, Claim], seed: int) -> list[ClaimRecord]:
    """Return the records of claims on their proxies."""
    records = []
    for done, (number, claim) in enumerate(claims.items()):
        run.progress("experiments", done, len(claims), "claims")
        records.append(run.unit(f"claim-{number}", ClaimRecord, partial(record_claim, claim, seed)))
    run.progress("experiments", len(claims), len(claims), "claims")
    return records


@dataclass(frozen=True)
class _TrialModel:
    """A model of the user: its position among them, as it was named, its name, and its hash."""

    index: int
    source: str
    name: str
    identity: Json


def _run_trials(
    run: Run, claims: dict[int, Claim], model: _TrialModel, seed: int
) -> list[list[ClaimTrial]]:
    """Return for each claim its trials on a model of the user: one, or none."""
    folder = os.environ.get("HEADSCAN_LEDGER")
    all_trials = []
    for done, (number, claim) in enumerate(claims.items()):
        run.progress(f"on {model.name}", done, len(claims), "claims")
        key = (
            claim.experiment,
            claim.counts,
            claim.control,
            claim.large,
            claim.model,
            model.identity,
            seed,
        )
        make = partial(try_on, claim, model.source, seed)
        unit = f"claim-{number}-on-{model.index}"
        all_trials.append(
            run.unit(unit, list[ClaimTrial], partial(stored_trials, folder, key, make))
        )
    return all_trials


def _draw_figures(run: Run, document: Document | None, seed: int) -> list[RedrawnFigure]:
    """Return the figures of a document, redrawn."""
    names = [name for name, maker in FIGURES.items() if maker.shown.document == document]
    figures = []
    for done, name in enumerate(names):
        run.progress("figures", done, len(names), "figures")
        figures.append(run.unit(f"figure-{name}", RedrawnFigure, partial(redraw, name, seed)))
    return figures


def lens_record(name: str) -> ModelRecord:
    """Return the model of that name as the protocol has it; raise BadInput where there is none."""
    from headscan_lab.ledger.proxies import lens_of

    return lens_of(name).provenance()


def shipped_models(claims: Sequence[Claim]) -> list[ModelRecord]:
    """Return the shipped model that is a proxy, where one of the claims uses it.

    All other proxies are made anew by every run.
    """
    from headscan_lab.ledger.proxies import about, lens_of

    shipped = about("specimen")
    for claim in claims:
        if claim.experiment is not None and shipped in claim.experiment.stand_ins():
            return [lens_of("specimen").provenance()]
    return []
