"""A leaked embedding: one vector for a whole text."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.channels import COUNTED
from headscan.leaks.defences import UNCHANGED, Change, Map, Mechanism, working
from headscan.leaks.exposure import centred_rms
from headscan.leaks.plan import AuditPlan, plan_of, windows_of
from headscan.leaks.priors import Prior, cut_prior, prior_of
from headscan.leaks.registry import CHANNELS, Leak, LeakChannel
from headscan.leaks.result import LeakRow
from headscan.leaks.rows import BitsAt, bits_row, share_interval, without_bits
from headscan.leaks.settings import PrivacySettings
from headscan.leaks.token_bits import POSITION_STEP, PositionLeak, index_of, leaks_at
from headscan.model.lens import Lens
from headscan.model.slicing import SlicedModel
from headscan.run import Run

BATCH = 256
PASSAGES = 200


@CHANNELS.register("embedding")
class EmbeddingChannel(LeakChannel):
    """The mean of the last block's states, of unit length: what a vector store holds of a text. No
    training is needed.

    One vector stands for all tokens, so the bits are those of one token to one who knows all the
    others (a genie): B_t = I(X_t; Y | all other tokens). Their sum is no bound on the whole text
    from below. Without noise the attack names the nearest candidate, the others given;
    `headscan invert --given embedding` searches all tokens jointly.

    What a defence costs is told by retrieval: of up to 200 passages of the text, as long as a
    window, the share that the clean embedding of their first half finds first among what is
    released of all.
    """

    uses: ClassVar[tuple[str, ...]] = (*COUNTED, "defence")
    meaning: ClassVar[str] = (
        "Bits that the embedding of a text reveals of one token to an attacker who knows all the "
        "others, before and after it: more than an attacker has, so no sum of them bounds the "
        "whole text from below."
    )

    def attack(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> Leak:
        cut = EmbeddingSlice(lens)
        prior = prior_of(settings.prior, lens, texts)
        plan = plan_of(cut, texts, settings, run, whole_rows=True)
        passages = windows_of(texts, PASSAGES, settings.length)
        work = _EmbeddingAudit(
            cut=cut,
            plan=plan,
            prior=prior,
            settings=settings,
            run=run,
            stored=_embedded(cut, passages),
            queries=_embedded(cut, passages[:, : (settings.length + 1) // 2]),
        )
        rows: list[LeakRow] = []
        for number, defence in enumerate(settings.defences):
            rows += work.rows(defence, f"{number}-" if number else "")
        return Leak(rows=rows, notes=plan.notes)


@dataclass(frozen=True)
class _EmbeddingAudit:
    """The audit of embeddings.

    Attributes:
        stored, queries: the embeddings of passages, and of their first halves.
    """

    cut: SlicedModel
    plan: AuditPlan
    prior: Prior
    settings: PrivacySettings
    run: Run
    stored: Float[Tensor, "N w"]
    queries: Float[Tensor, "N w"]

    def rows(self, defence: Mechanism | None, prefix: str) -> list[LeakRow]:
        """Return one row a noise, behind a defence; `prefix` begins the names of stored parts."""
        seed = self.settings.seed
        fit = UNCHANGED if defence is None else defence.fit(self.stored.float(), seed)
        unit = self._noise_unit(fit.release)
        windows = self._leaks(fit.release, unit, prefix)
        rows = []
        for number, level in enumerate(self.settings.levels):
            measured = BitsAt(
                site="embedding",
                defence="none" if defence is None else defence.name,
                noise=level,
                sigma=level * unit,
                windows=[[leak for leak in window if leak.level == number] for window in windows],
                draws=self.settings.draws,
            )
            row = bits_row(measured)
            generator = torch.Generator().manual_seed(seed + 2)
            received = working(fit.received, fit.restore, level * unit, generator)
            share = retrieval(self.stored, self.queries, received)
            interval = share_interval(share, len(self.stored))
            row = replace(row, retrieval=share, retrieval_interval=interval)
            if not level and (defence is None or not defence.rounds):
                row = without_bits(row, "nearest, others known")
            rows.append(row)
        return rows

    def _noise_unit(self, release: Map) -> float:
        """Return the rms of the centred coordinates that are released of the windows."""
        released = release(_embedded(self.cut, self.plan.windows).float()).double()
        if len(released) == 1:
            return float(released.std())
        return centred_rms(released)

    def _leaks(self, release: Map, unit: float, prefix: str) -> list[list[PositionLeak]]:
        """Return what is told at each position of each window behind a defence."""
        windows = self.plan.windows
        leaks = []
        for number, window in enumerate(windows):
            work = partial(self._window_leaks, release, unit, window)
            leaks.append(self.run.unit(f"{prefix}window-{number}", list[PositionLeak], work))
            self.run.progress("bits", (number + 1) * len(window), windows.numel(), "tokens")
        return leaks

    @torch.no_grad()
    def _window_leaks(
        self, release: Map, unit: float, ids: Int[Tensor, " T"]
    ) -> list[PositionLeak]:
        """Return the leaks at every position of a window, the others known.

        A model's prior is that given the tokens before: what the later ones say of the token is
        left out of it, so that it counts as the release's.
        """
        sigmas = [level * unit for level in self.settings.levels]
        clean = release(_embedded(self.cut, ids[None]).float())[0].double()
        shares = self.prior(ids[None])[0]
        ordered = self.settings.prior == "model"
        leaks: list[PositionLeak] = []
        for position in range(1 if ordered else 0, len(ids)):
            expected = shares[position - 1] if ordered else shares[position]
            tokens, code_of = cut_prior(expected, self.plan.candidates)
            rows = ids.repeat(len(tokens), 1)
            rows[:, position] = tokens
            leaks += leaks_at(
                code_of(release(_embedded(self.cut, rows).float())),
                clean,
                index_of(ids[position], tokens),
                sigmas,
                draws=self.settings.draws,
                seed=self.settings.seed + POSITION_STEP * position,
            )
        return leaks


def retrieval(stored: Float[Tensor, "N w"], queries: Float[Tensor, "N w"], change: Change) -> float:
    """Return the share of queries that find their own passage first.

    It has the largest cosine among what `change` makes of the stored vectors.
    """
    changed = change(stored.float()).double()
    directions = changed / changed.norm(dim=1, keepdim=True).clamp_min(1e-30)
    cosines = queries @ directions.T
    right = cosines.argmax(1) == torch.arange(len(queries))
    return float(right.double().mean())


@torch.no_grad()
def _embedded(cut: SlicedModel, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B w"]:
    parts = [cut.run(part)[:, 0] for part in rows.split(BATCH)]
    return torch.cat(parts).cpu().double()
