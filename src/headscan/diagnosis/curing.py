"""Remedies tried on this very model: do passages of the text find the passage that follows them?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headscan.diagnosis.evidence import TriedRemedies
from headscan.diagnosis.plan import PASSAGE, ExaminationPlan
from headscan.diagnosis.settings import CheckingUp
from headscan.geometry.sentences import mean_states
from headscan.model import Lens
from headscan.remedies.run import remedy
from headscan.run import BadInput, Run

__all__ = ["TRIED", "curing"]

TRIED = "centre,standardise,all-but-the-top,whiten-softly,without-rogue"
LEAST = 32


def curing(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run
) -> tuple[TriedRemedies | None, list[str]]:
    """Remedies fitted on half of the passages and judged by the others; and why there are none."""
    passages = [list(ids[k : k + PASSAGE]) for k in range(0, len(ids) - PASSAGE + 1, PASSAGE)][: plan.passages]
    pairs = len(passages) // 2
    if not plan.passages:
        return None, []
    if pairs < LEAST:
        return None, [f"No remedy was tried: the text has {pairs} pairs of passages, fewer than {LEAST}."]
    site = lens.default_sites[-1]
    vectors = mean_states(lens, passages[: 2 * pairs], [site])[site]
    if not np.isfinite(vectors).all():
        return None, ["No remedy was tried: the vectors are not finite."]
    try:
        found = remedy(
            vectors[1::2], partners=vectors[::2], remedies=TRIED, held_out=pairs, export="none", seed=settings.seed,
            progress=run.progress,
        )  # fmt: skip
    except BadInput as error:
        return None, [f"No remedy was tried: {error}"]
    return TriedRemedies(
        site=site, length=PASSAGE, fitted=found.fitted, queries=int(found.rows[0].number("queries") or 0), rows=found.rows
    ), []  # fmt: skip
