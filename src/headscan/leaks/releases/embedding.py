"""A leaked embedding: one vector for a whole text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.given import EmbeddingSlice
from headscan.leaks.budget import plan_of_whole_rows
from headscan.leaks.positions import Asked, PositionLeak, at_position
from headscan.leaks.priors import cut_prior, prior_of
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.leaks.rows import bits_row
from headscan.model.lens import Lens
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Run

__all__ = ["EmbeddingRelease"]

BATCH = 256


@RELEASES.register("embedding")
class EmbeddingRelease(Release):
    """The mean of the last block's states, of unit length: what a vector store holds of a text. No training is needed.

    One vector stands for all tokens, so the bits are those of one token to one who knows all the others (a genie):
    B_t = I(X_t; Y | all other tokens). Their sum is no bound on the whole text from below. Without noise the attack names the
    nearest candidate, the others given; `headscan invert --given embedding` searches all tokens jointly.
    """

    name: ClassVar[str] = "embedding"
    uses: ClassVar[tuple[str, ...]] = ("noise", "prior", "windows", "length", "candidates", "draws")
    meaning: ClassVar[str] = (
        "Bits that the embedding of a text tells of one token to one who knows all the others, before and after it: more than "
        "an attacker has, so no sum of them bounds the whole text from below."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Bits of each token, the others known."""
        if lens.context_length and settings.length > lens.context_length:
            raise BadInput(
                f"--length {settings.length} is more than the {lens.context_length} tokens of '{lens.name}'."
            )
        if settings.prior == "model":
            prior_of("model", lens, texts)  # whether there is one
        cut = EmbeddingSlice(lens)
        plan = plan_of_whole_rows(cut, texts, settings)
        windows = plan.windows
        for note in plan.notes:
            run.announce(note)
        with torch.no_grad():
            seen = torch.cat([cut.run(row[None])[:, 0] for row in windows]).double()
        scale = float(seen.var(0, unbiased=False).mean().sqrt()) if len(windows) > 1 else float(seen.std())
        levels = tuple(dict.fromkeys(settings.noise))
        sigmas = (tuple(level * scale for level in levels),)
        asked = Asked(
            (cut.width,), sigmas, prior_of(settings.prior, lens, texts), plan.candidates, settings.draws, settings.seed
        )
        found: list[list[PositionLeak]] = []
        for number, window in enumerate(windows):
            work = partial(_window, cut, window, asked, settings.prior == "model")
            found.append(run.unit(f"window-{number}", list[PositionLeak], work))
            run.progress("bits", (number + 1) * len(window), windows.numel(), "tokens")
        rows = []
        for place, level in enumerate(levels):
            parts = [[one for one in part if one.level == place] for part in found]
            row = bits_row("embedding", "none", level, level * scale, parts, settings.draws, None)
            if not level:
                row = replace(
                    row, bits_lower=None, bits_upper=None, bits_truth=None, bits_truth_error=None, bits_interval=None,
                    lower_by=None, upper_by=None, attack="nearest, others known", attack_accuracy_upper=None,
                    attack_accuracy=row.text_accuracy, attack_accuracy_interval=row.text_accuracy_interval,
                )  # fmt: skip
            rows.append(row)
        return Leak(rows=rows, notes=list(plan.notes))


@torch.no_grad()
def _window(cut: SlicedModel, ids: Int[Tensor, " T"], asked: Asked, ordered: bool) -> list[PositionLeak]:
    """Every position of a window, the others known. A model's prior is that given the tokens before: what the later ones say of
    the token is left out of it, so that it counts as the release's."""
    seen, found = cut.run(ids[None])[0, 0].double().cpu(), list[PositionLeak]()
    shares = asked.prior(ids[None])[0]
    for place in range(int(ordered), len(ids)):
        tokens, coded = cut_prior(shares[place - 1] if ordered else shares[place], asked.candidates)
        rows = ids.repeat(len(tokens), 1)
        rows[:, place] = tokens
        points = torch.cat([cut.run(part)[:, 0] for part in rows.split(BATCH)]).cpu()
        code = coded(points)
        own = (tokens == ids[place]).nonzero()
        named = int(own[0]) if len(own) else None
        found += at_position(code, seen, named, 0, asked.sigmas[0], asked.draws, asked.seed + 7919 * place)
    return found
