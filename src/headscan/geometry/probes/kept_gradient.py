"""The probe `kept-gradient`: the gradient bottleneck."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.geometry.deviation import Deviation
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.kept_gradient import GradientThroughHead, KeptGradient
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup

__all__ = ["KeptGradientProbe"]


class KeptGradientProbe(Probe):
    """How much of the logits' gradient reaches the states."""

    words = ProbeWords(
        name="kept-gradient", title="The gradient through the head", group="head",
        sentence="How much of the norm of the cross-entropy's gradient by the logits lies in the head's column space, and so "
        "reaches the states? Beside what a head of that shape keeps by its shape alone; norm that is not kept is no learning "
        "that is lost.",
        literature="Godey and Artzi 2026, arXiv:2603.10145; the nulls are headscan's",
        position="The first 1,024 positions that have a successor (--skip-first 1 leaves the first of each window out).",
        docs="head.md", function="headscan.geometry.kept_gradient.GradientThroughHead", expensive=True, order=18, fields={
            "kept_norm": Field("kept norm", "Root of the share of energy that is kept; energies of tokens are summed first.",
                "√(Σ‖Pg‖²/Σ‖g‖²)", (0, 1), undefined="every prediction is sure and right",
                interval="eight windows are needed for the tokens, and the mean has none"),
            "leverage_null": Field("null of the leverages",
                "What gradients with the same sizes of entries and random signs keep: only the projector's diagonal counts.",
                "√(Σ gᵢ²Pᵢᵢ/Σ gᵢ²)", (0, 1), undefined="every prediction is sure and right",
                interval="it is a null of these very gradients"),
            "random_null": Field("null of a random head", "What a random head of this shape keeps.", "√(d/V)", (0, 1),
                interval="the shape's alone"),
            "best": Field("best rank", "What the best directions for these very gradients keep, as many as the head has.",
                range=(0, 1), undefined="no more tokens than directions, too many to compare, or their mean",
                interval="it is fitted to these very gradients"),
            "tokens": Field("tokens", "Positions measured.", range=(0, None), interval="a count"),
        },
    )  # fmt: skip
    TOKENS = 1024

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.traits.linear_head else "its logits are no linear map of the last site"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        products = 6.0 * vocabulary * width * (width + self.TOKENS)
        return Cost(2 * products, 3e8 + 8.0 * min(2.0**26, self.TOKENS * vocabulary))

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        head = setup.lens.traits.linear_head
        assert head is not None
        tokenizer = setup.lens.tokenizer
        known = len(head.weight) if tokenizer is None else min(len(head.weight), len(tokenizer))
        bias = None if head.bias is None else head.bias[:known]
        through = GradientThroughHead(head.weight[:known], bias=bias)
        owners: list[Tensor] = []
        left = self.TOKENS
        for window, ids in enumerate(data.windows):
            found = setup.lens.run(ids[None].to(setup.lens.device), sites=setup.last)[setup.last][0]
            states, targets = found[setup.skip_first : -1][:left], ids[setup.skip_first + 1 :][:left]
            real = targets < known
            through.update(states[real.to(states.device)].to(head.weight.device), targets[real].to(head.weight.device))
            owners.append(torch.full((int(real.sum()),), window))
            left -= len(targets)
            if left <= 0:
                break
        kept = through.result()
        interval = _interval(kept, through.token_energies, torch.cat(owners))
        shared = {"random_null": kept.kept_norm_random, "tokens": kept.tokens}
        return [
            {"site": "every token", "kept_norm": kept.kept_norm, "kept_norm_interval": interval,
             "leverage_null": kept.kept_norm_leverage, "best": kept.kept_norm_best, **shared},
            {"site": "their mean", "kept_norm": kept.batch_kept_norm, "kept_norm_interval": None,
             "leverage_null": kept.batch_kept_norm_leverage, "best": None, **shared},
        ]  # fmt: skip


def _interval(kept: KeptGradient, energies: npt.NDArray[np.float64], owners: Tensor) -> list[float] | None:
    """Of the share of energy, whose clusters are windows of a text that runs on; then its root."""
    if kept.kept_norm is None or len(owners.unique()) < 8:
        return None
    part, whole = (np.bincount(owners.numpy(), weights=column).astype(np.float64) for column in energies.T)
    deviation = Deviation.of_text(part, whole)
    if deviation is None:
        return None
    return [math.sqrt(bound) for bound in deviation.interval(kept.kept_norm**2, bounds=(0.0, 1.0))]
