"""A leaked embedding: one vector for a whole text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.mechanism import UNCHANGED, Change, Fitted, Mechanism, working
from headscan.leaks.noise_laws import GAUSSIAN
from headscan.leaks.positions import Asked, PositionLeak, Prior, at_position, cut_prior, prior_of
from headscan.leaks.result import LeakRow
from headscan.leaks.rows import bits_row, share_interval
from headscan.leaks.run import CHANNELS, Auditing, AuditPlan, Leak, LeakChannel, plan_of, windows_of
from headscan.model.lens import Lens
from headscan.model.slicing import SlicedModel
from headscan.run import Run

BATCH, PASSAGES = 256, 200


@CHANNELS.register("embedding")
class EmbeddingChannel(LeakChannel):
    """The mean of the last block's states, of unit length: what a vector store holds of a text. No training is needed.

    One vector stands for all tokens, so the bits are those of one token to one who knows all the others (a genie):
    B_t = I(X_t; Y | all other tokens). Their sum is no bound on the whole text from below. Without noise the attack names the
    nearest candidate, the others given; `headscan invert --given embedding` searches all tokens jointly.

    What a defence costs is told by retrieval: of up to 200 passages of the text, as long as a window, the share that the clean
    embedding of their first half finds first among what is released of all.
    """

    name: ClassVar[str] = "embedding"
    uses: ClassVar[tuple[str, ...]] = ("noise", "prior", "windows", "length", "candidates", "draws", "defence")
    meaning: ClassVar[str] = (
        "Bits that the embedding of a text tells of one token to one who knows all the others, before and after it: more than "
        "an attacker has, so no sum of them bounds the whole text from below."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        if settings.prior == "model":
            prior_of("model", lens, texts)  # whether there is one
        cut = EmbeddingSlice(lens)
        plan = plan_of(cut, texts, settings, whole_rows=True)
        for note in plan.notes:
            run.announce(note)
        leak, passages = Leak(rows=[], notes=list(plan.notes)), windows_of(texts, PASSAGES, settings.length)
        stored, queries = (_embedded(cut, ids) for ids in (passages, passages[:, : (settings.length + 1) // 2]))
        prior = prior_of(settings.prior, lens, texts)
        for number, defence in enumerate(settings.protections()):
            if defence is not None and any(map(defence.withheld, range(settings.length))):
                leak.notes.append(f"An embedding has no states of tokens that {defence.name} could withhold.")
                continue
            fit = UNCHANGED if defence is None else defence.fit(stored.float(), settings.seed, lens)
            leak.rows.extend(_rows(cut, defence, fit, plan, prior, (stored, queries), settings, run, number))
        return leak


def _rows(
    cut: SlicedModel, defence: Mechanism | None, fit: Fitted, plan: AuditPlan, prior: Prior, passages: tuple[Tensor, Tensor],
    settings: Auditing, run: Run, number: int,
) -> list[LeakRow]:  # fmt: skip
    windows, levels = plan.windows, tuple(dict.fromkeys(settings.noise))
    seen = fit.seen(_embedded(cut, windows).float()).double()
    scale = float(seen.var(0, unbiased=False).mean().sqrt()) if len(windows) > 1 else float(seen.std())
    law, mark = (GAUSSIAN, "") if defence is None else (defence.law, f"{number}-" if number else "")
    sigmas = (tuple(level * scale for level in levels),)
    asked = Asked((seen.shape[1],), sigmas, prior, plan.candidates, settings.draws, settings.seed, law)
    found: list[list[PositionLeak]] = []
    for place, window in enumerate(windows):
        work = partial(_window, cut, fit.seen, window, asked, settings.prior == "model")
        found.append(run.unit(f"{mark}window-{place}", list[PositionLeak], work))
        run.progress("bits", (place + 1) * len(window), windows.numel(), "tokens")
    rows, name, rounds = (
        list[LeakRow](),
        "none" if defence is None else defence.name,
        defence is not None and defence.rounds,
    )
    for place, level in enumerate(levels):
        parts = [[one for one in part if one.level == place] for part in found]
        row = bits_row("embedding", name, level, level * scale, parts, settings.draws, None)
        generator = torch.Generator().manual_seed(settings.seed + 2)
        share = retrieval(*passages, working(defence, fit.kept or fit.seen, fit.back, None, level * scale, generator))
        row = replace(row, retrieval=share, retrieval_interval=share_interval(share, len(passages[0])))
        if not level and not rounds:
            row = replace(
                row, bits_lower=None, bits_upper=None, bits_truth=None, bits_truth_error=None, bits_interval=None,
                lower_by=None, upper_by=None, attack="nearest, others known", attack_accuracy_upper=None,
                attack_accuracy=row.text_accuracy, attack_accuracy_interval=row.text_accuracy_interval,
            )  # fmt: skip
        rows.append(row)
    return rows


def retrieval(stored: Float[Tensor, "N w"], queries: Float[Tensor, "N w"], change: Change) -> float:
    """The share of queries whose own passage has the largest cosine among what `change` makes of the stored vectors."""
    left = change(stored.float()).double()
    cosines = queries @ (left / left.norm(dim=1, keepdim=True).clamp_min(1e-30)).T
    return float((cosines.argmax(1) == torch.arange(len(queries))).double().mean())


@torch.no_grad()
def _embedded(cut: SlicedModel, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B w"]:
    return torch.cat([cut.run(part)[:, 0] for part in rows.split(BATCH)]).cpu().double()


@torch.no_grad()
def _window(
    cut: SlicedModel, released: Change, ids: Int[Tensor, " T"], asked: Asked, ordered: bool
) -> list[PositionLeak]:
    """Every position of a window, the others known. A model's prior is that given the tokens before: what the later ones say of
    the token is left out of it, so that it counts as the release's."""
    seen, found = released(_embedded(cut, ids[None]).float())[0].double(), list[PositionLeak]()
    shares = asked.prior(ids[None])[0]
    for place in range(int(ordered), len(ids)):
        tokens, coded = cut_prior(shares[place - 1] if ordered else shares[place], asked.candidates)
        rows = ids.repeat(len(tokens), 1)
        rows[:, place] = tokens
        code = coded(released(_embedded(cut, rows).float()))
        own = (tokens == ids[place]).nonzero()
        named = int(own[0]) if len(own) else None
        found += at_position(code, seen, named, 0, asked.sigmas[0], asked.draws, asked.seed + 7919 * place, asked.law)
    return found
