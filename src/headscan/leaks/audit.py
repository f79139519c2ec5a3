"""The audit of a release of every position: bits between bounds, attacks, exact inversion where there is no noise, utility."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from headscan.geometry.interval import wilson
from headscan.leaks.budget import LIMIT, AuditPlan, plan_of
from headscan.leaks.channel import Change, Channel
from headscan.leaks.defence import protected
from headscan.leaks.exactness import ExactAttack, exact_attack
from headscan.leaks.positions import Asked, PositionLeak, position_leaks
from headscan.leaks.priors import Prior, prior_of
from headscan.leaks.release import Auditing, Leak
from headscan.leaks.result import LeakRow, WholeText
from headscan.leaks.rounding import read_format
from headscan.leaks.wholes import TEXTS, TOKENS, whole_texts
from headscan.run import BadInput, Interval, Run

__all__ = ["audit", "bits_row", "clustered", "share_interval"]

PARTICLES = 32


def audit(channel: Channel, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
    """All rows of a release, one a site and noise, and the bits of whole texts where they are affordable.

    Raises:
        BadInput: a model that is not causal, a text that is too short, a prior that the model does not give.
    """
    lens = channel.together.lens
    if not channel.together.causal:
        raise BadInput("This release is read from left to right and needs a causal model: choose --release embedding.")
    plan = plan_of(channel.together, len(channel.names), texts, settings)
    for note in plan.notes:
        run.announce(note)
    form = read_format(settings.format) if settings.format else None
    channel = protected(channel, settings.protection(), form, plan.windows, settings.seed)
    levels = tuple(dict.fromkeys(settings.noise))
    scales = scales_of(channel, plan.windows)
    counted = tuple(level for level in levels if level > 0 or channel.rounded)
    rows: dict[tuple[str, float], LeakRow] = {}
    prior: Prior | None = None
    losses = _losses(channel, plan, levels, scales, settings)
    if counted:
        prior = prior_of(settings.prior, lens, texts)
        sigmas = tuple(tuple(level * scale for level in counted) for scale in scales)
        asked = Asked(channel.widths, sigmas, prior, plan.candidates, settings.draws, settings.seed)
        found: list[list[PositionLeak]] = []
        for number, window in enumerate(plan.windows):
            work = partial(position_leaks, channel.together, window, asked)
            found.append(run.unit(f"window-{number}", list[PositionLeak], work))
            run.progress("bits", (number + 1) * (len(window) - 1), plan.windows.numel() - len(plan.windows), "tokens")
        for site, name in enumerate(channel.names):
            for place, level in enumerate(counted):
                parts = [[one for one in part if (one.site, one.level) == (site, place)] for part in found]
                loss = losses.get((name, level))
                rows[name, level] = bits_row(
                    name, channel.defence, level, level * scales[site], parts, settings.draws, loss
                )
    if 0.0 in levels:
        for number, name in enumerate(channel.names):
            solve = partial(
                exact_attack,
                channel.alone(name),
                plan.windows,
                budget=plan.budget,
                seed=settings.seed,
                progress=run.progress,
            )
            attack = run.unit(f"exact-{name}", ExactAttack, solve)
            rows[name, 0.0] = _exact_row(channel, name, attack, plan, rows.get((name, 0.0)), losses.get((name, 0.0)))
            run.progress("exact inversion", number + 1, len(channel.names), "sites")
    whole, left_out = _whole(channel, plan, prior, counted, scales, settings, run)
    ordered = [rows[name, level] for name in channel.names for level in levels if (name, level) in rows]
    return Leak(rows=ordered, whole=whole, notes=[*plan.notes, *left_out])


@torch.no_grad()
def scales_of(channel: Channel, windows: Int[Tensor, "B T"]) -> list[float]:
    """The rms of each site's centred coordinates, over all positions of the windows but the first (often a sink)."""
    seen = channel.together.run(windows.to(channel.together.lens.device))[:, 1:].flatten(0, 1).double()
    spreads = [part.var(0, unbiased=False).mean().sqrt() for part in seen.split(list(channel.widths), 1)]
    for name, spread in zip(channel.names, spreads, strict=True):
        if not (bool(spread.isfinite()) and float(spread) > 0):
            raise BadInput(
                f"What {name} releases is no number, or the same at every position: noise has no unit there."
            )
    return [float(spread) for spread in spreads]


