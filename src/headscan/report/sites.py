"""The order of sites and their place on a layer axis."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Place", "last_block", "models", "of_model", "place"]

NAME = re.compile(
    r"^(?:(?P<stack>encoder|decoder)\.)?(?P<base>embedding|block|final_norm|head)"
    r"(?:\.(?P<index>\d+))?(?:\.(?P<part>.+))?$"
)


@dataclass(frozen=True)
class Place:
    """Where a site stands: `stack` ('' unless encoder-decoder), `part` ('' in the main stream), x, and a short label."""

    stack: str
    part: str
    x: float
    label: str


def place(entry: dict, blocks: int) -> Place:
    """The place of a site in a stack of `blocks` blocks: the embedding at 0, block k at k + 1, its parts just before it.

    A site with a name of its own kind stands at its depth.

    >>> place({"site": "block.3.mlp"}, 6)
    Place(stack='', part='mlp', x=3.75, label='3.mlp')
    """
    found = NAME.match(entry["site"])
    if not found:
        return Place("", "", float(entry.get("depth") or 0), entry["site"])
    stack, base, part = found["stack"] or "", found["base"], found["part"] or ""
    if base == "block" and found["index"] is not None:
        x = int(found["index"]) + 1.0
        if part:
            x -= 0.25 if part == "mlp" else 0.5
        return Place(stack, part, x, found["index"] + (f".{part}" if part else ""))
    x = {"embedding": 0.0, "final_norm": blocks + 1.0, "head": blocks + 2.0}.get(base, float(entry.get("depth") or 0))
    label = {"embedding": "emb", "final_norm": "norm"}.get(base, base)
    return Place(stack, part, x, label)


def models(document: dict) -> list[str]:
    """The models' names, in order."""
    return [model["name"] for model in document.get("models", [])]


def of_model(entries: list[dict], model: str, null: str | None = None) -> list[dict]:
    """The entries of one model (and one null), in order of depth."""
    return sorted(
        (e for e in entries if e["model"] == model and e.get("null") == null), key=lambda e: e.get("depth") or 0
    )


def last_block(entries: list[dict]) -> dict | None:
    """The entry of the deepest whole block; without any block the deepest entry; without entries None.

    >>> last_block([{"site": "block.9", "depth": 10}, {"site": "block.10", "depth": 11}, {"site": "head", "depth": 12}])["site"]
    'block.10'
    """
    whole = [e for e in entries if re.fullmatch(r"(?:(?:encoder|decoder)\.)?block\.\d+", e["site"])]
    return max(whole or entries, key=lambda e: e.get("depth") or 0, default=None)
