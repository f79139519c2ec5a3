"""The entries of a scan's document, in order, and the place of a site on an axis that all models of a figure share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headscan.report.kit.reading import Entry, entries, number, text

__all__ = ["NULLS", "Axis", "Place", "last_block", "models", "of_model", "rows_of"]

NULLS = {"random-init": "random weights", "gaussian": "Gaussian"}
"""What stands beside a model: its architecture with random weights, and a Gaussian cloud."""

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


class Axis:
    """The layer axis of models that may differ in depth, and of encoders that differ in depth from their decoders.

    Where all stacks have the same number of blocks, the axis counts layers: the embedding at 0, block k at k + 1, its parts
    just before it, then the final norm and the head. Where they differ, block 4 of one is not block 4 of another: the axis
    is the share of the blocks passed, 0 at the embedding and 1 after the last block, with the norm and the head beyond.
    """

    def __init__(self, document: Entry) -> None:
        self.blocks: dict[tuple[str, str], int] = {}
        self.deepest: dict[str, float] = {}
        for entry in entries(document, "sites"):
            model, found = text(entry, "model"), NAME.match(text(entry, "site"))
            self.deepest[model] = max(self.deepest.get(model, 1.0), number(entry, "depth") or 0)
            if found and found["index"] is not None:
                key = model, found["stack"] or ""
                self.blocks[key] = max(self.blocks.get(key, 0), int(found["index"]) + 1)
        for record in entries(document, "models"):  # a scan of a few sites does not show how deep the model is
            key = text(record, "name"), ""
            if key in self.blocks:
                self.blocks[key] = max(self.blocks[key], int(number(record, "depth") or 0))
        self.counts = len(set(self.blocks.values())) <= 1
        self.title = "layer" if self.counts else "share of the blocks"

    def place(self, entry: Entry) -> Place:
        """The place of an entry's site; one with a name of its own kind stands at its depth."""
        model, site = text(entry, "model"), text(entry, "site")
        found, depth = NAME.match(site), float(number(entry, "depth") or 0)
        if not found:
            return Place("", "", depth if self.counts else depth / self.deepest.get(model, 1.0), site)
        stack, base, part = found["stack"] or "", found["base"], found["part"] or ""
        blocks = self.blocks.get((model, stack)) or max(self.blocks.values(), default=0)
        if base == "block" and found["index"] is not None:
            x = int(found["index"]) + 1.0 - (0.25 if part == "mlp" else 0.5 if part else 0)
            return Place(stack, part, x if self.counts else x / blocks, found["index"] + (f".{part}" if part else ""))
        beyond = {"final_norm": 1, "head": 2}.get(base)
        label = {"embedding": "emb", "final_norm": "norm"}.get(base, base)
        if beyond is None:
            return Place(stack, part, 0.0, label)
        return Place(stack, part, blocks + beyond if self.counts else 1 + 0.08 * beyond, label)

    def ticks(self, shown: Iterable[Entry]) -> dict[float, str]:
        """Labels by their place, for the sites of the main stream."""
        places = [place for place in map(self.place, shown) if not place.part]
        if self.counts:
            return {place.x: place.label for place in reversed(places)}
        ends = {place.x: place.label for place in places if place.label in ("emb", "norm", "head")}
        return {0.25: "¼", 0.5: "½", 0.75: "¾", 1.0: "last"} | ends


def models(document: Entry) -> list[str]:
    """The models' names, in order; those that only the sites name come last."""
    named = [text(model, "name") for model in entries(document, "models")]
    return list(dict.fromkeys([*named, *(text(entry, "model") for entry in entries(document, "sites"))]))


def rows_of(document: Entry, name: str) -> list[Entry]:
    """The rows of a probe's table."""
    tables = document.get("tables")
    return entries(tables if isinstance(tables, dict) and name in tables else document, name)


def of_model(found: Iterable[Entry], model: str, null: str | None = None) -> list[Entry]:
    """The entries of one model (and one null), in order of depth."""
    mine = [e for e in found if e.get("model") == model and (e.get("null") or None) == null]
    return sorted(mine, key=lambda e: number(e, "depth") or 0)


def last_block(found: Iterable[Entry]) -> Entry | None:
    """The entry of the deepest whole block; without any block the deepest entry; without entries None.

    >>> last_block([{"site": "block.9", "depth": 10}, {"site": "block.10", "depth": 11}, {"site": "head", "depth": 12}])["site"]
    'block.10'
    """
    known = list(found)
    whole = [e for e in known if re.fullmatch(r"(?:(?:encoder|decoder)\.)?block\.\d+", text(e, "site"))]
    return max(whole or known, key=lambda e: number(e, "depth") or 0, default=None)
