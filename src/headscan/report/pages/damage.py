"""The page of what a second model costs: parts by damage, which parts to keep, and all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.text import Text

from headscan.report.kit import Figure, Head, Prose, Raw, Section, Table, Term, page, section, table
from headscan.report.kit.figures import lines
from headscan.report.kit.words import named, number
from headscan.report.pages.contexts import context_table

if TYPE_CHECKING:
    from headscan.comparison.result import DamageResult
    from headscan.run import Row

NATS = "nats a token"
TERMS = {
    "block": Term("part"),
    "mode": Term("mode"),
    "choice": Term("choice"),
    "of": Term("windows"),
    "kl": Term(
        "KL",
        "Divergence of the logits from the first model's.",
        "KL(first ‖ second)",
        unit=NATS,
        spread=True,
    ),
    "kl_reverse": Term(
        "KL back",
        "The divergence in the other direction.",
        "KL(second ‖ first)",
        unit=NATS,
        where="page",
    ),
    "loss_change": Term(
        "loss change",
        "Loss minus the first model's.",
        unit=NATS,
        column="loss\nchange",
        where="page",
    ),
    "top1_agreement": Term(
        "top-1", "Predictions whose likeliest token is the first model's.", range=(0, 1), places=3
    ),
    "probability_change": Term(
        "probability",
        "Change of the probability of the token that follows.",
        places=4,
        where="page",
    ),
    "probability_rms": Term(
        "probability, root mean square",
        "Root mean square of that change.",
        places=4,
        where="page",
    ),
    "perplexity_first": Term("perplexity before", "Of the first model.", where="page"),
    "perplexity_second": Term("perplexity", "Of the second model."),
    "perplexity_ratio": Term(
        "ratio", "Of the second model's perplexity to the first's.", places=4, spread=True
    ),
    "level": Term("level"),
    "probability_fall": Term(
        "probability lost",
        "Fall of the probability of the token that follows.",
        places=4,
    ),
    "divergence": Term("divergence", "KL(first ‖ second).", unit="nats", places=3),
    "before": Term("before", "Probability of the token that follows, first model.", places=3),
    "after": Term("after", "Probability of the token that follows, second model.", places=3),
    "share": Term(
        "share",
        "Share of the second model's divergence; in the accumulated mode, what this part adds.",
        places=3,
    ),
    "gain": Term(
        "gain",
        "Fall of the divergence where this part of the second model is restored.",
        unit=NATS,
        where="page",
    ),
    "relative_error": Term(
        "state error",
        "Error of the states behind the part, over their size (roots of sums of squares).",
        where="page",
    ),
    "mean_direction_error": Term("mean error", "The same error of the mean vector.", where="page"),
    "outlier_error": Term(
        "outlier error",
        "The same error in coordinates above six times the median's size.",
        where="page",
    ),
    "more_kl": Term("KL more", "Minus that of the best choice, by token.", unit=NATS, spread=True),
    "bytes": Term("bytes", places=0, interval="counted"),
    "matrix": Term("matrix"),
    "format": Term("format"),
    "bits": Term("bits", "Bits of a weight.", places=2, interval="counted"),
    "harm": Term("expected KL", "Divergence that it is expected to add.", unit=NATS, places=5),
    "predicted_kl": Term("expected KL", "The sum that was expected.", unit=NATS),
}
SHAPE_TERMS = {
    "average_cosine": Term(
        "cosine", "Average cosine of two tokens, without sinks, as scan has it."
    ),
    "effective_rank": Term("rank", "Effective rank, without sinks, as scan has it."),
    "sink_share": Term(
        "sinks", "Share of tokens longer than three times their window's median.", percent=True
    ),
    "bits_lower": Term(
        "bits, at least",
        "Information that a noisy state gives about its token: U(2σ).",
        unit="bits",
    ),
    "bits_upper": Term(
        "bits, at most",
        "The same from above: U(σ), σ half of the root of the total variance.",
        unit="bits",
    ),
}
VERSIONS = ("first", "second", "change")
VERSION_SENTENCES = {
    "second": "The same of the second model.",
    "change": "The second model's minus the first's, paired by token.",
}
CHANGES_IN_TERMINAL = ("average_cosine_change", "effective_rank_change")
CHANGED_NUMBERS = {
    "average_cosine": "the cosine",
    "effective_rank": "the effective rank",
    "bits_upper": "the bits",
}
COSTS = ("kl", "kl_reverse", "loss_change", "top1_agreement")
PERPLEXITIES = ("perplexity_first", "perplexity_second", "perplexity_ratio")
PROBABILITIES = ("probability_change", "probability_rms")
TAIL = ("kl", "probability_fall")
STATE_ERRORS = ("relative_error", "mean_direction_error", "outlier_error")
DAMAGE_LINES = {"alone in the first model": "kl", "given back where it is restored": "gain"}


def _shape_terms() -> dict[str, Term]:
    """Return the term of each number of the shape: of both models, and of its change."""
    terms = {}
    for name, term in SHAPE_TERMS.items():
        for version in VERSIONS:
            field = f"{name}_{version}"
            terms[field] = replace(
                term,
                title=f"{term.title} {version}",
                sentence=VERSION_SENTENCES.get(version, term.sentence),
                spread=True,
                where="everywhere" if field in CHANGES_IN_TERMINAL else "page",
            )
    return terms


@page("damage")
def damage(result: DamageResult) -> Head:
    """Return both models, and how much the second diverges from the first."""
    [row, *_] = result.totals.values()
    first, second = (named(model.name) for model in result.models)
    interval = row.interval("loss_change")
    ends = f" [{number(interval[0])}, {number(interval[1])}]" if interval else ""
    sentence = (
        f"{second} diverges from {first} by {number(row.number('kl'))} nats a token and its loss "
        f"changes by {number(row.number('loss_change'))}{ends}; "
        f"{number(row.number('top1_agreement'))} of its likeliest tokens are the same, on "
        f"{result.tokens:,} predictions."
    )
    return Head([first, second], sentence, conclusion=_conclusion(row, first, second))


def _conclusion(row: Row, first: str, second: str) -> str:
    """Say if the change of the loss is significant, and how to set a limit."""
    interval = row.interval("loss_change")
    limit = "To fail a build above a divergence, use --limit VALUE --fail-on HS701."
    if interval is None:
        return limit
    if interval[0] > 0:
        return f"{second} predicts significantly worse than {first}. {limit}"
    if interval[1] < 0:
        return f"{second} predicts significantly better than {first}. {limit}"
    return f"No loss of {second} against {first} is shown on this text. {limit}"


@section("damage", 10)
def parts(result: DamageResult) -> list[Section]:
    """Return the second model as a whole, the parts in both modes, and the choices."""
    totals = [row | {"of": name} for name, row in result.totals.items()]
    columns = (*COSTS, *PERPLEXITIES, *PROBABILITIES)
    costs = table(totals, "of", *columns, terms=TERMS, title="The whole")
    lead = "Parts were exchanged on the sample only." if result.damage else ""
    sections = [Section("The whole", lead, [costs], name="whole"), _tail(result)]
    if result.recipe:
        return [*sections, *_recipe(result)]
    isolated = [row for row in result.damage if row["mode"] == "isolated"]
    if isolated:
        sections.append(_part_by_part(result, isolated))
    if result.choices:
        sections.append(_choices(result))
    return sections


def _tail(result: DamageResult) -> Section:
    """Return the quantiles of the damage, and the predictions that it hurts most."""
    levels = table(result.tail, "level", *TAIL, terms=TERMS, title="Tail")
    section_parts = [levels]
    if result.contexts:
        worst = context_table(result.contexts, "before", "after", terms=TERMS)
        section_parts.append(replace(worst, where="page"))
    lead = (
        "Quantiles over all predictions: at 99 %, one in 100 is hurt more. Below them the "
        "predictions that diverge most, with the probability of the token that follows."
    )
    return Section("The worst predictions", lead, section_parts, name="tail")


def _part_by_part(result: DamageResult, isolated: Sequence[Row]) -> Section:
    """Return the damage of each part; `isolated` are the rows of parts that were put in alone."""
    figure = Figure(
        "damage",
        partial(_damage_lines, isolated),
        "Divergence of the logits by part, with intervals",
        height=420,
    )
    columns = ("mode", *COSTS, "share", "gain", *STATE_ERRORS)
    numbers = table(result.damage, "block", *columns, terms=TERMS, title="Parts")
    sums = {name: number(value) for name, value in result.sums.items()}
    note = Prose(
        f"Divergences of single parts add up to {sums['isolated']} (restored singly: "
        f"{sums['restored']}), the whole model's is {sums['total']}; the difference is the "
        "interaction of parts. Accumulated shares add up to 1."
    )
    lead = (
        "Isolated: one part of the second model replaces that of the first. Accumulated: all parts "
        f"up to it do. {result.sampled:,} predictions."
    )
    return Section("Part by part", lead, [figure, numbers, note], name="parts")


def _damage_lines(isolated: Sequence[Row]) -> go.Figure:
    parts = [row.text("block") for row in isolated]
    series = {}
    for title, field in DAMAGE_LINES.items():
        values = [row.number(field) for row in isolated]
        series[title] = (parts, values, [row.interval(field) for row in isolated])
    return lines(series, "part", f"KL, {NATS}", zero=True)


def _choices(result: DamageResult) -> Section:
    """Return which parts each choice keeps, and what that saves."""
    columns = ("bytes", *COSTS[:3], "more_kl")
    numbers = table(result.choices, "choice", *columns, terms=TERMS, title="Choices")
    # The first and the last choice keep no part and all parts.
    texts = [f"{row['choice']}: {', '.join(_texts(row['kept']))}" for row in result.choices[1:-1]]
    note = Prose(f"{'; '.join(texts)}.")
    lead = "The choices were measured on other windows; random is the mean of 8 choices."
    return Section("Which parts to keep", lead, [numbers, note], name="keep")


def _recipe(result: DamageResult) -> list[Section]:
    """Return the recipe beside other choices, as other programs read it, and matrix by matrix."""
    columns = ("bytes", *COSTS[:3], "more_kl", "predicted_kl")
    choices = table(result.choices, "choice", *columns, terms=TERMS, title="Choices")
    texts = [f"{row['choice']}: {', '.join(_texts(row['formats']))}" for row in result.choices]
    details = ("format", "bytes", "bits", "harm")
    rows = table(result.recipe, "matrix", *details, terms=TERMS, title="Matrices", where="page")
    lead = (
        "All choices were measured on windows that were not used to choose the recipe. "
        "Uniform: one format, and a larger one for evenly spaced matrices; of all such pairs "
        "the one with the least expected divergence. Shuffled: the recipe's formats among "
        "the same matrices of other blocks, mean of two."
    )
    note = Prose(f"{'; '.join(texts)}.")
    sections = [Section("The recipe", lead, [choices, note, rows], name="recipe")]
    for program, written in result.commands.items():
        text = Text("\n".join(written))
        command = Raw("recipe_lines.html.j2", {"lines": written}, terminal=text)
        sections.append(Section(f"For {program}", "", [command], name=program))
    return sections


def _texts(values: object) -> list[str]:
    """Return the items of a list as texts."""
    assert isinstance(values, list)
    return [str(value) for value in values]


@section("damage", 20)
def shape(result: DamageResult) -> Section | None:
    """Return the shape of the states at each site, before and after; None where not measured."""
    if not result.shape:
        return None
    section_parts: list[Table | Prose] = [_shape_table(result.shape)]
    phrases = _changed_sites(result.shape)
    if phrases:
        text = ", ".join(phrases)
        sentence = f"Significant changes, paired by token: {text}."
        section_parts.append(Prose(sentence))
    lead = "The states of both models behind each part that changes them."
    return Section("The shape, before and after", lead, section_parts, name="shape")


def _shape_table(rows: Sequence[Row]) -> Table:
    terms = _shape_terms()
    outlying = Term(
        "outlying coordinates",
        "Massive or rogue ones, as scan names them: first → second.",
        where="page",
    )
    return table(rows, "site", *terms, (outlying, _coordinates), terms=terms, title="Shape")


def _coordinates(row: Row) -> str:
    """Return the massive and rogue coordinates of both models."""
    texts = []
    for version in ("first", "second"):
        massive = _texts(row[f"massive_coordinates_{version}"])
        rogue = _texts(row[f"rogue_coordinates_{version}"])
        texts.append(", ".join(massive + rogue) or "none")
    return " → ".join(texts)


def _changed_sites(rows: Sequence[Row]) -> list[str]:
    """Say at how many sites each number has changed for certain."""
    phrases = []
    for name, words in CHANGED_NUMBERS.items():
        intervals = [row.interval(f"{name}_change") for row in rows]
        excludes_zero = [
            interval[0] > 0 or interval[1] < 0 for interval in intervals if interval is not None
        ]
        if excludes_zero:
            phrases.append(f"{words} at {sum(excludes_zero)} of {len(excludes_zero)} sites")
    return phrases
