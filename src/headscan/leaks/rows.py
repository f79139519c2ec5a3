"""Rows of a privacy report, from what was found at each position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headscan.geometry.interval import student, wilson
from headscan.leaks.budget import AuditPlan
from headscan.leaks.channel import Channel
from headscan.leaks.exactness import ExactAttack
from headscan.leaks.positions import PositionLeak
from headscan.leaks.result import LeakRow, OthersBits
from headscan.run import Interval

__all__ = ["bits_row", "clustered", "exact_row", "others_bits", "share_interval"]

OF_BITS = (
    "prior_bits", "bits_lower", "bits_upper", "lower_by", "upper_by", "bits_interval", "bits_truth", "bits_truth_error", "kept",
    "others",
)  # fmt: skip
"""What a row without noise takes from the bits that rounding leaves."""


def others_bits(found: list[PositionLeak]) -> OthersBits | None:
    """The means of what was found with all other tokens known; None where nothing was."""
    if not found:
        return None
    truths = [(one.truth, one.variance) for one in found if one.truth is not None and one.variance is not None]

    def mean(field: str) -> float:
        return float(np.mean([getattr(one, field) for one in found]))

    return OthersBits(
        tokens=len(found), prior_bits=mean("entropy"), bits_lower=mean("lower"), bits_upper=mean("upper"),
        bits_truth=sum(bits for bits, _ in truths) / len(found),
        bits_truth_error=sum(variance for _, variance in truths) ** 0.5 / len(found),
    )  # fmt: skip


def bits_row(
    site: str, defence: str, level: float, sigma: float, parts: list[list[PositionLeak]], draws: int, losses: list[float] | None,
    others: OthersBits | None = None,
) -> LeakRow:  # fmt: skip
    """The row of one site and noise, from what was found at each position of each window."""
    every = [one for part in parts for one in part]
    count = len(every)

    def mean(field: str) -> float:
        return float(np.mean([getattr(one, field) for one in every]))

    low = clustered([[one.lower for one in part] for part in parts])
    high = clustered([[one.upper for one in part] for part in parts])
    truths = [(one.truth, one.variance) for one in every if one.truth is not None and one.variance is not None]
    whole = len(truths) == count
    right = sum(one.right for one in every) / count
    return LeakRow(
        site=site, defence=defence, noise=level, sigma=sigma or None, tokens=count, prior_bits=mean("entropy"),
        bits_lower=mean("lower"), bits_upper=mean("upper"),
        lower_by=Counter(one.lower_by for one in every).most_common(1)[0][0],
        upper_by=Counter(one.upper_by for one in every).most_common(1)[0][0],
        bits_interval=(max(0.0, low[0]), high[1]) if low and high else None,
        bits_truth=sum(bits for bits, _ in truths) / count if whole else None,
        bits_truth_error=sum(variance for _, variance in truths) ** 0.5 / count if whole else None,
        kept=mean("kept"), candidates=max(one.candidates for one in every), guess_accuracy=mean("likeliest"),
        attack="posterior", attack_accuracy=mean("accuracy"),
        attack_accuracy_interval=share_interval(mean("accuracy"), count * (draws if level else 1)),
        attack_accuracy_upper=mean("ceiling"), text_accuracy=right, text_accuracy_interval=share_interval(right, count),
        others=others, **_lost(losses),
    )  # fmt: skip


def exact_row(
    channel: Channel, name: str, attack: ExactAttack, plan: AuditPlan, bits: LeakRow | None, losses: list[float] | None
) -> LeakRow:
    """The row without noise: of the search, with the bits that rounding leaves where there are any."""
    right = float(np.mean(attack.right))
    inside = share_interval(right, plan.windows.numel())
    row = LeakRow(
        site=name, defence=channel.defence, noise=0.0, sigma=None, tokens=plan.windows.numel(), prior_bits=None,
        bits_lower=None, bits_upper=None, candidates=plan.candidates, attack="exact", attack_accuracy=right,
        attack_accuracy_interval=inside, attack_accuracy_upper=None, text_accuracy=right, text_accuracy_interval=inside,
        verdict=attack.verdict, certificate=attack.certificate, evaluations_per_token=attack.evaluations,
        seconds_per_token=attack.seconds, **_lost(losses),
    )  # fmt: skip
    return row if bits is None else replace(row, **{field: getattr(bits, field) for field in OF_BITS})


def _lost(windows: list[float] | None) -> dict[str, Any]:
    """What the model loses in the mean of the windows, with its interval; None where that was not run."""
    if windows is None:
        return {"loss_added": None}
    return {"loss_added": float(np.mean(windows)), "loss_added_interval": clustered([[one] for one in windows])}


def clustered(parts: Sequence[Sequence[float]]) -> Interval | None:
    """The 95 % interval of a mean of equally long windows, each a cluster (Student's t of their means); None of one window."""
    return student([float(np.mean(part)) for part in parts]) if len(parts) > 1 else None


def share_interval(share: float, count: int) -> Interval:
    """The 95 % score interval of a share of so many."""
    low, high = wilson(round(share * count), count)
    return low, high
