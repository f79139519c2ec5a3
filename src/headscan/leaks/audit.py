"""The audit of a release of every position: bits between bounds, attacks, exact inversion where there is no noise, utility."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.leaks.mechanism import Exposure, protected, read_format, same, working
from headscan.leaks.positions import Asked, PositionLeak, Prior, position_leaks, prior_of
from headscan.leaks.result import LeakRow
from headscan.leaks.rows import ExactAttack, bits_row, exact_attack, exact_row
from headscan.leaks.run import Auditing, AuditPlan, Leak, plan_of
from headscan.run import BadInput, Run


def audit(exposure: Exposure, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
    """All rows of a release, one a site, defence and noise.

    Raises BadInput for a model that is not causal, a text that is too short, a prior that the model does not give.
    """
    lens = exposure.together.lens
    if not exposure.together.causal:
        raise BadInput("This release is read from left to right and needs a causal model: choose --release embedding.")
    plan = plan_of(exposure.together, texts, settings, sites=len(exposure.names))
    for note in plan.notes:
        run.announce(note)
    form = read_format(settings.format) if settings.format else None
    prior = cache(lambda: prior_of(settings.prior, lens, texts))
    rows = list[LeakRow]()
    for number, defence in enumerate(settings.protections()):
        behind = protected(exposure, defence, form, plan.windows, settings.seed)
        rows += _Audit(behind, plan, prior, settings, run, f"{number}-" if number else "").rows()
    return Leak(rows=rows, notes=list(plan.notes))


class _Audit:
    """The audit of one release behind one defence; `mark` begins the names of its stored parts."""

    def __init__(
        self, exposure: Exposure, plan: AuditPlan, prior: Callable[[], Prior], settings: Auditing, run: Run, mark: str
    ) -> None:
        self.exposure, self.plan, self.prior, self.settings = exposure, plan, prior, settings
        self.run, self.mark = run, mark
        self.levels = tuple(dict.fromkeys(settings.noise))
        self.scales = scales_of(exposure, plan.windows)
        self.counted = tuple(level for level in self.levels if level > 0 or exposure.rounded)

    def rows(self) -> list[LeakRow]:
        losses = self._losses()
        rows = self._bits(losses) if self.counted else {}
        for number, name in enumerate(self.exposure.names if 0.0 in self.levels else ()):
            work, clean = partial(self._exact, name), (name, 0.0)
            attack = self.run.unit(f"{self.mark}exact-{name}", ExactAttack, work)
            rows[clean] = exact_row(self.exposure, name, attack, self.plan, rows.get(clean), losses.get(clean))
            self.run.progress("exact inversion", number + 1, len(self.exposure.names), "sites")
        return [rows[name, level] for name in self.exposure.names for level in self.levels]

    def _exact(self, name: str) -> ExactAttack:
        plan, cut = self.plan, self.exposure.alone(name)
        return exact_attack(cut, plan.windows, budget=plan.budget, seed=self.settings.seed, progress=self.run.progress)

    def _bits(self, losses: dict[tuple[str, float], list[float]]) -> dict[tuple[str, float], LeakRow]:
        exposure, settings, windows = self.exposure, self.settings, self.plan.windows
        sigmas = tuple(tuple(level * scale for level in self.counted) for scale in self.scales)
        asked = Asked(exposure.widths, sigmas, self.prior(), self.plan.candidates, settings.draws, settings.seed)
        leaks = list[list[PositionLeak]]()
        for number, window in enumerate(windows):
            work = partial(position_leaks, exposure.together, window, asked)
            leaks.append(self.run.unit(f"{self.mark}window-{number}", list[PositionLeak], work))
            self.run.progress("bits", (number + 1) * (len(window) - 1), windows.numel() - len(windows), "tokens")
        rows = {}
        for site, name in enumerate(exposure.names):
            for place, level in enumerate(self.counted):
                parts = [[leak for leak in part if (leak.site, leak.level) == (site, place)] for part in leaks]
                rows[name, level] = bits_row(
                    name, exposure.defence, level, level * self.scales[site], parts, settings.draws, losses.get((name, level))
                )  # fmt: skip
        return rows

    def _losses(self) -> dict[tuple[str, float], list[float]]:
        """Nats a token that the model loses, of each site and noise in each window."""
        exposure, windows = self.exposure, self.plan.windows
        if exposure.loss is None or not exposure.together.lens.traits.predicts:
            return {}
        clean = exposure.loss(exposure.names[0], windows, same)
        lost: dict[tuple[str, float], list[float]] = {}
        for name, scale in zip(exposure.names, self.scales, strict=True):
            for level in self.levels:
                noise = level * scale, torch.Generator().manual_seed(self.settings.seed + 2)
                change = working(same, same, *noise) if exposure.working is None else exposure.working(name, *noise)
                untouched = level == 0 and exposure.working is None
                lost[name, level] = ((clean if untouched else exposure.loss(name, windows, change)) - clean).tolist()
        return lost


@torch.no_grad()
def scales_of(exposure: Exposure, windows: Int[Tensor, "B T"]) -> list[float]:
    """The rms of each site's centred coordinates, over all positions of the windows but the first (often a sink)."""
    seen = exposure.together.run(windows.to(exposure.together.lens.device))[:, 1:].flatten(0, 1).double()
    spreads = [part.var(0, unbiased=False).mean().sqrt() for part in seen.split(list(exposure.widths), 1)]
    for name, spread in zip(exposure.names, spreads, strict=True):
        if not (bool(spread.isfinite()) and float(spread) > 0):
            raise BadInput(
                f"What {name} releases is no number, or the same at every position: noise has no unit there."
            )
    return [float(spread) for spread in spreads]
