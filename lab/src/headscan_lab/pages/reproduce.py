"""The page of the ledger: claims of the literature and their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import empty, set_log
from headscan.report.kit.words import literal, number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.run import Interval
    from headscan_lab.ledger.figures import RedrawnFigure
    from headscan_lab.ledger.record import ClaimEvidence, ClaimRecord
    from headscan_lab.ledger.run import ReproduceResult
    from headscan_lab.ledger.statements import StatementRecord, StatementVerdict


SIGNS = {
    "supported": "●",
    "refuted": "○",
    "confounded": "◐",
    "misprint": "✎",
    "mixed": "◑",
    "undecided": "◌",
    "not tested": "↗",
}
"""The sign of each verdict, so that none is told by colour or words alone."""

COLOURS = {
    "supported": 2,
    "refuted": 4,
    "confounded": 1,
    "misprint": 1,
    "mixed": 3,
    "undecided": 3,
    "not tested": 0,
}
"""The number of each verdict's colour in the palette."""

MEANINGS = {
    "supported": "The interval of the effect lies within the values that would count.",
    "refuted": "It lies outside.",
    "confounded": "The effect was seen here, and a control showed another cause than the one "
    "claimed.",
    "misprint": "A formula is not true as it is printed; the corrected one stands beside it.",
    "mixed": "Claims or models differ.",
    "undecided": "The interval crosses a bound, the control did not settle it, or nothing here "
    "measures it yet.",
    "not tested": "A model is named and none of its family is run here: the tendency of stand-ins "
    "is shown, and the command.",
}
TITLES = {
    "slides": "Slides: Language models have cone-shaped heads",
    "paper": "Paper: the implicit geometry of next-token prediction",
    "article": "Article: Language modeling and discrete encodings",
    "field": "Field: what is held of leaked states",
    "later": "Five later papers",
}
MANY_CLAIMS = 12  # above so many claims a terminal shows the statements alone
OPEN = ("undecided", "not tested")


@page("reproduce")
def head(result: ReproduceResult) -> Head:
    """Return how many claims there are, and what the verdicts mean."""
    count = len(result.claims)
    if not count and not result.figures:
        raise BadInput("The result is no ledger: it has no claims.")
    if not count:
        figures = len(result.figures)
        return Head(["Figures"], f"{figures} figures of a document, redrawn from runs of our own.")
    sentence = (
        f"{count} {'claim' if count == 1 else 'claims'} of the literature, each under a protocol "
        "written before it was run."
    )
    if result.statements:
        sentence = f"{sentence} {summary(result.statements)}"
    used = _verdicts_in(result)
    words = [Term(name, meaning) for name, meaning in MEANINGS.items() if name in used]
    return Head(["The ledger"], sentence, glossary=words)


def _verdicts_in(result: ReproduceResult) -> set[str]:
    verdicts: set[str] = {record.verdict for record in result.claims}
    verdicts |= {statement.verdict for statement in result.statements}
    for record in result.claims:
        verdicts |= {trial.tendency for trial in record.trials if trial.tendency}
    return verdicts


def summary(statements: Sequence[StatementRecord]) -> str:
    """Return how many statements have which verdict, and on how many models."""
    counts: Counter[str] = Counter(statement.verdict for statement in statements)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in SIGNS if counts[verdict])
    decided = len(statements) - sum(counts[verdict] for verdict in OPEN)
    decided_on_two = sum(len(_deciding_models(statement)) > 1 for statement in statements)
    plural = "" if len(statements) == 1 else "s"
    return (
        f"{len(statements)} statement{plural}, tried on {_listed(_models_of(statements))}: "
        f"{parts}. Decided: {decided}, of these on two models or more: {decided_on_two}."
    )


def _models_of(statements: Sequence[StatementRecord]) -> list[str]:
    """Return the names of the models that say something to statements, each once."""
    models = [verdict.model for statement in statements for verdict in statement.models]
    return list(dict.fromkeys(models))


def _deciding_models(statement: StatementRecord) -> list[str]:
    return [
        verdict.model
        for verdict in statement.models
        if not verdict.proxy and verdict.verdict not in OPEN
    ]


def _listed(names: Sequence[str]) -> str:
    """Return names with commas between, and "and" before the last."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def shown(verdict: StatementVerdict, *, signs: bool = False) -> str:
    """Return a model's verdict in words or signs, with the cells where they differ.

    It is in brackets where the model is of another family, which only suggests.

    >>> from headscan_lab.ledger.statements import StatementVerdict
    >>> cells = {"supported": 2, "refuted": 1}
    >>> shown(StatementVerdict(model="m", verdict="mixed", cells=cells, proxy=True))
    '(mixed: 2 supported, 1 refuted)'
    """
    if not verdict.cells:
        return ""

    def name(word: str) -> str:
        return SIGNS[word] if signs else word

    text = name(verdict.verdict)
    if verdict.verdict == "mixed":
        cells = ", ".join(f"{count} {name(word)}" for word, count in verdict.cells.items())
        text = f"{text}: {cells}"
    return bracketed(text, verdict.proxy)


def bracketed(text: str, proxy: bool) -> str:
    """Return the words of a verdict, in brackets where another model than the named one was run."""
    return f"({text})" if proxy else text


@dataclass(frozen=True)
class _Spot:
    """A model's verdict on a statement, where it stands in the picture."""

    statement: str
    verdict: StatementVerdict

    @property
    def sign(self) -> str:
        return bracketed(SIGNS[self.verdict.verdict], self.verdict.proxy)

    @property
    def description(self) -> str:
        return f"{self.statement}, {literal(self.verdict.model)}: {shown(self.verdict)}"


