"""The verb `headscan reproduce`: statements one after another, each stored at once."""

import hashlib
import inspect
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Unpack

from pydantic import TypeAdapter

from headscan import __version__
from headscan.run import (
    BadInput,
    DataFrame,
    Interval,
    ModelRecord,
    Result,
    Run,
    dataframe,
    fingerprint,
    verb,
)
from headscan.run.settings import Option, RunOptions, Seed32
from headscan_lab.ledger.figures import FIGURES, RedrawnFigure, redraw
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.models import DEFAULT_MODEL, lens_of
from headscan_lab.ledger.statement import (
    STATEMENTS,
    DocumentName,
    Note,
    Region,
    Statement,
    Verdict,
    joint_verdict,
    verdict_of,
)

FigureDocument = Literal["slides", "paper", "article"]
EvidenceSide: TypeAlias = Literal["for", "against", "beside"]
MADE_HERE = "made here"
PLANTED = "planted"
T = TypeVar("T", Measurement, "ModelFinding")
ORDER = "SPAL"  # slides, paper, article, later


@dataclass(frozen=True, kw_only=True)
class ClaimEvidence(Measurement):
    """One number of one model; `side`: for the statement, against it, or beside."""

    model: str
    side: EvidenceSide


@dataclass(frozen=True, kw_only=True)
class ModelFinding:
    """What one model says to a statement.

    Attributes:
        model: its name; "made here" where the experiment makes its own.
        tokenizer: the hash of its tokens: two models that share it count as one.
        dequantised: "Q4_K_M" and the like, where the weights come from a file of few bits.
        verdict: of this model.
        values: one number for each value of the free choice.
        controls: what stands beside them.
        note, why: what a control showed; or why nothing was measured.
        seconds: of one processor.
    """

    model: str
    tokenizer: str
    dequantised: str
    verdict: Verdict
    values: list[Measurement]
    controls: list[Measurement]
    note: Note
    why: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ClaimRecord:
    """A statement, its protocol, and what was found.

    Attributes:
        id, document, place, statement, measured, counts, control, turned_by, range, published,
            corrected, command: see `Statement`.
        planted: the planted case; `planted_as_known`: whether it came out as it had to.
        verdict: of all models that suit.
        effect, interval, unit: the first number of the first model.
        tokens, prompts, seeds: its sample.
        models: the names of the models that decided.
        stand_ins: small models in place of those that are named.
        evidence: every number.
        findings: the same by model.
        seconds: of one processor.
    """

    id: str
    document: DocumentName
    place: str
    statement: str
    measured: str
    counts: Region
    control: str
    turned_by: str
    range: str
    published: str
    corrected: str
    command: str
    planted: Measurement
    planted_as_known: bool
    verdict: Verdict
    effect: float | None
    interval: Interval | None
    unit: str
    tokens: int
    prompts: int
    seeds: int
    models: list[str]
    stand_ins: list[str]
    evidence: list[ClaimEvidence]
    findings: list[ModelFinding]
    seconds: float


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """Verdicts on statements.

    Attributes:
        claims: one entry a statement.
        figures: the figures of a document redrawn, where they were asked for.
    """

    kind = "reproduce"
    looks_for = False
    claims: list[ClaimRecord]
    figures: list[RedrawnFigure] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """Return a row a number: statement, model, name, value and interval."""
        rows = []
        for record in self.claims:
            for evidence in record.evidence:
                rows.append(
                    {
                        "id": record.id,
                        "verdict": record.verdict,
                        "model": evidence.model,
                        "side": evidence.side,
                        "name": evidence.name,
                        "value": evidence.value,
                        "low": evidence.interval[0],
                        "high": evidence.interval[1],
                        "unit": evidence.unit,
                        "statement": record.statement,
                    }
                )
        return dataframe(rows)


def all_statements() -> dict[str, Statement]:
    """Return the whole ledger in order: slides, paper, article, later papers."""

    def place(id: str) -> tuple[int, int]:
        return ORDER.find(id[0]) % 9, int(id[1:]) if id[1:].isdigit() else 0

    return {id: STATEMENTS[id] for id in sorted(STATEMENTS, key=place)}


def wanted_statements(claims: str | Sequence[str]) -> list[str]:
    """Return the ids that words such as "S1" and "paper" name; none means all.

    >>> wanted_statements(["P2", "S1"]), wanted_statements("S1")
    (['S1', 'P2'], ['S1'])
    """
    known = all_statements()
    selections = [claims] if isinstance(claims, str) else list(claims)
    ids: set[str] = set()
    for selection in selections:
        of_document = [id for id, item in known.items() if item.document == selection]
        named = [id for id in known if id == str(selection).upper()]
        if not (of_document or named):
            raise BadInput(
                f"'{selection}' is no statement: give ids such as S1 or P2, or slides, paper, "
                "article, later; 'headscan reproduce --list' shows them."
            )
        ids.update(of_document or named)
    return [id for id in known if id in ids] or list(known)


