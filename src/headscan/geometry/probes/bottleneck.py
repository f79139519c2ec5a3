"""The probe `bottleneck`: the softmax bottleneck."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.head import head_values, ngram_matrix, spectrum_of_sparse, train_low_rank_head, w_error
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup

__all__ = ["BottleneckProbe"]


class BottleneckProbe(Probe):
    """What rank the data want."""

    words = ProbeWords(
        name="bottleneck", title="The softmax bottleneck", group="head",
        sentence="How much does a head of low rank lose? The text's own n-gram matrix cut at rank k, and heads of "
        "rank k trained on the frozen states.",
        literature="Godey et al. 2024, arXiv:2404.07647; Yang et al. 2018",
        position="All positions that have a successor (--skip-first 1 leaves the first out).", docs="head.md",
        function="headscan.geometry.head.train_low_rank_head", expensive=True, order=17, fields={
            "rank": Field("rank", "k.", range=(1, None), interval="given"),
            "head_error": Field("W-error of the head", "Of the model's own head cut at k.", "‖σ_{k+1:}‖/‖W‖", (0, 1),
                undefined="the model has no output layer", interval="a property of the weights alone"),
            "bigram_error": Field("W-error of bigrams", "Of the text's matrix of p(next | last token) cut at k.",
                range=(0, 1), undefined="more than 6,000 tokens occur, or windows are shorter than that many tokens",
                interval="of this text's own matrix"),
            "trigram_error": Field("W-error of trigrams", "Of p(next | last two tokens).", range=(0, 1),
                undefined="more than 6,000 tokens occur, or windows are shorter than that many tokens",
                interval="of this text's own matrix"),
            "bigram_rank": Field("rank of bigrams",
                "Numerical rank of the matrix of p(next | last token): a head of fewer dimensions cannot express it.",
                range=(0, None), unit="dimensions",
                undefined="more than 6,000 tokens occur, or windows are shorter than that many tokens",
                interval="of this text's own matrix"),
            "trigram_rank": Field("rank of trigrams", "Of p(next | last two tokens).", range=(0, None),
                unit="dimensions",
                undefined="more than 6,000 tokens occur, or windows are shorter than that many tokens",
                interval="of this text's own matrix"),
            "loss": Field("loss of a rank-k head",
                "Trained on half of the frozen states, measured on the other half.", range=(0, None),
                unit="nats a token", undefined="the model has no output layer, or there are fewer than four states",
                interval="three batches of held-out states are needed"),
        },
    )  # fmt: skip
    TOKENS, STEPS, BATCH = 32768, 300, 1024

    def _ranks(self, setup: ProbeSetup) -> list[int]:
        width = setup.lens.width(setup.last)
        return [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if k < width] + [width]

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        steps = sum(6.0 * self.STEPS * self.BATCH * k * (width + vocabulary) for k in self._ranks(setup))
        softmax = len(self._ranks(setup)) * 20.0 * self.STEPS * self.BATCH * vocabulary
        spectra = 20.0 * min(vocabulary, 6000) ** 3
        return Cost(steps + softmax + spectra, 12.0 * self.BATCH * vocabulary + 24.0 * min(vocabulary, 6000) ** 2)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows
        errors: dict[str, Any] = {}
        ranks: dict[str, int | None] = {}
        for order, name in ((2, "bigram_error"), (3, "trigram_error")):
            try:
                values = spectrum_of_sparse(ngram_matrix(ids.numpy(), setup.lens.vocabulary_size, order))
                errors[name] = w_error(values)
                # The roots of a Gram matrix's eigenvalues are known to √ε of the largest.
                ranks[name.replace("error", "rank")] = int(
                    (values > 3e-8 * len(values) ** 0.5 * values.max(initial=0.0)).sum()
                )
            except ValueError:
                errors[name] = ranks[name.replace("error", "rank")] = None
        output = setup.lens.output_embeddings
        errors["head_error"] = None if output is None else w_error(head_values(output))
        states, targets = self._states(setup, ids[: max(1, self.TOKENS // ids.shape[1])])
        rows: list[Cells] = []
        for k in self._ranks(setup):
            row: Cells = {"site": f"rank {k}", "rank": k, **ranks}
            for name in ("head_error", "bigram_error", "trigram_error"):
                values = errors[name]
                row[name] = None if values is None else float(values[min(k, len(values) - 1)])
            trained = None if output is None or len(states) < 4 else train_low_rank_head(
                states, targets, setup.lens.vocabulary_size, k, steps=self.STEPS, batch=self.BATCH, seed=setup.seed
            )  # fmt: skip
            row |= {"loss": None, "loss_interval": None}
            rows.append(row if trained is None else row | {"loss": trained.loss, "loss_interval": trained.interval})
        return rows

    def _states(self, setup: ProbeSetup, ids: Tensor) -> tuple[Tensor, Tensor]:
        states, targets = [], []
        for start in range(0, len(ids), 16):
            part = ids[start : start + 16]
            found = setup.lens.run(part.to(setup.lens.device), sites=setup.last)[setup.last]
            states.append(found[:, setup.skip_first : -1].reshape(-1, found.shape[-1]).float().cpu())
            targets.append(part[:, setup.skip_first + 1 :].reshape(-1))
        return torch.cat(states), torch.cat(targets)
