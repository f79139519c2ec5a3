"""The probe `loss`: the loss."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.confidence import SCALES, best_scale, scaled_losses
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import left_out
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.spectrum import entropy_of

__all__ = ["LossProbe"]


class LossProbe(Probe):
    """How well does the model predict?"""

    words = ProbeWords(
        name="loss", title="The loss", group="head",
        sentence="How well does the model predict the next token? On the first 8,192 tokens; beside it the entropy "
        "of the text's tokens, which counting alone reaches.",
        literature="Godey et al. 2024, arXiv:2404.07647 (saturation of small models)",
        position="All positions that have a successor (--skip-first 1 leaves the first out).", docs="head.md",
        order=14, fields={
            "loss": Field("loss",
                "Mean cross-entropy of the next token; it rises late where a small model saturates.",
                "−mean log p(next)", (0, None), unit="nats a token"),
            "unigram_entropy": Field("unigram entropy",
                "Of the text's tokens: what a model that knows frequencies only would lose.", "−Σ p log p", (0, None),
                unit="nats a token", interval="of this text's own counts"),
            "best_scale": Field("best scale",
                "The factor on all logits with which the loss would be least: 1 where the model is as sure as it may be, less "
                "where it is too sure (Guo et al. 2017, arXiv:1706.04599). On the first 1,024 of these tokens.",
                "argminₛ −mean log softmax(s·z)[next]", (2.0**SCALES[0], 2.0**SCALES[-1]),
                undefined="it lies beyond the scales that are tried"),
            "predicted": Field("predicted", "Tokens predicted.", range=(1, None), unit="tokens", interval="a count"),
        },
    )  # fmt: skip
    TOKENS = 8192
    SCALED = 1024

    def reason(self, setup: ProbeSetup) -> str | None:
        if "head" not in setup.lens.sites or setup.lens.width("head") < setup.lens.vocabulary_size:
            return "it gives no logits over its vocabulary"
        return None if setup.lens.traits.causal else "its logits see the tokens that follow"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, self.TOKENS // setup.context)]
        if ids.shape[-1] < 2:
            return []
        lost: list[Tensor] = []
        scaled: list[Tensor] = []
        step = max(1, min(2048 // setup.context, 2**25 // (setup.context * setup.lens.vocabulary_size)))
        for part in ids.split(step):
            targets = part[:, setup.skip_first + 1 :].to(setup.lens.device)

            def take(site: str, logits: Tensor, targets: Tensor = targets) -> None:
                scores = logits[:, setup.skip_first : -1].float()
                each = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
                lost.append(each.double().reshape(targets.shape).sum(1).cpu())
                if len(scaled) * targets.numel() < self.SCALED:
                    scaled.append(scaled_losses(scores, targets))

            setup.lens.run(part.to(setup.lens.device), sites="head", each=take)
        sums, length = torch.cat(lost).numpy(), ids.shape[1] - 1 - setup.skip_first
        loss = float(sums.mean()) / length
        parts = np.array_split(sums, min(8, len(sums)))
        left = [float(sums.sum() - part.sum()) / (length * max(1, len(sums) - len(part))) for part in parts]
        interval = left_out(loss, left, [len(part) for part in parts], bounds=(0.0, None))
        unigram = entropy_of(data.counts / max(1, data.counts.sum()))
        by_scale = torch.cat(scaled).numpy()
        scale, groups = best_scale(by_scale.sum(0)), np.array_split(by_scale, min(8, len(by_scale)))
        others = [best_scale(by_scale.sum(0) - group.sum(0)) for group in groups]
        sizes, bounds = [len(group) for group in groups], self.fields["best_scale"].range
        return [
            {
                "site": "head",
                "loss": loss,
                "loss_interval": interval,
                "unigram_entropy": unigram,
                "best_scale": scale,
                "best_scale_interval": None if scale is None else left_out(scale, others, sizes, bounds=bounds),
                "predicted": len(sums) * length,
            }
        ]
