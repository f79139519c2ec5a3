"""What the numbers say in words: findings with a code, a level and the number they rest on."""

from __future__ import annotations

from typing import Any

__all__ = ["findings", "probe_findings"]


def probe_findings(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings of the probes, where a scan has them: NEGATIVE (a certified direction) and ROGUE (one coordinate's cone)."""
    found = []
    for row in document.get("negative", []):
        # A few dozen states of many dimensions are always on one side; half of the sample must speak for the other half.
        if (
            row.get("null")
            or row["verdict"] != "uniformly negative"
            or row["violated"] is None
            or row["violated"] > 0.01
        ):
            continue
        text = (
            f"There is a direction in which all {row['states']} sampled states at {row['site']} are negative (least cosine "
            f"{row['margin']:.2f} to its opposite): tokens that never come next can be pushed along it for ever."
        )
        found.append(_finding("NEGATIVE", "alert", row, row["margin"], text))
    worst: dict[str, dict[str, Any]] = {}
    for row in document.get("rogue", []):
        if not row.get("null") and row["rogue_share_1"] is not None:
            best = worst.setdefault(row["model"], row)
            if row["rogue_share_1"] > best["rogue_share_1"]:
                worst[row["model"]] = row
    for row in worst.values():
        if row["rogue_share_1"] >= 0.3:
            text = (
                f"Dimension {row['dimensions'][0]} alone makes {row['rogue_share_1']:.0%} of the average cosine "
                f"at {row['site']}."
            )
            found.append(_finding("ROGUE", "notice", row, row["rogue_share_1"], text))
    return found


def findings(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings about each model of a scan, most telling first.

    Levels: `alert` (a strong effect), `notice`, `good`. Codes are stable: CONE, ROUND, SINK, DRIFT, SPIKE, FLAT, TWIN.
    The thresholds are conventions, stated in each text's number, not tests of significance.
    """
    found: list[dict[str, Any]] = []
    for model in dict.fromkeys(entry["model"] for entry in entries):
        mine = [entry for entry in entries if entry["model"] == model]
        blocks = [
            entry for entry in mine if ".block." in f".{entry['site']}" and entry["site"].split(".")[-1].isdigit()
        ]
        last = (blocks or mine)[-1]
        found += [item for item in _about(last, mine) if item]
    return found


def _finding(code: str, level: str, entry: dict[str, Any], value: float, text: str) -> dict[str, Any]:
    return {
        "code": code,
        "level": level,
        "model": entry["model"],
        "site": entry["site"],
        "value": value,
        "text": text,
    }


def _about(last: dict[str, Any], sites: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    return [_cone(last), _peak(last, sites), _sink(sites), _drift(last), _spike(last), _flat(last)]


def _cone(last: dict[str, Any]) -> dict[str, Any] | None:
    value = last["average_cosine"]
    if value is None:
        return None
    where = f"at {last['site']}, mean cosine {value:.2f}"
    if value >= 0.5:
        return _finding("CONE", "alert", last, value, f"Any two tokens point much the same way {where}.")
    if value >= 0.15:
        return _finding("CONE", "notice", last, value, f"Tokens lean towards a common direction {where}.")
    return _finding("ROUND", "good", last, value, f"No cone: two tokens are nearly unrelated in direction {where}.")


def _peak(last: dict[str, Any], sites: list[dict[str, Any]]) -> dict[str, Any] | None:
    known = [entry for entry in sites if entry["average_cosine"] is not None]
    top = max(known, key=lambda entry: entry["average_cosine"], default=None)
    if top is None or top is last or top["average_cosine"] < max(0.15, (last["average_cosine"] or 0) + 0.05):
        return None
    value = top["average_cosine"]
    level = "alert" if value >= 0.5 else "notice"
    return _finding("CONE", level, top, value, f"The cone is narrowest at {top['site']}, mean cosine {value:.2f}.")


def _sink(sites: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Position 0 alone moves a measure of the cloud by more than a tenth of its energy or of the mean cosine."""

    def shift(entry: dict[str, Any], name: str) -> float:
        both = entry[name], entry[f"{name}_without_first"]
        return 0.0 if None in both else both[0] - both[1]

    worst = max(sites, key=lambda entry: abs(shift(entry, "top_direction_share")))
    value = shift(worst, "top_direction_share")
    if abs(value) < 0.1:
        return None
    text = (
        f"Position 0 of each window is unlike the others: with it, {worst['top_direction_share']:.0%} of the energy at "
        f"{worst['site']} lies along one direction, without it {worst['top_direction_share_without_first']:.0%}."
    )
    return _finding("SINK", "notice", worst, value, text)


def _drift(last: dict[str, Any]) -> dict[str, Any] | None:
    if not last["mean_norm"]:
        return None
    value = last["mean_vector_norm"] / last["mean_norm"]
    if value < 0.5:
        return None
    text = f"The cloud sits off the origin at {last['site']}: its mean is {value:.2f} of the average token's length."
    return _finding("DRIFT", "notice", last, value, text)


def _spike(last: dict[str, Any]) -> dict[str, Any] | None:
    value = last["top_direction_share"]
    if value is None or value < 0.5:
        return None
    text = f"One direction carries {value:.0%} of the energy at {last['site']}."
    return _finding("SPIKE", "alert" if value >= 0.8 else "notice", last, value, text)


def _flat(last: dict[str, Any]) -> dict[str, Any] | None:
    value = last["effective_rank"]
    if value is None or value / last["width"] >= 0.1:
        return None
    text = f"{last['site']} uses about {value:.1f} of its {last['width']} dimensions (effective rank)."
    return _finding("FLAT", "notice", last, value, text)