@section("reproduce", 5)
def by_model(result: ReproduceResult) -> Section | None:
    """Show statements by verdict and model: a picture a document, and the table behind them."""
    statements = result.statements
    if len(statements) < 2:
        return None
    models = _models_of(statements)
    legend = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
    legend += "; in brackets: of another family, which only suggests."
    pictures = []
    for document, group in groupby(statements, key=lambda statement: statement.document):
        title = TITLES[document]
        caption = legend if document == statements[0].document else "Signs as in the first."
        pictures.append(
            Figure(
                f"statements-{document}",
                partial(_draw_verdicts, list(group), models),
                f"{title}, by statement and model",
                f"{title}. {caption}",
                120 + 32 * len(models),
            )
        )
    lead = "A row a statement; the claims that say the same are counted once."
    return Section("Statements", lead, [*pictures, _statement_table(statements, models)])


def _draw_verdicts(statements: Sequence[StatementRecord], models: Sequence[str]) -> go.Figure:
    """Draw signs of verdicts, a column a statement and a row a model."""
    spots = [
        _Spot(statement.id, verdict)
        for statement in statements
        for verdict in statement.models
        if verdict.cells
    ]
    figure = empty("statement")
    for word, colour in COLOURS.items():
        of_word = [spot for spot in spots if spot.verdict.verdict == word]
        if of_word:
            figure.add_scatter(
                x=[spot.statement for spot in of_word],
                y=[literal(spot.verdict.model) for spot in of_word],
                mode="text",
                name=word,
                text=[spot.sign for spot in of_word],
                textfont={"size": 15, "color": palette.model_colour(colour)},
                hovertext=[spot.description for spot in of_word],
                hoverinfo="text",
                showlegend=False,
            )
    ids = [statement.id for statement in statements]
    names = [literal(model) for model in models]
    figure.update_xaxes(type="category", categoryarray=ids, tickangle=-90, dtick=1)
    figure.update_yaxes(type="category", categoryarray=names, autorange="reversed")
    return figure


def _statement_table(statements: Sequence[StatementRecord], models: Sequence[str]) -> Table:
    columns = [
        Term("statement"),
        Term("verdict"),
        Term("what is said"),
        *(Term(model, where="page") for model in models),
        Term("control", where="page"),
        Term("claims", where="page"),
    ]
    rows = []
    for statement in statements:
        verdicts = {verdict.model: shown(verdict, signs=True) for verdict in statement.models}
        rows.append(
            (
                statement.id,
                f"{SIGNS[statement.verdict]} {statement.verdict}",
                statement.statement,
                *(verdicts.get(model, "") for model in models),
                statement.controls,
                ", ".join(map(str, statement.instances)),
            )
        )
    return Table(columns, rows, "Statements, in our words")


@section("reproduce", 10)
def verdicts(result: ReproduceResult) -> Section | None:
    """Show each claim on the models of the user; in a terminal, of a few claims, on proxies too."""
    if not result.claims:
        return None
    trials = _trial_table(result.claims)
    parts = [trials] if trials.lines else []
    if len(result.claims) <= MANY_CLAIMS:
        title = "On the stand-ins" if trials.lines else ""
        parts.append(_verdict_table(result.claims, title))
    lead = "Each is of what was run here; a tendency is no verdict on a larger model."
    return Section("Verdicts", lead, parts)


def _trial_table(records: Sequence[ClaimRecord]) -> Table:
    columns: list[Term | str] = [
        "claim",
        Term("model"),
        Term("verdict"),
        Term("effect"),
        "prompts",
        Term("statement"),
        Term("why", where="page"),
    ]
    rows = []
    for record in records:
        for trial in record.trials:
            if trial.tendency:
                sign = f"{SIGNS[trial.tendency]} {trial.tendency}"
                rows.append(
                    (
                        record.id,
                        trial.model,
                        bracketed(sign, not trial.decides),
                        _with_interval(trial.effect, trial.interval),
                        trial.prompts or "",
                        record.statement,
                        trial.why,
                    )
                )
    return Table(columns, rows, "On the models that were given")


def _verdict_table(records: Sequence[ClaimRecord], title: str) -> Table:
    columns: list[Term | str] = ["claim", Term("verdict"), Term("statement"), Term("why")]
    rows = [
        (record.id, f"{SIGNS[record.verdict]} {record.verdict}", record.statement, record.why)
        for record in records
    ]
    return Table(columns, rows, title, where="terminal")


