"""Remedies tried on this very model: do passages of the text find the passage that follows them?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headscan.diagnosis.evidence import TriedRemedies
from headscan.diagnosis.plan import BUDGETS, CURE, PASSAGE, Deadline, ExaminationPlan, OutOfTime
from headscan.diagnosis.settings import CheckingUp
from headscan.geometry.sentences import mean_states
from headscan.model import Lens
from headscan.remedies.run import remedy
from headscan.run import BadInput, Run

__all__ = ["TRIED", "curing"]

TRIED = "centre,standardise,all-but-the-top,whiten-softly,without-rogue"
LEAST, BATCH = 32, 64


def curing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[TriedRemedies | None, list[str]]:
    """Remedies fitted on half of the passages and judged by the others; and why there are none."""
    passages = [list(ids[k : k + PASSAGE]) for k in range(0, len(ids) - PASSAGE + 1, PASSAGE)][: plan.passages]
    pairs = len(passages) // 2
    if not plan.passages:
        return None, []
    if pairs < LEAST:
        return None, [f"No remedy was tried: the text has {pairs} pairs of passages, fewer than {LEAST}."]
    site = lens.default_sites[-1]
    progress = until.within(CURE * BUDGETS[settings.budget]).kept(run.progress)
    try:
        parts = list[npt.NDArray[np.float64]]()
        for start in range(0, 2 * pairs, BATCH):
            progress("passages", start, 2 * pairs, "passages")
            parts.append(mean_states(lens, passages[start : min(start + BATCH, 2 * pairs)], [site])[site])
        vectors = np.concatenate(parts)
    except OutOfTime:
        return None, [f"No remedy was tried: there was no time in {settings.budget}."]
    if not np.isfinite(vectors).all():
        return None, ["No remedy was tried: the vectors are not finite."]
    try:
        found = remedy(
            vectors[1::2], partners=vectors[::2], remedies=TRIED, held_out=pairs, export="none", seed=settings.seed,
            progress=progress,
        )  # fmt: skip
    except OutOfTime:
        return None, [f"No remedy was tried: there was no time in {settings.budget}."]
    except BadInput as error:
        return None, [f"No remedy was tried: {error}"]
    return TriedRemedies(
        site=site, length=PASSAGE, fitted=found.fitted, queries=int(found.rows[0].number("queries") or 0), rows=found.rows
    ), []  # fmt: skip