@verb("reproduce")
def reproduce(
    run: Run,
    claims: Annotated[
        str | Sequence[str],
        Option(
            "Statements such as S1 or P2, or a document: slides, paper, article, later. Default: "
            "all.",
            metavar="CLAIM",
            repeat=True,
            group="Input",
        ),
    ] = (),
    *,
    figures: Annotated[
        FigureDocument | None,
        Option(
            "Redraw the figures of a document from runs of our own, beside what was published; "
            "without CLAIM no statement is tried."
        ),
    ] = None,
    paper: Annotated[
        str | None,
        Option(
            "Try the statements of a later paper, by its arXiv number (2510.06477, ...).",
            metavar="ARXIV-ID",
        ),
    ] = None,
    on: Annotated[
        str | Sequence[str],
        Option(
            "A trained model on which statements about trained models are tried, besides "
            "gpt-vanilla; may be given more than once.",
            metavar="MODEL",
            repeat=True,
            group="Input",
        ),
    ] = (),
    seed: Seed32 = 0,
    **_run_options: Unpack[RunOptions],
) -> ReproduceResult:
    """Try statements of the literature as experiments, each under a stated protocol.

    Verdicts: supported, not supported here, refuted (only what depends on neither scale nor
    training), misprint, undecided (an interval crosses a bound, or the free choice or the model
    decides), not tested.

    Raises:
        BadInput: for a word that names no statement, or a model and no statement to be tried on it.

    Cost: from a fraction of a second to two minutes a statement on one core. Statements that were
    finished before an interruption are read back with `resume`; what is found of a model is stored,
    by the code of the experiment, seed and the model's hash, in the folder that the environment
    variable HEADSCAN_LEDGER names.

    >>> result = reproduce(["P4"])
    >>> result.claims[0].verdict, round(result.claims[0].effect, 2)
    ('misprint', 0.99)
    """
    model_names = [on] if isinstance(on, str) else list(on)
    chosen = _chosen(claims, figures, paper)
    if model_names and not any(item.models == "trained" for item in chosen.values()):
        raise BadInput(
            "--on tries what is said of trained models; none of these statements is: S1 is."
        )
    kinds = list(dict.fromkeys([DEFAULT_MODEL, *model_names]))
    needs_models = any(item.models == "trained" for item in chosen.values())
    models = {kind: lens_of(kind).provenance() for kind in kinds} if needs_models else {}
    run.identify("the number of models", len(models))
    for number, model in enumerate(models.values(), 1):
        run.identify(f"the name of model {number}", model.name)
        run.identify(f"model {number}", fingerprint(model))
    found: dict[str, list[ModelFinding]] = {id: [] for id in chosen}
    planted: dict[str, Measurement] = {}
    total = sum(len(models) if item.models == "trained" else 1 for item in chosen.values())
    # Model by model, so that a large one is read once.
    for kind, record in models.items():
        for id, statement in chosen.items():
            if statement.models == "trained":
                run.progress("experiments", sum(map(len, found.values())), total, "experiments")
                make = partial(_finding, statement, kind, record, seed)
                found[id].append(_unit(run, id, statement, record, seed, make))
    for id, statement in chosen.items():
        if statement.models != "trained":
            make = partial(_finding, statement, "", None, seed)
            found[id].append(_unit(run, id, statement, None, seed, make))
        plant = partial(_stored, statement, PLANTED, seed, partial(statement.planted, seed))
        planted[id] = run.unit(f"planted-{id}", Measurement, plant)
        run.progress("experiments", sum(map(len, found.values())), total, "experiments")
    return ReproduceResult(
        protocol=run.protocol(),
        models=list(models.values()),
        claims=[_record(item, found[id], planted[id]) for id, item in chosen.items()],
        figures=_draw_figures(run, figures, seed),
    )


def _chosen(
    claims: str | Sequence[str], figures: FigureDocument | None, paper: str | None
) -> dict[str, Statement]:
    ledger = all_statements()
    if paper is None:
        ids = [] if figures and not claims else wanted_statements(claims)
        return {id: ledger[id] for id in ids}
    if claims or figures:
        raise BadInput(
            "--paper tries the statements of a later paper: CLAIM and --figures do not go with it."
        )
    of_paper = {id: item for id, item in ledger.items() if f"arXiv:{paper}" in item.place}
    if not of_paper:
        raise BadInput(f"No statement of arXiv:{paper} is tried here.")
    return of_paper


def _unit(
    run: Run,
    id: str,
    statement: Statement,
    model: ModelRecord | None,
    seed: int,
    make: Callable[[], ModelFinding],
) -> ModelFinding:
    """Return a finding of this run, of an earlier one that was stored, or made now."""
    name = "made-here" if model is None else fingerprint_hash(model)
    store = partial(_stored, statement, name, seed, make)
    return run.unit(f"statement-{id}-{name}", ModelFinding, store)


