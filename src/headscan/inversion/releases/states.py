"""Leaked hidden states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from headscan.inversion.comparing import multiplications
from headscan.inversion.degrade import add_noise, round_states
from headscan.inversion.descent import descend
from headscan.inversion.left_to_right import Search, exact
from headscan.inversion.losses import relative
from headscan.inversion.presets import Descent
from headscan.inversion.privacy_result import ReleaseRow
from headscan.inversion.release import RELEASES, Auditing, Leak, Release
from headscan.inversion.tolerance import accepted
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import BadInput, Run

__all__ = ["StatesRelease"]

LIMIT, FEW = 2e14, 2
"""Multiplications up to which all is done unasked, half an hour or so of two cores at worst. Of a model that is too large for
it: so many windows, and a fortieth of that work."""


@dataclass(frozen=True)
class _Damage:
    """A kind of damage: what the victim's states are."""

    name: str
    run: Callable[[Tensor], Tensor]
    noise: float = 0.0


@RELEASES.register("states")
class StatesRelease(Release):
    """All states of a site, clean or damaged, inverted by exact search and (clean ones) by gradients.

    Whoever inverts has the model, knows how the states were damaged, and sets the tolerance by trying the damage on
    random tokens of the same model.
    """

    name: ClassVar[str] = "states"
    uses: ClassVar[tuple[str, ...]] = (
        "sites",
        "noise",
        "rounding",
        "weights",
        "windows",
        "length",
        "candidates",
        "descent",
    )

    def plan(self, lens: Lens, settings: Auditing) -> tuple[Auditing, list[str]]:
        """Of a model that is too large for all of it: three blocks, two windows, few candidates, no copy of its weights.

        What was asked for by name is done whatever it costs.
        """
        if settings.sites is not None or settings.candidates is not None:
            return settings.but(sites=settings.sites or "block.*"), []
        names = lens.match("block.*")
        damages = 1 + len(settings.noise) + len(settings.rounding) + len(settings.weights)
        tokens = settings.windows * settings.length
        # Half of the blocks on average; a candidate a token of the vocabulary at worst, a descent of 200 steps.
        last = multiplications(Slice(sites=(names[-1],)).on(lens), 1)
        if last / 2 * tokens * len(names) * damages <= LIMIT:
            return settings.but(sites="block.*"), []
        chosen = list(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))
        most = max(16, int(LIMIT / 40 / (last / lens.vocabulary_size * damages * settings.length * len(chosen))))
        if most >= lens.vocabulary_size:
            return settings.but(sites=",".join(chosen)), []
        windows = min(settings.windows, FEW)
        sentence = (
            f"Attacked were {', '.join(chosen)} of {len(names)} blocks in {windows} windows, at most {most} candidates a "
            "position, without gradients and rounded weights: all would take hours (--sites, --candidates)."
        )
        return settings.but(sites=",".join(chosen), candidates=most, windows=windows, weights=(), descent=False), [
            sentence
        ]

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """One row a site and damage by exact search, one a site by gradients."""
        assert settings.sites is not None  # by `plan`
        names = lens.match(settings.sites)
        if not lens.traits.causal:
            raise BadInput("The privacy report inverts from left to right and needs a causal model.")
        windows = _windows(texts, settings.windows, settings.length)
        rows: list[ReleaseRow] = []
        for number, site in enumerate(names):
            rows += run.unit(f"site-{site}", list[ReleaseRow], partial(_site, lens, site, windows, settings))
            run.progress("sites", number + 1, len(names), "sites")
        return rows, None


def _windows(texts: list[list[int]], windows: int, length: int) -> Tensor:
    """[P, T] token ids, evenly spaced over the text."""
    ids = [token for text in texts for token in text]
    if len(ids) < length:
        raise BadInput(f"The text has {len(ids)} tokens, fewer than one window of {length}.")
    starts = torch.linspace(0, len(ids) - length, min(windows, len(ids) // length)).long()
    return torch.stack([torch.tensor(ids[int(start) : int(start) + length]) for start in starts])


def _site(lens: Lens, site: str, windows: Tensor, settings: Auditing) -> list[ReleaseRow]:
    cut = Slice(sites=(site,)).on(lens)
    rows = [_exact(cut, site, damage, windows, settings) for damage in _damages(lens, cut, settings)]
    return [*rows, _gradient(cut, site, windows)] if settings.descent else rows


def _damages(lens: Lens, cut: SlicedModel, settings: Auditing) -> Iterator[_Damage]:
    yield _Damage("none", cut.run)
    for share in settings.noise:
        yield _Damage(f"noise {share:g}", partial(_noisy, cut, share, settings.seed), share)
    for bits in settings.rounding:
        yield _Damage(f"states of {bits} bits", partial(_rounded, cut, bits))
    for bits in () if lens.traits.quantised else settings.weights:  # those are rounded already
        yield _Damage(f"weights of {bits} bits", Slice(sites=cut.slice.sites, bits=bits).on(lens).run)


def _noisy(cut: SlicedModel, share: float, seed: int, ids: Tensor) -> Tensor:
    return add_noise(cut.run(ids), share, seed)


def _rounded(cut: SlicedModel, bits: int, ids: Tensor) -> Tensor:
    return round_states(cut.run(ids), bits)


@torch.no_grad()
def _exact(cut: SlicedModel, site: str, damage: _Damage, windows: Tensor, settings: Auditing) -> ReleaseRow:
    generator = torch.Generator().manual_seed(settings.seed + 1)
    random = torch.randint(0, cut.vocabulary_size, windows.shape, generator=generator)
    blur = float(relative(damage.run(random), cut.run(random)).max())
    tolerance = max(accepted(cut), 1.2 * blur)
    targets = damage.run(windows).float()
    start = time.process_time()
    few = settings.candidates is not None  # wrong prefixes are then not taken back: each would cost as much again
    search = Search(
        neighbours=0 if tolerance == accepted(cut) else 32,
        budget=settings.candidates,
        backtracks=0 if few else Search.backtracks,
    )
    found = exact(cut, list(targets), search, tolerance=tolerance)
    seconds = time.process_time() - start
    tokens = torch.tensor([one.tokens for one in found])
    return ReleaseRow(
        site=site, damage=damage.name, noise=damage.noise, tokens=windows.numel(), method="exact", tolerance=tolerance,
        token_accuracy=float((tokens == windows).float().mean()),
        evaluations_per_token=sum(sum(one.evaluations) for one in found) / windows.numel(),
        passes_per_token=sum(one.passes for one in found) / windows.numel(),
        seconds_per_token=seconds / windows.numel(),
    )  # fmt: skip


def _gradient(cut: SlicedModel, site: str, windows: Tensor) -> ReleaseRow:
    start = time.process_time()
    with torch.no_grad():
        target = cut.run(windows)
    found = descend(cut, target, windows.shape[1], Descent(steps=200))
    return ReleaseRow(
        site=site, damage="none", noise=0.0, tokens=windows.numel(), method="gradient",
        token_accuracy=float((found.tokens.cpu() == windows).float().mean()),
        passes_per_token=found.passes / windows.numel(),
        seconds_per_token=(time.process_time() - start) / windows.numel(),
    )  # fmt: skip
