"""Rows of a privacy report, from what was measured at each position of each window."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headscan.leaks.exact_attack import ExactAttack
from headscan.leaks.plan import AuditPlan
from headscan.leaks.result import LeakRow
from headscan.leaks.token_bits import PositionLeak
from headscan.run import Interval
from headscan.statistics.uncertainty import student, wilson


def windows_interval(windows: Sequence[Sequence[float]]) -> Interval | None:
    """Return the 95 % interval of a mean of equally long windows, each a cluster.

    It is Student's t of their means; None of one window.
    """
    if len(windows) <= 1:
        return None
    return student([float(np.mean(window)) for window in windows])


def share_interval(share: float, count: int) -> Interval:
    """Return the 95 % score interval of a share of so many."""
    low, high = wilson(round(share * count), count)
    return low, high


@dataclass(frozen=True, kw_only=True)
class BitsAt:
    """Measurements at one site and noise, behind one defence.

    Attributes:
        site, defence: their names.
        noise: in rms of the release's centred coordinates; sigma: in the release's own unit.
        windows: the leaks at the positions of each window.
        draws: Monte Carlo draws a position.
        losses: nats a token that the model loses in each window; None where it was not run.
    """

    site: str
    defence: str
    noise: float
    sigma: float
    windows: list[list[PositionLeak]]
    draws: int
    losses: list[float] | None = None


def bits_row(measured: BitsAt) -> LeakRow:
    """Return the row of one site and noise."""
    leaks = [leak for window in measured.windows for leak in window]
    count = len(leaks)
    lower = windows_interval([[leak.lower for leak in window] for window in measured.windows])
    upper = windows_interval([[leak.upper for leak in window] for window in measured.windows])
    ceiling = windows_interval([[leak.ceiling for leak in window] for window in measured.windows])
    truths = [leak.truth for leak in leaks if leak.truth is not None]
    complete = len(truths) == count
    error = sum(leak.variance or 0.0 for leak in leaks) ** 0.5 / count
    right = sum(leak.right for leak in leaks) / count
    accuracy = _mean([leak.accuracy for leak in leaks])
    trials = count * (measured.draws if measured.noise else 1)
    ceiling_interval = None
    if ceiling is not None:
        ceiling_interval = (max(0.0, ceiling[0]), min(1.0, ceiling[1]))
    row = LeakRow(
        site=measured.site,
        defence=measured.defence,
        noise=measured.noise,
        sigma=measured.sigma or None,
        tokens=count,
        prior_bits=_mean([leak.entropy for leak in leaks]),
        bits_lower=_mean([leak.lower for leak in leaks]),
        bits_upper=_mean([leak.upper for leak in leaks]),
        lower_by=_commonest([leak.lower_by for leak in leaks]),
        upper_by=_commonest([leak.upper_by for leak in leaks]),
        bits_interval=(max(0.0, lower[0]), upper[1]) if lower and upper else None,
        bits_truth=sum(truths) / count if complete else None,
        bits_truth_error=error if complete else None,
        worst_lower=max(leak.lower for leak in leaks),
        worst_upper=max(leak.upper for leak in leaks),
        windows=len(measured.windows),
        kept=_mean([leak.mass for leak in leaks]),
        candidates=max(leak.candidates for leak in leaks),
        guess_accuracy=_mean([leak.likeliest for leak in leaks]),
        attack="posterior",
        attack_accuracy=accuracy,
        attack_accuracy_interval=share_interval(accuracy, trials),
        attack_accuracy_upper=_mean([leak.ceiling for leak in leaks]),
        attack_accuracy_upper_interval=ceiling_interval,
        text_accuracy=right,
        text_accuracy_interval=share_interval(right, count),
    )
    return with_losses(row, measured.losses)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _commonest(names: list[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def exact_row(
    site: str,
    defence: str,
    attack: ExactAttack,
    plan: AuditPlan,
    bits: LeakRow | None,
    losses: list[float] | None,
) -> LeakRow:
    """Return the row without noise: of the exact search.

    `bits` is the row of the bits that rounding leaves, where there are any.
    """
    count = plan.windows.numel()
    right = _mean(attack.right)
    interval = share_interval(right, count)
    row = LeakRow(
        site=site,
        defence=defence,
        noise=0.0,
        sigma=None,
        tokens=count,
        prior_bits=None,
        bits_lower=None,
        bits_upper=None,
        candidates=plan.candidates,
        attack="exact",
        attack_accuracy=right,
        attack_accuracy_interval=interval,
        attack_accuracy_upper=None,
        text_accuracy=right,
        text_accuracy_interval=interval,
        verdict=attack.verdict,
        certificate=attack.certificate,
        evaluations_per_token=attack.evaluations,
        seconds_per_token=attack.seconds,
    )
    row = with_losses(row, losses)
    if bits is None:
        return row
    return replace(
        row,
        prior_bits=bits.prior_bits,
        bits_lower=bits.bits_lower,
        bits_upper=bits.bits_upper,
        lower_by=bits.lower_by,
        upper_by=bits.upper_by,
        bits_interval=bits.bits_interval,
        bits_truth=bits.bits_truth,
        bits_truth_error=bits.bits_truth_error,
        kept=bits.kept,
        worst_lower=bits.worst_lower,
        worst_upper=bits.worst_upper,
        windows=bits.windows,
    )


def with_losses(row: LeakRow, losses: list[float] | None) -> LeakRow:
    """Return a row with what the model loses in each window."""
    if losses is None:
        return row
    interval = windows_interval([[loss] for loss in losses])
    return replace(row, loss_added=_mean(losses), loss_added_interval=interval)


def without_bits(row: LeakRow, attack: str) -> LeakRow:
    """Return a row without bits, whose attack is judged by the text's own tokens."""
    return replace(
        row,
        bits_lower=None,
        bits_upper=None,
        bits_truth=None,
        bits_truth_error=None,
        bits_interval=None,
        lower_by=None,
        upper_by=None,
        worst_lower=None,
        worst_upper=None,
        attack=attack,
        attack_accuracy=row.text_accuracy,
        attack_accuracy_interval=row.text_accuracy_interval,
        attack_accuracy_upper=None,
        attack_accuracy_upper_interval=None,
    )
