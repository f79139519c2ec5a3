"""The findings of `compare --damage`."""

import math
from collections.abc import Sequence

from headscan.comparison.kinds import KEEPING, OVER_LIMIT, RECIPE, SAME, WORST_PART
from headscan.run import Finding, Row

RIVALS = ("uniform", "random")
"""The choices that the greedy one is compared with."""

RECIPE_RIVALS = ("uniform", "shuffled")
"""The choices that a recipe is compared with."""


def damage_findings(
    rows: list[Row], total: Row, choices: list[Row], limit: float | None, name: str
) -> list[Finding]:
    """Return the findings about the second model.

    Args:
        rows: of the parts.
        total: the divergences of the second model.
        choices: of parts to keep.
        limit: nats a token.
        name: of the second model.
    """
    if not rows:
        sentence = f"All weights of {name} are the first model's."
        return [SAME.finding("fine", sentence, model=name)]
    findings = []
    if limit is not None:
        findings += _over_limit(total, limit, name)
    findings.append(_worst_part(rows, name))
    if choices:
        findings.append(_keeping(choices, name))
    return findings


def _over_limit(total: Row, limit: float, name: str) -> list[Finding]:
    interval = total.interval("kl")
    upper_end = interval[1] if interval else math.inf
    if upper_end <= limit:
        return []
    sentence = (
        f"{name} diverges by {_divergence(total)} nats a token: it is not shown to be below "
        f"{limit:g}.{_missing_interval(total)}"
    )
    return [OVER_LIMIT.finding("alarm", sentence, model=name, value=total.number("kl"))]


def _worst_part(rows: list[Row], name: str) -> Finding:
    isolated = [row for row in rows if row["mode"] == "isolated"]
    isolated.sort(key=lambda row: -(row.number("kl") or 0))
    worst = isolated[0]
    listed = [f"{row['block']} ({_divergence(row)} nats a token)" for row in isolated[:2]]
    return WORST_PART.finding(
        "notice",
        (
            "Parts whose change hurts most, one at a time: "
            f"{', then '.join(listed)}.{_missing_interval(worst)}"
        ),
        model=name,
        site=worst.text("block"),
        value=worst.number("kl"),
    )


def _keeping(choices: list[Row], name: str) -> Finding:
    greedy = choices[1]
    kept = greedy["kept"]
    assert isinstance(kept, list)
    predicted = greedy.number("predicted_kl") or 0.0
    sentence = (
        f"With {', '.join(map(str, kept))} as in the first model {_divergence(greedy)} nats a "
        f"token are left ({predicted:.3g} predicted).{_missing_interval(greedy)}"
    )
    comparison, all_beaten = _beside(choices, RIVALS)
    return KEEPING.finding("fine" if all_beaten else "notice", sentence + comparison, model=name)


def recipe_finding(choices: list[Row], name: str) -> Finding:
    """Return the finding about a mixed recipe, the first of the choices."""
    recipe = choices[0]
    formats = recipe["formats"]
    assert isinstance(formats, list)
    sentence = (
        f"With {recipe['bytes']:,} bytes ({', '.join(map(str, formats))}) the recipe diverges by "
        f"{_divergence(recipe)} nats a token ({recipe.number('predicted_kl'):.3g} predicted)."
        f"{_missing_interval(recipe)}"
    )
    comparison, all_beaten = _beside(choices, RECIPE_RIVALS)
    return RECIPE.finding("fine" if all_beaten else "notice", sentence + comparison, model=name)


def _beside(choices: list[Row], rivals: Sequence[str]) -> tuple[str, bool]:
    """Say which rivals of as many bytes are shown to be worse, and whether all are."""
    row_of = {row.text("choice"): row for row in choices}
    beaten: list[str] = []
    not_beaten: list[str] = []
    for rival in rivals:
        interval = row_of[rival].interval("more_kl")
        is_beaten = interval is not None and interval[0] > 0
        (beaten if is_beaten else not_beaten).append(rival)
    sentence = ""
    if beaten:
        sentence += f" That beats {' and '.join(beaten)} choices of as many bytes."
    if not_beaten:
        names = " and ".join(not_beaten)
        sentence += f" The {names} choices of as many bytes are not shown to be worse."
    return sentence, not not_beaten


def _divergence(row: Row) -> str:
    """Return the divergence of a row, with its interval where there is one."""
    interval = row.interval("kl")
    if interval is None:
        return f"{row['kl']:.3g}"
    low, high = interval
    return f"{row['kl']:.3g} [{low:.3g}, {high:.3g}]"


def _missing_interval(row: Row) -> str:
    """Return the reason why a divergence has no interval; empty where it has one."""
    if row.interval("kl") is not None:
        return ""
    return " There is no interval: it takes three documents or windows (--sample, --max-tokens)."