def _losses(
    channel: Channel, plan: AuditPlan, levels: Sequence[float], scales: Sequence[float], settings: Auditing
) -> dict[tuple[str, float], float]:
    """What the model loses at each site and noise, in nats a token; empty where it has no head."""
    if channel.loss is None or not channel.together.lens.traits.predicts:
        return {}
    clean, found = channel.loss(channel.names[0], plan.windows, _same), dict[tuple[str, float], float]()
    for name, scale in zip(channel.names, scales, strict=True):
        seen = channel.seen[name] if channel.seen else _same
        back = channel.back[name] if channel.back else _same
        for level in levels:
            generator = torch.Generator().manual_seed(settings.seed + 2)
            change = partial(_changed, seen, back, level * scale, generator)
            untouched = level == 0 and channel.seen is None
            found[name, level] = 0.0 if untouched else channel.loss(name, plan.windows, change) - clean
    return found


def _changed(
    seen: Change, back: Change, sigma: float, generator: torch.Generator, states: Float[Tensor, "*batch w"]
) -> Float[Tensor, "*batch w"]:
    """States as whoever goes on with them has them: released, with noise, and brought back."""
    out = seen(states)
    return back(out + sigma * torch.randn(out.shape, generator=generator).to(out) if sigma else out)


def _same(states: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    return states


def bits_row(
    site: str, defence: str, level: float, sigma: float, parts: list[list[PositionLeak]], draws: int, loss: float | None
) -> LeakRow:
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
        loss_added=loss,
    )  # fmt: skip


def _exact_row(
    channel: Channel, name: str, attack: ExactAttack, plan: AuditPlan, bits: LeakRow | None, loss: float | None
) -> LeakRow:
    """The row without noise: of the search, with the bits that rounding leaves where there are any."""
    right = float(np.mean(attack.right))
    inside = share_interval(right, plan.windows.numel())
    return LeakRow(
        site=name, defence=channel.defence, noise=0.0, sigma=None, tokens=plan.windows.numel(),
        prior_bits=bits.prior_bits if bits else None, bits_lower=bits.bits_lower if bits else None,
        bits_upper=bits.bits_upper if bits else None, lower_by=bits.lower_by if bits else None,
        upper_by=bits.upper_by if bits else None, bits_interval=bits.bits_interval if bits else None,
        bits_truth=bits.bits_truth if bits else None, bits_truth_error=bits.bits_truth_error if bits else None,
        kept=bits.kept if bits else None, candidates=plan.candidates,
        attack="exact", attack_accuracy=right, attack_accuracy_interval=inside, attack_accuracy_upper=None,
        text_accuracy=right, text_accuracy_interval=inside, verdict=attack.verdict, certificate=attack.certificate,
        loss_added=loss, evaluations_per_token=attack.evaluations, seconds_per_token=attack.seconds,
    )  # fmt: skip


def _whole(
    channel: Channel, plan: AuditPlan, prior: Prior | None, levels: Sequence[float], scales: Sequence[float], settings: Auditing,
    run: Run,
) -> tuple[list[WholeText], list[str]]:  # fmt: skip
    """The sandwich at those sites that are affordable, or at all of them where the particles were asked for."""
    noises = [level for level in levels if level > 0]
    if settings.particles == 0 or prior is None or not noises:
        return [], []
    cut = channel.together
    context = cut.lens.context_length or TOKENS + 1
    tokens, particles = min(TOKENS, context - 1), settings.particles or PARTICLES
    cost = 2.0 * TEXTS * tokens * particles * cut.vocabulary_size * plan.passed * len(noises)
    names = list(channel.names)
    if settings.particles is None:
        count = int(LIMIT / 8 / cost)
        if count == 0:
            return [], ["Bits of whole texts were left out: they would take long (--particles)."]
        names = [
            channel.names[i] for i in sorted({round(i) for i in np.linspace(0, len(names) - 1, min(count, len(names)))})
        ]
        names = [channel.names[len(channel.names) // 2]] if count == 1 else names
    found: list[WholeText] = []
    for name in names:
        pairs = [(level, level * scales[channel.names.index(name)]) for level in noises]
        work = partial(
            whole_texts, channel.alone(name), name, prior, plan.windows[0, :1], pairs, particles, seed=settings.seed,
            progress=run.progress, texts=TEXTS, tokens=tokens,
        )  # fmt: skip
        found += run.unit(f"whole-{name}", list[WholeText], work)
    return found, []


def clustered(parts: Sequence[Sequence[float]]) -> Interval | None:
    """The 95 % interval of a mean of equally long windows, each a cluster (Student's t of their means); None of one window."""
    means = np.array([np.mean(part) for part in parts])
    if len(means) < 2:
        return None
    reach = float(stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5)
    return float(means.mean()) - reach, float(means.mean()) + reach


def share_interval(share: float, count: int) -> Interval:
    """The 95 % score interval of a share of so many."""
    low, high = wilson(round(share * count), count)
    return low, high
