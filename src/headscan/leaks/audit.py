"""The audit of a release of every position: bits between bounds, attacks, exact inversion where
there is no noise, utility.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.assess import assess
from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.methods import Exact, Problem
from headscan.inversion.reconstruction import FACTOR, VERDICTS, accepted, noise_floor, relative
from headscan.leaks.mechanisms import Exposure, protected, read_format, same, working
from headscan.leaks.positions import PositionLeak, Prior, position_leaks, prior_of
from headscan.leaks.result import LeakRow
from headscan.leaks.run import AuditPlan, Leak, plan_of, protections
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.mapped import Mapped
from headscan.run import BadInput, Given, Interval, Progress, Run
from headscan.statistics.uncertainty import student, wilson
from headscan.text.prompts import Prompt

# ---- Releases without noise: exact inversion, and what its certificate says.

# The relative residual up to which the search takes a release for equal at once: what one code of a
# coarse format turns over is more than that, and a neighbour might pass for it; then the tokens
# predicted nearest are run, too, and it must stand alone.
FINE = 2e-3


@dataclass(frozen=True, kw_only=True)
class ExactAttack:
    """What exact inversion recovers of a release."""

    right: list[float]  # share of tokens recovered, of each window
    verdict: str  # the worst of the windows
    certificate: str
    evaluations: float  # a token
    seconds: float  # processor time a token


@torch.no_grad()
def blurred(cut: SlicedModel, ids: Int[Tensor, "B T"], seed: int = 0) -> float:
    """The relative residual that rounding in the model's own arithmetic may cause at a slice, after
    its map.

    A map that rounds makes of a difference in the last bit one of a whole step, where a number lies
    at the border. Tried on these tokens: 16 disturbances of the noise that is measured under the
    map.
    """
    if not isinstance(cut, Mapped):
        return noise_floor(cut)
    states = cut.under.states(ids.to(cut.lens.device)).float()
    size = noise_floor(cut.under) / states.shape[-1] ** 0.5 * states.norm(dim=-1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    clean = cut.apply(states)
    worst = 0.0
    for _ in range(16):
        moved = states + size * torch.randn(states.shape, generator=generator).to(states)
        worst = max(worst, float(relative(cut.apply(moved), clean).max()))
    return max(worst, noise_floor(cut))


def exact_attack(
    cut: SlicedModel,
    windows: Int[Tensor, "B T"],
    *,
    budget: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExactAttack:
    """Invert a release of each window from left to right; candidates pass the same map as the
    release did.

    The search is given nothing of the true tokens but their release. `budget` is the candidates at
    one position; None: the vocabulary. Raises BadInput where the slice is not causal.
    """
    refuse_unordered(cut)
    with torch.no_grad():
        targets = list(cut.run(windows).float())
    lengths = [windows.shape[1]] * len(windows)
    mapped = isinstance(cut, Mapped)
    tolerance = FACTOR * blurred(cut, windows, seed)
    start = time.process_time()
    problem = Problem(
        cut=cut,
        targets=targets,
        lengths=lengths,
        known=[{} for _ in lengths],
        seed=seed,
        progress=progress,
        tolerance=max(accepted(cut), tolerance) if mapped else None,
        certain=max(accepted(cut), FINE) if mapped else None,
    )
    # With few candidates wrong prefixes are not taken back: each would cost as much again.
    found = Exact(budget=budget, backtracks=Exact.backtracks if budget is None else 0).solve(
        problem
    )
    seconds = time.process_time() - start
    judged = replace(problem, progress=None)
    entries = [
        assess(judged, number, Prompt.of_ids(cut.lens.tokenizer, row.tolist()), one)
        for number, (row, one) in enumerate(zip(windows, found, strict=True))
    ]
    worst = max(entries, key=lambda one: VERDICTS.index(one.verdict))
    return ExactAttack(
        right=[one.token_accuracy or 0.0 for one in entries],
        verdict=worst.verdict,
        certificate=worst.certificate.type,
        evaluations=sum(one.evaluations for one in found) / windows.numel(),
        seconds=seconds / windows.numel(),
    )


# What a row without noise takes from the bits that rounding leaves.
OF_BITS = (
    "prior_bits",
    "bits_lower",
    "bits_upper",
    "lower_by",
    "upper_by",
    "bits_interval",
    "bits_truth",
    "bits_truth_error",
    "kept",
    "worst_lower",
    "worst_upper",
    "windows",
)


def bits_row(
    site: str,
    defence: str,
    level: float,
    sigma: float,
    parts: list[list[PositionLeak]],
    draws: int,
    losses: list[float] | None,
) -> LeakRow:
    """The row of one site and noise, from what was found at each position of each window."""
    every = [one for part in parts for one in part]
    count = len(every)

    def mean(field: str) -> float:
        return float(np.mean([getattr(one, field) for one in every]))

    low = clustered([[one.lower for one in part] for part in parts])
    high = clustered([[one.upper for one in part] for part in parts])
    above = clustered([[one.ceiling for one in part] for part in parts])
    truths = [one.truth for one in every if one.truth is not None]
    whole = len(truths) == count
    error = sum(one.variance or 0.0 for one in every) ** 0.5 / count
    right = sum(one.right for one in every) / count
    return LeakRow(
        site=site,
        defence=defence,
        noise=level,
        sigma=sigma or None,
        tokens=count,
        prior_bits=mean("entropy"),
        bits_lower=mean("lower"),
        bits_upper=mean("upper"),
        lower_by=Counter(one.lower_by for one in every).most_common(1)[0][0],
        upper_by=Counter(one.upper_by for one in every).most_common(1)[0][0],
        bits_interval=(max(0.0, low[0]), high[1]) if low and high else None,
        bits_truth=sum(truths) / count if whole else None,
        bits_truth_error=error if whole else None,
        worst_lower=max(one.lower for one in every),
        worst_upper=max(one.upper for one in every),
        windows=len(parts),
        kept=mean("kept"),
        candidates=max(one.candidates for one in every),
        guess_accuracy=mean("likeliest"),
        attack="posterior",
        attack_accuracy=mean("accuracy"),
        attack_accuracy_interval=share_interval(mean("accuracy"), count * (draws if level else 1)),
        attack_accuracy_upper=mean("ceiling"),
        text_accuracy=right,
        attack_accuracy_upper_interval=above and (max(0.0, above[0]), min(1.0, above[1])),
        text_accuracy_interval=share_interval(right, count),
        **_lost(losses),
    )


def exact_row(
    exposure: Exposure,
    name: str,
    attack: ExactAttack,
    plan: AuditPlan,
    bits: LeakRow | None,
    losses: list[float] | None,
) -> LeakRow:
    """The row without noise: of the search, with the bits that rounding leaves where there are any."""
    right = float(np.mean(attack.right))
    inside = share_interval(right, plan.windows.numel())
    row = LeakRow(
        site=name,
        defence=exposure.defence,
        noise=0.0,
        sigma=None,
        tokens=plan.windows.numel(),
        prior_bits=None,
        bits_lower=None,
        bits_upper=None,
        candidates=plan.candidates,
        attack="exact",
        attack_accuracy=right,
        attack_accuracy_interval=inside,
        attack_accuracy_upper=None,
        text_accuracy=right,
        text_accuracy_interval=inside,
        verdict=attack.verdict,
        certificate=attack.certificate,
        evaluations_per_token=attack.evaluations,
        seconds_per_token=attack.seconds,
        **_lost(losses),
    )
    return (
        row if bits is None else replace(row, **{field: getattr(bits, field) for field in OF_BITS})
    )


def _lost(windows: list[float] | None) -> dict[str, Any]:
    if windows is None:
        return {"loss_added": None}
    return {
        "loss_added": float(np.mean(windows)),
        "loss_added_interval": clustered([[one] for one in windows]),
    }


def clustered(parts: Sequence[Sequence[float]]) -> Interval | None:
    """The 95 % interval of a mean of equally long windows, each a cluster (Student's t of their
    means); None of one window.
    """
    return student([float(np.mean(part)) for part in parts]) if len(parts) > 1 else None


def share_interval(share: float, count: int) -> Interval:
    """The 95 % score interval of a share of so many."""
    low, high = wilson(round(share * count), count)
    return low, high


# ---- All rows of a release.


def audit(exposure: Exposure, texts: list[list[int]], asked: Given, run: Run) -> Leak:
    """All rows of a release, one a site, defence and noise. Raises BadInput for a model that is not
    causal, a text that is too short, a prior that the model does not give.
    """
    lens = exposure.together.lens
    if not exposure.together.causal:
        raise BadInput(
            "This release is read from left to right and needs a causal model: choose --release "
            "embedding --prior uniform."
        )
    plan = plan_of(exposure.together, texts, asked, run, sites=len(exposure.names))
    form = read_format(asked["format"]) if asked["format"] else None
    prior = cache(lambda: prior_of(asked["prior"], lens, texts))
    rows = list[LeakRow]()
    for number, defence in enumerate(protections(asked)):
        behind = protected(exposure, defence, form, plan.windows, asked["seed"])
        rows += _Audit(behind, plan, prior, asked, run, f"{number}-" if number else "").rows()
    return Leak(rows=rows, notes=plan.notes)


class _Audit:
    """The audit of one release behind one defence; `mark` begins the names of its stored parts."""

    def __init__(
        self,
        exposure: Exposure,
        plan: AuditPlan,
        prior: Callable[[], Prior],
        asked: Given,
        run: Run,
        mark: str,
    ) -> None:
        self.exposure = exposure
        self.plan = plan
        self.prior = prior
        self.asked = asked
        self.run = run
        self.mark = mark
        self.levels = tuple(dict.fromkeys(asked["noise"]))
        self.scales = scales_of(exposure, plan.windows)
        self.counted = tuple(level for level in self.levels if level > 0 or exposure.rounded)

    def rows(self) -> list[LeakRow]:
        losses = self._losses()
        rows = self._bits(losses) if self.counted else {}
        for number, name in enumerate(self.exposure.names if 0.0 in self.levels else ()):
            clean = (name, 0.0)
            plan = self.plan
            cut = self.exposure.alone(name)
            seed = self.asked["seed"]
            told = self.run.progress
            work = partial(
                exact_attack, cut, plan.windows, budget=plan.budget, seed=seed, progress=told
            )
            attack = self.run.unit(f"{self.mark}exact-{name}", ExactAttack, work)
            rows[clean] = exact_row(
                self.exposure, name, attack, plan, rows.get(clean), losses.get(clean)
            )
            self.run.progress("exact inversion", number + 1, len(self.exposure.names), "sites")
        return [rows[name, level] for name in self.exposure.names for level in self.levels]

    def _bits(
        self, losses: dict[tuple[str, float], list[float]]
    ) -> dict[tuple[str, float], LeakRow]:
        exposure = self.exposure
        windows = self.plan.windows
        draws = self.asked["draws"]
        asked = partial(
            position_leaks,
            exposure.together,
            widths=exposure.widths,
            prior=self.prior(),
            candidates=self.plan.candidates,
            sigmas=[[level * scale for level in self.counted] for scale in self.scales],
            draws=draws,
            seed=self.asked["seed"],
        )
        leaks = list[list[PositionLeak]]()
        for number, window in enumerate(windows):
            work = partial(asked, window)
            leaks.append(self.run.unit(f"{self.mark}window-{number}", list[PositionLeak], work))
            self.run.progress(
                "bits", (number + 1) * (len(window) - 1), windows.numel() - len(windows), "tokens"
            )
        rows = {}
        for site, name in enumerate(exposure.names):
            for place, level in enumerate(self.counted):
                parts = [
                    [leak for leak in part if (leak.site, leak.level) == (site, place)]
                    for part in leaks
                ]
                sigma = level * self.scales[site]
                lost = losses.get((name, level))
                rows[name, level] = bits_row(
                    name, exposure.defence, level, sigma, parts, draws, lost
                )
        return rows

    def _losses(self) -> dict[tuple[str, float], list[float]]:
        """Nats a token that the model loses, of each site and noise in each window."""
        exposure = self.exposure
        windows = self.plan.windows
        if exposure.loss is None or not exposure.together.lens.traits.predicts:
            return {}
        clean = exposure.loss(exposure.names[0], windows, same)
        lost: dict[tuple[str, float], list[float]] = {}
        for name, scale in zip(exposure.names, self.scales, strict=True):
            for level in self.levels:
                noise = level * scale, torch.Generator().manual_seed(self.asked["seed"] + 2)
                change = (
                    working(same, same, *noise)
                    if exposure.working is None
                    else exposure.working(name, *noise)
                )
                untouched = level == 0 and exposure.working is None
                lost[name, level] = (
                    (clean if untouched else exposure.loss(name, windows, change)) - clean
                ).tolist()
        return lost


@torch.no_grad()
def scales_of(exposure: Exposure, windows: Int[Tensor, "B T"]) -> list[float]:
    """The rms of each site's centred coordinates, over all positions of the windows but the first
    (often a sink).
    """
    seen = (
        exposure.together.run(windows.to(exposure.together.lens.device))[:, 1:]
        .flatten(0, 1)
        .double()
    )
    spreads = [
        part.var(0, unbiased=False).mean().sqrt() for part in seen.split(list(exposure.widths), 1)
    ]
    for name, spread in zip(exposure.names, spreads, strict=True):
        if not (bool(spread.isfinite()) and float(spread) > 0):
            raise BadInput(
                f"What {name} releases is no number, or the same at every position: noise has no "
                "unit there."
            )
    return [float(spread) for spread in spreads]
