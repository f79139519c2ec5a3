"""What a flow's and a channel's numbers say in words."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.flow.result import ChannelPart, FlowPart
from headscan.run import Finding

__all__ = ["channel_findings", "flow_findings"]


def flow_findings(parts: Sequence[FlowPart]) -> list[Finding]:
    """Codes: TOLD (earlier tokens that one output gives away, beside random weights), LATER (what follows is seen)."""
    found = []
    random = {part.model: part.sites[-1] for part in parts if part.cut == "fresh"}
    for part in (one for one in parts if one.cut == "whole"):
        last, null = part.sites[-1], random.get(part.model)
        if (told := last.recoverable_of_earlier) is not None:
            beside = "" if null is None else f" (with random weights {null.recoverable_of_earlier:.0%})"
            among = "" if part.exhaustive else f" among the {part.candidates} candidates tried"
            text = (
                f"One output of {last.site} alone tells {told:.0%} of the tokens before it{among}{beside}, all others "
                "known."
            )
            found.append(_seen("TOLD", text, part, told))
        if last.leak_of_later > 0:
            text = f"Outputs of {last.site} move with the tokens that follow them, by {last.leak_of_later:.2g} of their norm."
            found.append(_seen("LATER", text, part, last.leak_of_later))
    return found


def _seen(code: str, text: str, part: FlowPart, value: float) -> Finding:
    return Finding(code=code, level="notice", sentence=text, model=part.model, site=part.sites[-1].site, value=value)


def channel_findings(parts: Sequence[ChannelPart]) -> list[Finding]:
    """Codes: SHARED (tokens with one output), SEARCH (searches that need different numbers of features)."""
    found = []
    for part in parts:
        if shared := part.distances.duplicates:
            text = f"{shared} tokens share their output with another: nothing can tell them apart."
            found.append(
                Finding(
                    code="SHARED", level="alert", sentence=text, model=part.model, site=part.site, value=float(shared)
                )
            )
        needs = {row.search: row.width for row in part.thresholds if row.subset == "contiguous" and row.first == 0}
        if len(set(needs.values())) > 1:
            said = ", ".join(f"{name} {'all are too few' if width is None else width}" for name, width in needs.items())
            text = f"How many of {part.width} features suffice depends on the search: {said}."
            found.append(Finding(code="SEARCH", level="notice", sentence=text, model=part.model, site=part.site))
    return found
