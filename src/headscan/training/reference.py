"""What healthy runs show as they train: bands of own runs of the small recipes, written by `scripts/reference_curves.py`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from headscan.run import ModelRecord

if TYPE_CHECKING:
    from headscan.training.monitor.readings import Reading
    from headscan.training.objective import CurvePoint, GeometrySnapshot

Curves = dict[str, list[tuple[int, float]]]
"""Steps and values by name, WHERE/WHAT or "loss"."""
OF_STEPS = {"qk_logit_max": ("max", "entropy"), "branch_ratio": ("attention_ratio", "mlp_ratio"), "gradient_share": ("share",)}
KEPT = 40  # readings of a family that stay in a result
FACTORS = {"depth": 1.0, "width": 1.5, "vocabulary": 2.0, "tokens_a_step": 2.0, "planned_steps": 2.0}
"""Runs are compared whose numbers differ by no more than these factors."""


@dataclass(frozen=True, kw_only=True)
class ReferenceRuns:
    """Healthy runs that differ in seed, rate and text, as `about` says. bands: by the curve's name the tokens seen, and between
    which numbers 95 % of further such runs are expected to be there, one number at a time."""

    about: str
    model_class: str
    depth: int
    width: int
    vocabulary: int
    tokens_a_step: int
    planned_steps: int  # over which the rate warms up and falls
    runs: int
    bands: dict[str, list[tuple[float, float, float]]]

    def band(self, name: str, tokens: Sequence[float]) -> list[tuple[float, float] | None]:
        """The band after so many tokens, linear in their logarithm between readings; None beyond the last, or without one."""
        seen, low, high = np.array(self.bands.get(name) or [(math.inf, 0.0, 0.0)]).T
        ends = [np.interp(np.log1p(tokens), np.log1p(seen), end).tolist() for end in (low, high)]
        return [(a, b) if seen[0] <= count <= seen[-1] else None for count, a, b in zip(tokens, *ends, strict=True)]


@cache
def reference_runs() -> tuple[ReferenceRuns, ...]:
    """All that there are."""
    stored = json.loads(files("headscan.training").joinpath("reference.json").read_text(encoding="utf-8"))
    return tuple(ReferenceRuns(**each) for each in stored["runs"])


def runs_like(model: ModelRecord, tokens: float | None = None, planned: int | None = None) -> ReferenceRuns | str:
    """The healthy runs of its class beside which a model can stand that trains on so many tokens a step, for as many steps as
    were planned; else why not."""
    why = f"there are none of {model.model_class or 'its class'}"
    for one in (one for one in reference_runs() if one.model_class == model.model_class):
        own = {"tokens_a_step": tokens or one.tokens_a_step, "planned_steps": planned or one.planned_steps}
        pairs = {name: (own.get(name) or getattr(model, name, None) or 0, getattr(one, name)) for name in FACTORS}
        far = [name for name, (value, theirs) in pairs.items() if not theirs / FACTORS[name] <= value <= theirs * FACTORS[name]]
        if not far:
            return one
        why = ", ".join(f"{name.replace('_', ' ')} {pairs[name][0]:,.0f} (theirs: {pairs[name][1]:,})" for name in far)
    return why


def curves_of(scan: Iterable[GeometrySnapshot], readings: Iterable[Reading] = (), curve: Sequence[CurvePoint] = ()) -> Curves:
    """The curves of a run; a logged loss, a mean over the steps since the last, stands at their middle."""
    rows, found = [(each.step, row) for each in scan for row in each.sites], Curves()
    points = [(f"{row.text('site')}/{name}", step, row.number(name)) for step, row in rows for name in row if name != "site"]
    points += [(name, one.step, value) for one in kept(readings) for name, value in one.values.items()]
    points += [("loss", (a + b.step) // 2, b.loss) for a, b in zip([0, *(one.step for one in curve)], curve, strict=False)]
    for name, step, value in points:
        if value is not None and not name.endswith("_without_first"):
            found.setdefault(name, []).append((step, value))
    return found


def kept(readings: Iterable[Reading]) -> list[Reading]:
    """What of the readings stays in a result: the numbers that are compared, of some steps, early ones densest."""
    found = []
    for family, names in OF_STEPS.items():
        own = [one for one in readings if one.family == family]
        for k in sorted({round((len(own) - 1) * (k / (KEPT - 1)) ** 2) for k in range(KEPT)}) if own else ():
            values = {name: value for name, value in own[k].values.items() if name.endswith(names) and math.isfinite(value)}
            found.append(replace(own[k], values=values))
    return found
