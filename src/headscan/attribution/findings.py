"""What an attribution's numbers say in words."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.attribution.agreement import Agreement
from headscan.attribution.result import MapRecord
from headscan.run import Finding

__all__ = ["findings"]

GAP, APART = 0.01, 0.5
"""From these on a gap of completeness, and below it a rank correlation, is spoken of: conventions, no tests."""


def findings(maps: Sequence[MapRecord], agreement: Sequence[Agreement], judged: str) -> list[Finding]:
    """Codes: FAITHFUL (at 95 %: `Faithfulness.gain`) or UNFAITHFUL (each map that was checked, against random orders),
    INCOMPLETE, DISAGREE."""
    found = []
    for one in maps:
        if (trust := one.faithfulness) is not None:
            own, null = trust.deletion.area, trust.random.deletion
            better = trust.gain_interval is not None and trust.gain_interval[0] > 0
            text = (
                f"The map by {one.method} says {'more' if better else 'no more, as far as was measured,'} than chance: replacing "
                f"what it ranks highest leaves a mean {judged} of {own:.2g}, random orders {null:.2g}."
            )
            code = "FAITHFUL" if better else "UNFAITHFUL"
            found.append(Finding(code=code, level="good" if better else "alert", sentence=text, value=own - null))
        if one.completeness is not None and (gap := max(one.completeness.relative_gap)) > GAP:
            text = f"The scores of {one.method} miss the sum that they must have by {100 * gap:.2g} %."
            found.append(Finding(code="INCOMPLETE", level="alert", sentence=text, value=gap))
    ranked = [(one.spearman, one.methods) for one in agreement if one.spearman is not None]
    if ranked and min(ranked)[0] < APART:
        least, (a, b) = min(ranked)
        text = f"{a} and {b} rank the tokens differently (rank correlation {least:.2f}): ask leave-one-out."
        found.append(Finding(code="DISAGREE", level="notice", sentence=text, value=least))
    return found
