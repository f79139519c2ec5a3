"""A statement of the literature: what is measured, what would turn its verdict, and the rule.

The rule is one for all. Each value of a free choice (a noise, a width, a site, half of the data)
gives one number with an interval. All intervals inside the region that counts: *supported*. All
outside: *not supported here*; a formula, which depends on neither scale nor training, is *refuted*,
or a *misprint* where the corrected formula holds. Anything else, also where the choice decides:
*undecided*. A planted case, whose answer is known, has to come out on its side of the region; where
it does not, the experiment cannot turn and the statement is *not tested*.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from headscan.run import BadInput, Registry
from headscan_lab.ledger.measurement import Measurement

DocumentName: TypeAlias = Literal["slides", "paper", "article", "later"]
DOCUMENTS: dict[DocumentName, str] = {
    "slides": "Godey, Language models have cone-shaped heads",
    "paper": "Zhao, Behnia, Vakilian, Thrampoulidis, Implicit geometry of next-token prediction "
    "(arXiv:2408.15417)",
    "article": "Badger, Language modeling and discrete encodings",
    "later": "Later papers by these authors and their neighbours",
}
Verdict: TypeAlias = Literal[
    "supported", "not supported here", "refuted", "misprint", "undecided", "not tested"
]
Note: TypeAlias = Literal["", "another cause", "optimiser", "not peculiar", "mechanism"]
"""What a control showed: another cause of the effect; that an optimiser failed where the
information is there; that something else does it as well; or by which mechanism it comes about.
"""
TrialModels: TypeAlias = Literal["trained", "made here"]
"""Whether a statement is tried on trained models, or on what the experiment makes itself."""


@dataclass(frozen=True)
class Region:
    """The values that count: from `low` to `high`, both included; None is no bound.

    >>> str(Region(0.9, None)), str(Region(None, 0.5)), str(Region(-0.1, 0.1))
    ('at least 0.9', 'at most 0.5', 'from -0.1 to 0.1')
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("a region without bounds cannot fail")

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"

    def side(self, measured: Measurement) -> Literal["in", "out", "across"]:
        """Return where an interval lies against the region.

        >>> low = Measurement(name="x", value=0.1, interval=(0.05, 0.2))
        >>> Region(None, 0.5).side(low), Region(0.5).side(low), Region(0.15).side(low)
        ('in', 'out', 'across')
        """
        low, high = measured.interval
        above = self.low is None or low >= self.low
        below = self.high is None or high <= self.high
        if above and below:
            return "in"
        under = self.low is not None and high < self.low
        over = self.high is not None and low > self.high
        return "out" if under or over else "across"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an experiment measured on one model.

    Attributes:
        values: one number for each value of the free choice.
        controls: what stands beside them.
        note: what a control showed, and `why` in a sentence.
    """

    values: list[Measurement]
    controls: list[Measurement] = field(default_factory=list)
    note: Note = ""
    why: str = ""


Experiment: TypeAlias = Callable[[str, int], Observation]
"""Measures on a model (by its kind or name) under a master seed.

It raises BadInput where the model does not suit; the message says why.
"""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement with its protocol.

    Attributes:
        id: S1 of the slides, P1 of the paper, A1 of the article, L1 of later papers.
        place: where it stands.
        statement: what is said, in plain words.
        measured: what is measured.
        counts: the values under which the statement holds.
        control: what is compared.
        turned_by: the result that would have turned the verdict.
        range: the free choices, and the values that were tried.
        observe: the experiment.
        planted: a case whose answer is known; `planted_holds`: whether the statement holds there
            (of printed formulas that are wrong, a case in which they are right).
        models: on what it is tried.
        published: what the source reports.
        formula: whether it depends on neither scale nor training.
        corrected: the formula that holds, where the printed one does not.
        command: runs the same on a model of the user's.
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
    observe: Experiment
    planted: Callable[[int], Measurement]
    planted_holds: bool = False
    models: TrialModels = "trained"
    published: str = ""
    formula: bool = False
    corrected: str = ""
    command: str = ""

    @property
    def sentence(self) -> str:
        """The statement, by the name that every registered item has for its words."""
        return self.statement


STATEMENTS: Registry[Statement] = Registry("statement", "headscan_lab.ledger.experiments")
"""Every statement by its id; `headscan_lab.ledger.experiments` holds them."""


def enter(statement: Statement) -> Statement:
    """Put a statement into the ledger; raise BadInput where it has the id of another."""
    if statement.id in STATEMENTS._items:
        raise BadInput(f"Statement {statement.id} is entered twice.")
    return STATEMENTS.add(statement.id, statement)


@cache
def _texts() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("statements.toml").read_text("utf-8"))


def text_of(id: str) -> dict[str, Any]:
    """Return what `statements.toml` says of a statement, with its region."""
    text = _texts()[id]
    return text | {"counts": Region(**text["counts"])}


def enter_experiment(
    id: str, observe: Experiment, planted: Callable[[int], Measurement], **texts: str
) -> None:
    """Enter a statement of `statements.toml` with its experiment and its planted case.

    Args:
        texts: further fields of the statement, where they follow from the experiment.
    """
    enter(Statement(id=id, observe=observe, planted=planted, **(text_of(id) | texts)))


def verdict_of(statement: Statement, observation: Observation) -> Verdict:
    """Return the verdict of one model's observation."""
    sides = {statement.counts.side(value) for value in observation.values}
    if sides == {"in"}:
        return "not supported here" if observation.note == "another cause" else "supported"
    if sides != {"out"}:
        return "undecided"
    if statement.corrected:
        return "misprint"
    return "refuted" if statement.formula else "not supported here"


def joint_verdict(verdicts: list[Verdict]) -> Verdict:
    """Return what several models say together; where they differ it is undecided.

    >>> joint_verdict(["supported", "not tested"]), joint_verdict(["supported", "refuted"])
    ('supported', 'undecided')
    """
    decided = {verdict for verdict in verdicts if verdict != "not tested"}
    if not decided:
        return "not tested"
    return next(iter(decided)) if len(decided) == 1 else "undecided"
