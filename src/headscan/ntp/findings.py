"""What the numbers of a prediction say, in sentences."""

from __future__ import annotations

from typing import Any

__all__ = ["findings"]


def _finding(code: str, level: str, text: str, value: float | None, model: str = "") -> dict[str, Any]:
    return {"code": code, "level": level, "model": model, "text": text, "value": value}


def findings(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Coded sentences, most important first: {code, level ("alert", "notice" or "good"), model, text, value}."""
    data, found = document["data"], []
    bound = data["entropy_bound"]
    found.append(
        _finding(
            "BOUND",
            "notice",
            f"no model that sees {document['order']} tokens gets below {bound:.4g} nats a token on this text",
            bound,
        )
    )
    share = data["single_successor_share"]
    if share > 0.5:
        text = f"{share:.0%} of the contexts were followed by one token only: their logits have no finite part"
        found.append(_finding("ONE SUCCESSOR", "notice", text, share))
    if data["unseen_mass"] > 0.1:
        text = (
            f"about {data['unseen_mass']:.0%} of next occurrences would bring a successor not yet seen: "
            f"the supports are not settled"
        )
        found.append(_finding("UNSETTLED", "alert", text, data["unseen_mass"]))
    solution = document["solution"]
    if solution:
        text = (
            f"the growing part has rank {solution['rank']} of at most {data['vocabulary'] - 1}, "
            f"certified to a relative gap of {solution['gap']:.0e}"
        )
        found.append(_finding("LOW RANK", "good" if solution["converged"] else "notice", text, solution["rank"]))
    for model in document["models"]:
        m = model["metrics"]
        if m["direction"] is not None:
            level = "good" if m["direction"] > 0.9 else "notice"
            text = f"the growing part of the logits has cosine {m['direction']:.3f} with the prediction"
            found.append(_finding("DIRECTION", level, text, m["direction"], model["name"]))
        after = m["SC1"]["after"]
        if after:
            text = (
                f"contexts with equal supports: cosine {after['same_cosine']:.3f} after projection, "
                f"{after['other_cosine']:.3f} between different supports"
            )
            found.append(
                _finding(
                    "COLLAPSE",
                    "good" if after["same_cosine"] > 0.9 else "notice",
                    text,
                    after["same_cosine"],
                    model["name"],
                )
            )
        if m["SC6"]["outside_mass"] > 0.05:
            share = m["SC6"]["outside_mass"]
            text = f"{share:.1%} of the probability lies outside the supports: it generalises, or has not fitted"
            found.append(_finding("OUTSIDE", "notice", text, m["SC6"]["outside_mass"], model["name"]))
    return found
