"""What the numbers say in words: findings with a code, a level and the number they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from headscan.geometry.explained import WITHOUT
from headscan.run.records import Finding
from headscan.run.rows import Row

__all__ = ["findings"]

NARROW, LEANING = 0.5, 0.15
"""From these average cosines on, a cloud is called a narrow cone, and a cone."""
APART = 0.05
"""Differences of average cosines up to this are not spoken of."""


def findings(sites: Sequence[Row], nulls: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> list[Finding]:
    """Findings about each model of a scan, most telling first.

    Levels: `alert` (a strong effect), `notice`, `good`. Codes are stable: CONE or ROUND (one of the two, once a model),
    ROUNDER (than random weights), SINK, DRIFT, SPIKE, FLAT, NEGATIVE, ROGUE. The thresholds are conventions, stated in
    each text's number, not tests of significance.
    """
    found: list[Finding | None] = []
    for model in dict.fromkeys(row.text("model") for row in sites):
        mine = [row for row in sites if row["model"] == model]
        blocks = [row for row in mine if ".block." in f".{row['site']}" and row.text("site").split(".")[-1].isdigit()]
        last = (blocks or mine)[-1]
        random = {row.text("site"): row for row in nulls if row["model"] == model and row["null"] == "random-init"}
        found += [
            _cone(last, mine, random),
            _rounder(last, random),
            _sink(mine),
            _drift(last),
            _spike(last),
            _flat(last),
        ]
    found += [_negative(row) for row in tables.get("negative", []) if not row.get("null")]
    rogue = [row for row in tables.get("rogue", []) if not row.get("null")]
    for model in dict.fromkeys(row.text("model") for row in rogue):
        found.append(_rogue([row for row in rogue if row["model"] == model]))
    return [one for one in found if one is not None]


def _finding(code: str, level: Literal["alert", "notice", "good"], row: Row, value: float, text: str) -> Finding:
    return Finding(code=code, level=level, model=row.text("model"), site=row.text("site"), value=value, text=text)


def _cone(last: Row, sites: list[Row], random: Mapping[str, Row]) -> Finding | None:
    """One verdict a model, from its last block and its narrowest site, with random weights beside it."""
    known = [row for row in sites if row.number("average_cosine") is not None]
    value = last.number("average_cosine")
    top = max(known, key=lambda row: row.number("average_cosine") or 0.0, default=None)
    if top is None:
        return None
    peak = top.number("average_cosine") or 0.0
    # The last block is spoken of unless another site alone is a cone.
    where, number = (last, value) if value is not None and (value >= LEANING or peak < LEANING) else (top, peak)
    elsewhere = where is last and top is not last and peak >= max(LEANING, number + APART)
    null = random[where.text("site")].number("average_cosine") if where.text("site") in random else None
    said = f" (random weights: {null:.2f})" if null is not None else ""
    at = f"at {where['site']}, mean cosine {number:.2f}{said}"
    if peak < LEANING:
        return _finding("ROUND", "good", where, number, f"No cone: two tokens are nearly unrelated in direction {at}.")
    strong = max(number, peak) >= NARROW
    text = (
        f"Any two tokens point much the same way {at}"
        if number >= NARROW
        else f"Tokens lean towards a common direction {at}"
    )
    if elsewhere:
        text += f"; most at {top['site']}, {peak:.2f}"
    elif where is not last and value is not None:
        text += f"; no more at {last['site']}, {value:.2f}"
    return _finding("CONE", "alert" if strong else "notice", where, number, f"{text}.")


def _rounder(last: Row, random: Mapping[str, Row]) -> Finding | None:
    """The architecture alone, with random weights, makes a narrower cone than the trained model has."""
    site = last.text("site")
    value, null = last.number("average_cosine"), random[site].number("average_cosine") if site in random else None
    if value is None or null is None or null < LEANING or value > null - APART:
        return None
    text = f"Rounder than random weights make it at {site}: mean cosine {value:.2f} against {null:.2f}."
    return _finding("ROUNDER", "good", last, value, text)


def _sink(sites: list[Row]) -> Finding | None:
    """Position 0 alone moves a measure of the cloud by more than a tenth of its energy."""

    def shift(row: Row) -> float:
        whole, rest = row.number("top_direction_share"), row.number(f"top_direction_share{WITHOUT}")
        return 0.0 if whole is None or rest is None else whole - rest

    worst = max(sites, key=lambda row: abs(shift(row)))
    if abs(shift(worst)) < 0.1:
        return None
    whole, rest = worst.number("top_direction_share") or 0.0, worst.number(f"top_direction_share{WITHOUT}") or 0.0
    text = (
        f"Position 0 of each window is unlike the others: with it, {whole:.0%} of the energy at {worst['site']} lies along "
        f"one direction, without it {rest:.0%}."
    )
    return _finding("SINK", "notice", worst, whole - rest, text)


def _drift(last: Row) -> Finding | None:
    length, mean = last.number("mean_norm"), last.number("mean_vector_norm")
    if not length or mean is None or mean / length < 0.5:
        return None
    text = f"The cloud sits off the origin at {last['site']}: its mean is {mean / length:.2f} of the average token's length."
    return _finding("DRIFT", "notice", last, mean / length, text)


def _spike(last: Row) -> Finding | None:
    value = last.number("top_direction_share")
    if value is None or value < 0.5:
        return None
    text = f"One direction carries {value:.0%} of the energy at {last['site']}."
    return _finding("SPIKE", "alert" if value >= 0.8 else "notice", last, value, text)


def _flat(last: Row) -> Finding | None:
    value, width = last.number("effective_rank"), last.number("width")
    if value is None or width is None or value / width >= 0.1:
        return None
    text = f"{last['site']} uses about {value:.1f} of its {width} dimensions (effective rank)."
    return _finding("FLAT", "notice", last, value, text)


def _negative(row: Row) -> Finding | None:
    violated, margin = row.number("violated"), row.number("margin")
    # A few dozen states of many dimensions are always on one side; half of the sample must speak for the other half.
    if row["verdict"] != "uniformly negative" or violated is None or violated > 0.01 or margin is None:
        return None
    text = (
        f"There is a direction in which all {row['states']} sampled states at {row['site']} are negative (least cosine "
        f"{margin:.2f} to its opposite): tokens that never come next can be pushed along it for ever."
    )
    return _finding("NEGATIVE", "alert", row, margin, text)


def _rogue(rows: list[Row]) -> Finding | None:
    worst = max(rows, key=lambda row: row.number("rogue_share_1") or 0.0)
    share, dimensions = worst.number("rogue_share_1") or 0.0, worst.get("dimensions")
    if share < 0.3 or not isinstance(dimensions, list):
        return None
    text = f"Dimension {dimensions[0]} alone makes {share:.0%} of the average cosine at {worst['site']}."
    return _finding("ROGUE", "notice", worst, share, text)
