"""The audit of a release of every position: bits between bounds, attacks, exact inversion where there is no noise, utility."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.leaks.mechanism import Exposure, plain, protected, read_format
from headscan.leaks.positions import Asked, PositionLeak, Prior, position_leaks, prior_of
from headscan.leaks.result import LeakRow, WholeText
from headscan.leaks.rows import ExactAttack, bits_row, exact_attack, exact_row, leave_one_out_bits, prepare
from headscan.leaks.run import LIMIT, Auditing, AuditPlan, Leak, plan_of
from headscan.leaks.sequence import TEXTS, TOKENS, leave_one_out_leaks, places_of, sequence_bits
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Run

PARTICLES = 32


def audit(exposure: Exposure, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
    """All rows of a release, one a site, defence and noise, and the bits of whole texts where they are affordable.

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
    leak = Leak(rows=[], notes=list(plan.notes))
    for number, defence in enumerate(settings.protections()):
        one = _Audit(
            protected(exposure, defence, form, plan.windows, settings.seed), plan, prior, settings, run, number
        )
        leak.rows.extend(one.rows())
        whole, notes = one.whole()
        leak.whole.extend(whole)
        leak.notes.extend(note for note in notes if note not in leak.notes)
    return leak


class _Audit:
    """The audit of one release behind one defence."""

    def __init__(
        self, exposure: Exposure, plan: AuditPlan, prior: Callable[[], Prior], settings: Auditing, run: Run, number: int
    ) -> None:
        self.exposure, self.plan, self.prior, self.settings, self.run = exposure, plan, prior, settings, run
        self.mark = f"{number}-" if number else ""
        self.levels = tuple(dict.fromkeys(settings.noise))
        self.scales = scales_of(exposure, plan.windows)
        self.counted = tuple(level for level in self.levels if level > 0 or exposure.rounded)

    def rows(self) -> list[LeakRow]:
        rows, losses = dict[tuple[str, float], LeakRow](), self._losses()
        if self.counted:
            rows = self._bits(losses)
        hides = any(self.exposure.withheld(place) for place in range(self.plan.windows.shape[1]))
        if 0.0 in self.levels and not hides:
            cuts = [self.exposure.alone(name) for name in self.exposure.names]
            ready = cache(partial(prepare, self.exposure.together, cuts, self.run.progress))
            for number, name in enumerate(self.exposure.names):
                work, here = partial(self._exact, cuts[number], ready), (name, 0.0)
                attack = self.run.unit(f"{self.mark}exact-{name}", ExactAttack, work)
                rows[here] = exact_row(self.exposure, name, attack, self.plan, rows.get(here), losses.get(here))
                self.run.progress("exact inversion", number + 1, len(self.exposure.names), "sites")
        return [rows[name, level] for name in self.exposure.names for level in self.levels if (name, level) in rows]

    def _exact(self, cut: SlicedModel, ready: Callable[[], None]) -> ExactAttack:
        ready()
        return exact_attack(
            cut, self.plan.windows, budget=self.plan.budget, seed=self.settings.seed, progress=self.run.progress
        )

    def _bits(self, losses: dict[tuple[str, float], list[float]]) -> dict[tuple[str, float], LeakRow]:
        exposure, settings, windows = self.exposure, self.settings, self.plan.windows
        sigmas = tuple(tuple(level * scale for level in self.counted) for scale in self.scales)
        asked = Asked(
            exposure.widths, sigmas, self.prior(), self.plan.candidates, settings.draws, settings.seed, exposure.law,
            exposure.withheld,
        )  # fmt: skip
        few = places_of(windows.shape[1], settings.others) if self.plan.candidates is None else []
        found, others = list[list[PositionLeak]](), list[PositionLeak]()
        for number, window in enumerate(windows):
            work = partial(position_leaks, exposure.together, window, asked)
            found.append(self.run.unit(f"{self.mark}window-{number}", list[PositionLeak], work))
            if few:
                more = partial(
                    leave_one_out_leaks, exposure.together, window, asked, few, joined=settings.prior == "model"
                )
                others += self.run.unit(f"{self.mark}others-{number}", list[PositionLeak], more)
            self.run.progress("bits", (number + 1) * (len(window) - 1), windows.numel() - len(windows), "tokens")
        rows = {}
        for site, name in enumerate(exposure.names):
            for place, level in enumerate(self.counted):
                here = (site, place)
                parts = [[one for one in part if (one.site, one.level) == here] for part in found]
                rows[name, level] = bits_row(
                    name, exposure.defence, level, level * self.scales[site], parts, settings.draws,
                    losses.get((name, level)), leave_one_out_bits([one for one in others if (one.site, one.level) == here]),
                )  # fmt: skip
        return rows

    def _losses(self) -> dict[tuple[str, float], list[float]]:
        exposure, windows = self.exposure, self.plan.windows
        if exposure.loss is None or not exposure.together.lens.traits.predicts:
            return {}
        clean = exposure.loss(exposure.names[0], windows, lambda states: states)
        found: dict[tuple[str, float], list[float]] = {}
        for name, scale in zip(exposure.names, self.scales, strict=True):
            for level in self.levels:
                generator = torch.Generator().manual_seed(self.settings.seed + 2)
                sigma = level * scale
                change = (
                    plain(sigma, generator) if exposure.working is None else exposure.working(name, sigma, generator)
                )
                untouched = level == 0 and exposure.working is None
                lost = clean if untouched else exposure.loss(name, windows, change)
                found[name, level] = (lost - clean).tolist()
        return found

    def whole(self) -> tuple[list[WholeText], list[str]]:
        settings, names = self.settings, list(self.exposure.names)
        noises = [level for level in self.counted if level > 0]
        if settings.particles == 0 or not noises:
            return [], []
        if not self.exposure.law.everywhere:
            return [], [f"Bits of whole texts were left out for {self.exposure.law.name} noise."]
        cut = self.exposure.together
        tokens = min(TOKENS, (cut.lens.context_length or TOKENS + 1) - 1)
        particles = settings.particles or PARTICLES
        cost = 2.0 * TEXTS * tokens * particles * cut.vocabulary_size * self.plan.passed * len(noises)
        if settings.particles is None:
            count = int(LIMIT / 8 / cost / len(settings.protections()))
            if count == 0:
                return [], ["Bits of whole texts were left out: they would take long (--particles)."]
            if count < len(names):
                some = np.linspace(0, len(names) - 1, count) if count > 1 else [len(names) // 2]
                names = [names[place] for place in sorted({round(place) for place in some})]
        found: list[WholeText] = []
        for name in names:
            scale = self.scales[self.exposure.names.index(name)]
            work = partial(
                sequence_bits, self.exposure.alone(name), name, self.prior(), self.plan.windows[0, :1],
                [(level, level * scale) for level in noises], particles, seed=settings.seed, progress=self.run.progress,
                texts=TEXTS, tokens=tokens, law=self.exposure.law, withheld=self.exposure.withheld,
                defence=self.exposure.defence,
            )  # fmt: skip
            found += self.run.unit(f"{self.mark}whole-{name}", list[WholeText], work)
        return found, []


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
