"""The verb: claims run one after another, each kept as soon as it is done."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Literal

from headscan.run import BadInput, DataFrame, ModelRecord, Result, Run, dataframe, fingerprint, verb
from headscan.run.settings import (
    CommandLine,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
    Seed32,
    Settings,
)
from headscan.run.verbs import Given
from headscan_lab.ledger.claim import CLAIMS, Claim
from headscan_lab.ledger.figures import FIGURES, RedrawnFigure, paper_figure, paper_of, redrawn
from headscan_lab.ledger.record import (
    ClaimRecord,
    ClaimTrial,
    StatementRecord,
    kept,
    recorded,
    statements,
    tried,
)


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """Verdicts: one entry of `statements` a statement, with the claims that are its instances; one
    of `claims` a claim, by number; `figures`: those of a document redrawn, where they were asked
    for.
    """

    kind = "reproduce"
    claims: list[ClaimRecord]
    figures: list[RedrawnFigure] = field(default_factory=list)
    statements: list[StatementRecord] = field(default_factory=list)

    def frame(self) -> DataFrame:
        names = (
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
        rows = [
            {name: getattr(row, name) for name in names}
            | {
                "counts": str(row.counts or ""),
                "stand_ins": "; ".join(one.name for one in row.stand_ins),
            }
            | dict(zip(("low", "high"), row.interval or (None, None), strict=True))
            for row in self.claims
        ]
        return dataframe(rows)


@dataclass(frozen=True, kw_only=True)
class Reproducing(Settings):
    """What is reproduced."""

    claims: str | Sequence[str | int]
    figures: Literal["slides", "paper", "article"] | None
    paper: str | None
    on: str | Sequence[str]
    seed: int

    def check(self) -> None:
        super().check()
        if self.paper is not None:
            paper_of(self.paper)
            if self.claims or self.figures:
                raise BadInput(
                    "--paper runs the claims of a later paper and draws its figure: CLAIM and "
                    "--figures do not go with it."
                )
        tried = [all_claims()[number].experiment for number in self.wanted()]
        for name in self.given():
            if not any(one is not None and one.on(name) is not None for one in tried):
                raise BadInput(
                    "--on tries what is said of trained models in general; none of these claims "
                    "can be tried so: 203 can."
                )

    def wanted(self) -> list[int]:
        """The numbers of the claims that are run."""
        if self.paper is not None:
            return [
                number
                for number, claim in all_claims().items()
                if claim.place.startswith(self.paper)
            ]
        numbers = wanted_claims(self.claims)
        return [] if self.figures and not self.claims else numbers

    def given(self) -> list[str]:
        """The models that are given."""
        return [self.on] if isinstance(self.on, str) else list(self.on)


def all_claims() -> dict[int, Claim]:
    """The whole ledger by number, in order."""
    return {number: CLAIMS[str(number)] for number in sorted(map(int, CLAIMS))}


def wanted_claims(claims: str | Sequence[str | int]) -> list[int]:
    """Numbers from words such as "7", "10-12" and "paper"; none means all.

    >>> wanted_claims(["3", "5-6"]), wanted_claims("7"), wanted_claims([8])
    ([3, 5, 6], [7], [8])
    """
    known = all_claims()
    numbers: list[int] = []
    for text in [claims] if isinstance(claims, str) else map(str, claims):
        if text in {claim.document for claim in known.values()}:
            numbers += [number for number, claim in known.items() if claim.document == text]
            continue
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise BadInput(
                f"'{text}' is no claim: give numbers such as 7, ranges such as 10-12, or slides, "
                "paper, article, field, later."
            )
        # A range may run over numbers that no claim has; a number alone may not.
        found = [number for number in known if int(first) <= number <= int(last or first)]
        if not found or (dash and int(last) not in known):
            raise BadInput(
                f"There is no claim {last or first}; 'headscan reproduce --list' shows those "
                "there are."
            )
        numbers += found
    return sorted(set(numbers)) or list(known)


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
        Literal["slides", "paper", "article"] | None,
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
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed32 = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> ReproduceResult:
    """Run claims of the literature as experiments, each under a protocol that was written before
    it.

    Verdicts: supported, refuted, confounded (seen here, with another cause), undecided (with how
    many more samples would decide), not tested (with the tendency seen on stand-ins, and the
    command that decides it there).

    Raises:
        BadInput: a text that is no claim's number, a number that no claim has, or a model and no
            claim to be tried on it.

    Cost: from a fraction of a second to some minutes a claim; all of them tens of minutes on one
    core. Claims that were finished before an interruption are read back with `resume`. What given
    models said is kept, by protocol, seed and the model's hash, in the folder that the environment
    variable HEADSCAN_LEDGER names, and read back by later runs.

    >>> result = reproduce(["7"])
    >>> result.claims[0].verdict, result.claims[0].effect, result.claims[0].seeds
    ('supported', 1.0, 5)
    """
    asked = Given(locals())
    settings = asked.chosen(Reproducing)
    known = all_claims()
    numbers = settings.wanted()
    shown = [name for name in FIGURES if FIGURES[name].shown.document == settings.figures]
    models = specimens_used([known[number] for number in numbers])
    given = {name: lens_record(name) for name in settings.given()}
    models += given.values()
    run.identify("the number of models", len(models))
    for number, model in enumerate(models, 1):
        run.identify(f"the name of model {number}", model.name)
        run.identify(f"model {number}", fingerprint(model))
    records = []
    for done, number in enumerate(numbers):
        run.progress("experiments", done, len(numbers), "claims")
        records.append(
            run.unit(
                f"claim-{number}", ClaimRecord, partial(recorded, known[number], settings.seed)
            )
        )
    run.progress("experiments", len(numbers), len(numbers), "claims")
    folder = os.environ.get("HEADSCAN_LEDGER")
    for k, (name, model) in enumerate(given.items()):
        print_of = fingerprint(model)
        for done, number in enumerate(numbers):
            run.progress(f"on {model.name}", done, len(numbers), "claims")
            one = known[number]
            key = (
                one.experiment,
                one.counts,
                one.control,
                one.large,
                one.model,
                print_of,
                settings.seed,
            )
            make = partial(kept, folder, key, partial(tried, one, name, settings.seed))
            trials = run.unit(f"claim-{number}-on-{k}", list[ClaimTrial], make)
            records[done] = replace(records[done], trials=records[done].trials + trials)
    drawn = []
    for done, name in enumerate(shown):
        run.progress("figures", done, len(shown), "figures")
        drawn.append(
            run.unit(f"figure-{name}", RedrawnFigure, partial(redrawn, name, settings.seed))
        )
    if settings.paper is not None:
        make_figure = partial(paper_figure, settings.paper, ["specimen", *given], settings.seed)
        drawn.append(run.unit(f"figure-{settings.paper}", RedrawnFigure, make_figure))
    return ReproduceResult(
        protocol=run.protocol(),
        models=models,
        claims=records,
        figures=drawn,
        statements=statements(records),
    )


def lens_record(name: str) -> ModelRecord:
    """The model of that name, as the protocol keeps it; BadInput where there is none."""
    from headscan_lab.ledger.stand_ins import lens_of

    return lens_of(name).provenance()


def specimens_used(claims: Sequence[Claim]) -> list[ModelRecord]:
    """The shipped model that stands in, where one of the claims uses it; all others are made anew
    by every run.
    """
    from headscan_lab.ledger.stand_ins import about, lens_of

    shipped = about("specimen")
    used = any(
        one.experiment is not None and shipped in one.experiment.stand_ins() for one in claims
    )
    return [lens_of("specimen").provenance()] if used else []
