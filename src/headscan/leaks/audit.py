"""The audit of a release of every position: bits between bounds, attacks, exact inversion where
there is no noise, and what the model loses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.leaks.defences import Change, same, working
from headscan.leaks.exact_attack import ExactAttack, exact_attack
from headscan.leaks.exposure import Exposure, centred_rms, protected
from headscan.leaks.plan import AuditPlan, plan_of
from headscan.leaks.priors import Prior, prior_of
from headscan.leaks.registry import Leak
from headscan.leaks.result import LeakRow
from headscan.leaks.rows import BitsAt, bits_row, exact_row
from headscan.leaks.settings import PrivacySettings
from headscan.leaks.token_bits import PositionLeak, position_leaks
from headscan.run import BadInput, Run

Key = tuple[str, float]
"""A site and a noise."""


def audit(exposure: Exposure, texts: list[list[int]], settings: PrivacySettings, run: Run) -> Leak:
    """Return all rows of a release, one a site, defence and noise.

    Raises:
        BadInput: a model that is not causal, a text that is too short, a prior that the model does
            not give.
    """
    if not bool(exposure.lens.input_embeddings.isfinite().all()):
        raise BadInput(
            f"The input embeddings of '{exposure.lens.name}' hold values that are not finite: its "
            "weights are damaged."
        )
    if not exposure.combined.causal:
        raise BadInput(
            "This release is read from left to right and needs a causal model: choose --release "
            "embedding --prior uniform."
        )
    plan = plan_of(exposure.combined, texts, settings, run, sites=len(exposure.sites))
    prior = cache(partial(prior_of, settings.prior, exposure.lens, texts))
    rows: list[LeakRow] = []
    for number, defence in enumerate(settings.defences):
        guarded = protected(exposure, defence, settings.number_format, plan.windows, settings.seed)
        prefix = f"{number}-" if number else ""
        rows += _Audit(guarded, plan, prior, settings, run, prefix).rows()
    return Leak(rows=rows, notes=plan.notes)


@dataclass(eq=False)
class _Audit:
    """The audit of one release behind one defence.

    Attributes:
        levels: the noises; `measured` are those at which there are bits.
        scales: the unit of the noise at each site.
        prefix: the beginning of the names of stored parts.
    """

    exposure: Exposure
    plan: AuditPlan
    prior: Callable[[], Prior]
    settings: PrivacySettings
    run: Run
    prefix: str

    def __post_init__(self) -> None:
        rounded = self.exposure.rounded
        self.levels = self.settings.levels
        self.measured = tuple(level for level in self.levels if level > 0 or rounded)
        self.scales = noise_units(self.exposure, self.plan.windows)

    def rows(self) -> list[LeakRow]:
        losses = self._losses()
        rows = self._bits_rows(losses) if self.measured else {}
        if 0.0 in self.levels:
            for number, site in enumerate(self.exposure.sites):
                clean = (site, 0.0)
                attack = self._exact_attack(site)
                rows[clean] = exact_row(
                    site,
                    self.exposure.defence,
                    attack,
                    self.plan,
                    rows.get(clean),
                    losses.get(clean),
                )
                count = len(self.exposure.sites)
                self.run.progress("exact inversion", number + 1, count, "sites")
        return [rows[site, level] for site in self.exposure.sites for level in self.levels]

    def _exact_attack(self, site: str) -> ExactAttack:
        work = partial(
            exact_attack,
            self.exposure.alone(site),
            self.plan.windows,
            budget=self.plan.budget,
            seed=self.settings.seed,
            progress=self.run.progress,
        )
        return self.run.unit(f"{self.prefix}exact-{site}", ExactAttack, work)

    def _bits_rows(self, losses: dict[Key, list[float]]) -> dict[Key, LeakRow]:
        windows = self._position_leaks()
        rows = {}
        for site_number, site in enumerate(self.exposure.sites):
            for level_number, level in enumerate(self.measured):
                index = (site_number, level_number)
                measured = BitsAt(
                    site=site,
                    defence=self.exposure.defence,
                    noise=level,
                    sigma=level * self.scales[site_number],
                    windows=[
                        [leak for leak in window if (leak.site, leak.level) == index]
                        for window in windows
                    ],
                    draws=self.settings.draws,
                    losses=losses.get((site, level)),
                )
                rows[site, level] = bits_row(measured)
        return rows

    def _position_leaks(self) -> list[list[PositionLeak]]:
        """Return the leaks at the positions of each window, at all sites and noises."""
        windows = self.plan.windows
        measure = partial(
            position_leaks,
            self.exposure.combined,
            widths=self.exposure.widths,
            prior=self.prior(),
            candidates=self.plan.candidates,
            sigmas=[[level * scale for level in self.measured] for scale in self.scales],
            draws=self.settings.draws,
            seed=self.settings.seed,
        )
        leaks = []
        for number, window in enumerate(windows):
            name = f"{self.prefix}window-{number}"
            leaks.append(self.run.unit(name, list[PositionLeak], partial(measure, window)))
            done = (number + 1) * (len(window) - 1)
            self.run.progress("bits", done, windows.numel() - len(windows), "tokens")
        return leaks

    def _losses(self) -> dict[Key, list[float]]:
        """Return nats a token that the model loses in each window, of each site and noise."""
        loss = self.exposure.loss
        if loss is None or not self.exposure.lens.traits.predicts:
            return {}
        windows = self.plan.windows
        clean = loss(self.exposure.sites[0], windows, same)
        losses: dict[Key, list[float]] = {}
        for site, scale in zip(self.exposure.sites, self.scales, strict=True):
            for level in self.levels:
                changed = clean
                if level != 0 or self.exposure.receiver is not None:
                    changed = loss(site, windows, self._receiver(site, level * scale))
                losses[site, level] = (changed - clean).tolist()
        return losses

    def _receiver(self, site: str, sigma: float) -> Change:
        """Return what whoever goes on with a site's states has of them."""
        generator = torch.Generator().manual_seed(self.settings.seed + 2)
        if self.exposure.receiver is None:
            return working(same, same, sigma, generator)
        return self.exposure.receiver(site, sigma, generator)


@torch.no_grad()
def noise_units(exposure: Exposure, windows: Int[Tensor, "B T"]) -> list[float]:
    """Return the rms of each site's centred coordinates.

    It is taken over all positions of the windows but the first.
    """
    units = []
    for site, states in zip(exposure.sites, exposure.later_states(windows), strict=True):
        unit = centred_rms(states.double())
        if not 0 < unit < float("inf"):
            raise BadInput(
                f"The release of {site} is not finite, or the same at every position: noise "
                "has no unit there."
            )
        units.append(unit)
    return units