def fingerprint_hash(model: ModelRecord) -> str:
    """Return a short hash of a model."""
    return hashlib.sha256(repr(fingerprint(model)).encode()).hexdigest()[:16]


def _stored(statement: Statement, part: str, seed: int, make: Callable[[], T]) -> T:
    """Return what is stored in the folder HEADSCAN_LEDGER, or make and store it.

    It is made anew when the experiment's module or the region has changed.

    Args:
        part: the model's hash, "made-here" or "planted".
    """
    folder = os.environ.get("HEADSCAN_LEDGER")
    if folder is None:
        return make()
    code = inspect.getsource(inspect.getmodule(statement.observe))  # type: ignore[arg-type]
    key = (__version__, statement.id, str(statement.counts), part, seed, code)
    file = Path(folder) / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.json"
    kind: Any = Measurement if part == PLANTED else ModelFinding
    adapter: TypeAdapter[T] = TypeAdapter(kind)
    if file.is_file():
        return adapter.validate_json(file.read_bytes())
    made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial_file = file.with_suffix(f".{os.getpid()}")
    partial_file.write_bytes(adapter.dump_json(made))
    partial_file.rename(file)
    return made


def _finding(statement: Statement, kind: str, model: ModelRecord | None, seed: int) -> ModelFinding:
    """Try a statement on a model; one that does not suit is not tested, and `why` says why."""
    start = time.process_time()
    verdict: Verdict = "not tested"
    values: list[Measurement] = []
    controls: list[Measurement] = []
    note: Note = ""
    try:
        observation = statement.observe(kind, seed)
        verdict = verdict_of(statement, observation)
        values = observation.values
        controls = observation.controls
        note = observation.note
        why = observation.why
    except BadInput as error:
        why = str(error)
    return ModelFinding(
        model=MADE_HERE if model is None else model.name,
        tokenizer="" if model is None else _tokenizer_hash(kind),
        dequantised="" if model is None else model.dequantised,
        verdict=verdict,
        values=values,
        controls=controls,
        note=note,
        why=why,
        seconds=round(time.process_time() - start, 1),
    )


@cache
def _tokenizer_hash(kind: str) -> str:
    """Return a hash of a model's tokens: models of one tokenizer count as one."""
    vocabulary = lens_of(kind).require_tokenizer().get_vocab()
    return hashlib.sha256(repr(sorted(vocabulary.items())).encode()).hexdigest()[:16]


def _record(
    statement: Statement, findings: list[ModelFinding], planted: Measurement
) -> ClaimRecord:
    expected = "in" if statement.planted_holds else "out"
    as_known = statement.counts.side(planted) == expected
    verdict = joint_verdict([finding.verdict for finding in findings])
    tested = [finding for finding in findings if finding.values]
    first = tested[0].values[0] if tested else None
    return ClaimRecord(
        id=statement.id,
        document=statement.document,
        place=statement.place,
        statement=statement.statement,
        measured=statement.measured,
        counts=statement.counts,
        control=statement.control,
        turned_by=statement.turned_by,
        range=statement.range,
        published=statement.published,
        corrected=statement.corrected,
        command=statement.command,
        planted=planted,
        planted_as_known=as_known,
        verdict=verdict if as_known else "not tested",
        effect=first.value if first else None,
        interval=first.interval if first else None,
        unit=first.unit if first else "",
        tokens=first.tokens if first else 0,
        prompts=first.prompts if first else 0,
        seeds=first.seeds if first else 0,
        models=[finding.model for finding in tested],
        stand_ins=[finding.model for finding in tested if statement.document == "article"],
        evidence=_evidence(statement, findings),
        findings=findings,
        seconds=round(sum(finding.seconds for finding in findings), 1),
    )


def _evidence(statement: Statement, findings: list[ModelFinding]) -> list[ClaimEvidence]:
    sides: dict[str, EvidenceSide] = {"in": "for", "out": "against", "across": "beside"}
    evidence = []
    for finding in findings:
        for value in finding.values:
            side = sides[statement.counts.side(value)]
            evidence.append(ClaimEvidence(model=finding.model, side=side, **vars(value)))
        for control in finding.controls:
            evidence.append(ClaimEvidence(model=finding.model, side="beside", **vars(control)))
    return evidence


def _draw_figures(run: Run, document: FigureDocument | None, seed: int) -> list[RedrawnFigure]:
    """Return the figures of a document, redrawn."""
    names = [name for name, maker in FIGURES.items() if maker.shown.document == document]
    figures = []
    for done, name in enumerate(names):
        run.progress("figures", done, len(names), "figures")
        figures.append(run.unit(f"figure-{name}", RedrawnFigure, partial(redraw, name, seed)))
    return figures