@section("reproduce", 20)
def claims(result: ReproduceResult) -> Section | None:
    """Show every claim under its document: statement, verdict, evidence, protocol."""
    if not result.claims:
        return None
    counts: Counter[str] = Counter(record.verdict for record in result.claims)
    documents: dict[str, list[dict[str, object]]] = {}
    for record in result.claims:
        documents.setdefault(TITLES[record.document], []).append(entry(record))
    context = {
        "all": len(result.claims),
        "documents": documents,
        "counts": [
            (name, slug(name), sign, counts[name]) for name, sign in SIGNS.items() if counts[name]
        ],
    }
    ledger = Raw("reproduce_claims.html.j2", context, styles=["reproduce.css"])
    return Section(
        "Claims", "Each with its verdict, the evidence for and against, and its protocol.", [ledger]
    )


def entry(record: ClaimRecord) -> dict[str, object]:
    """Return one claim as the template prints it."""
    about = f"{record.place.rstrip('.')}. Of {record.model}"
    if record.data:
        about += f", on {record.data}"
    return {
        "id": record.id,
        "statement": record.statement,
        "verdict": record.verdict,
        "slug": slug(record.verdict),
        "sign": SIGNS[record.verdict],
        "tendency": record.tendency if record.verdict == "not tested" else None,
        "why": record.why,
        "command": record.command,
        "about": f"{about}.",
        "more": more(record),
        "evidence": [_evidence_row(evidence) for evidence in record.evidence],
        "stand_ins": [(proxy.name, proxy.why) for proxy in record.stand_ins],
        "trials": [
            (trial.model, trial.tendency or "not tried", trial.why) for trial in record.trials
        ],
        "protocol": [(name, text) for name, text in protocol(record) if text],
    }


def _evidence_row(evidence: ClaimEvidence) -> tuple[str, str, str, str, str]:
    """Return side, name, value, chance and sample of one number."""
    counts = {"tokens": evidence.tokens, "prompts": evidence.prompts, "seeds": evidence.seeds}
    sample = ", ".join(f"{count:,} {unit}" for unit, count in counts.items() if count)
    chance = "" if evidence.chance is None else number(evidence.chance)
    value = _with_interval(evidence.value, evidence.interval)
    return evidence.side, evidence.name, value, chance, sample


def protocol(record: ClaimRecord) -> list[tuple[str, str]]:
    """Return what was fixed before the run, as words."""
    power = ""
    if record.needs is not None:
        power = f"at least {record.needs.seeds} seeds and {record.needs.tokens} tokens"
    return [
        ("quantity", record.quantity),
        ("would count", str(record.counts or "")),
        ("another cause, if the control is", str(record.control or "")),
        ("test", record.test),
        ("scope", record.scope),
        ("power", power),
        ("models run", "; ".join(record.models)),
        ("processor seconds", number(record.seconds) if record.quantity else ""),
    ]


def more(record: ClaimRecord) -> str:
    """Return how many more samples would decide an undecided claim; "" of another."""
    if record.more is None:
        return ""
    unit = "prompts" if record.prompts else "seeds"
    return f"At the effect seen, {record.more:,} more {unit} would decide."


def _with_interval(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return ""
    if interval is None or interval[0] == interval[1]:
        return number(value)
    return f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


def slug(verdict: str) -> str:
    """Return a verdict as a CSS class."""
    return verdict.replace(" ", "-")


@section("reproduce", 30)
def redrawn_figures(result: ReproduceResult) -> Section | None:
    """Show each figure with the document's own words on it, and why others are not redrawn."""
    if not result.figures:
        return None
    parts: list[Prose | Figure | Table] = []
    rows = []
    for figure in result.figures:
        if figure.curves:
            parts.append(Prose(f"{figure.place}. Published: {figure.published}"))
            draw = partial(draw_curves, figure)
            parts.append(Figure(figure.id, draw, figure.title, f"{figure.title}, redrawn."))
        else:
            rows.append((figure.title, figure.place, figure.published, figure.why_not))
    if rows:
        names = ("figure", "place", "published", "why it is not redrawn")
        columns = [Term(name) for name in names]
        parts.append(Table(columns, rows, "Figures that are not redrawn"))
    return Section("Figures", "From runs of our own, beside what was published.", parts)


def draw_curves(redrawn: RedrawnFigure) -> go.Figure:
    """Draw the curves of a figure; bars where they stand at names."""
    figure = empty(redrawn.up)
    for index, curve in enumerate(redrawn.curves):
        colour = palette.model_colour(index)
        if curve.at and isinstance(curve.at[0], str):
            figure.add_bar(x=curve.at, y=curve.values, name=curve.name, marker={"color": colour})
        else:
            figure.add_scatter(
                x=curve.at,
                y=curve.values,
                name=curve.name,
                mode="lines+markers",
                line={"color": colour},
            )
    figure.update_layout(showlegend=len(redrawn.curves) > 1)
    figure.update_xaxes(title=redrawn.across)
    figure.update_yaxes(title=redrawn.up)
    return set_log(figure, *redrawn.log)
