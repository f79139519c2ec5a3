"""Probes of what the head is and what it reads: its spectrum, the hull of its inputs, collapse, the bottleneck."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.collapse import collapse, nearest_mean_hits
from headscan.geometry.head import head_spectrum, ngram_matrix, spectrum_of_sparse, train_low_rank_head, w_error
from headscan.geometry.interval import left_out
from headscan.geometry.negative import nearest_point
from headscan.geometry.probe import Cost, Probe, ProbeData, ProbeSetup, Row
from headscan.geometry.ranks import entropy_of
from headscan.statistics import ClassSums, SiteBatch
from headscan.statistics.accumulator import Accumulator

__all__ = ["BottleneckProbe", "CollapseProbe", "HeadProbe", "LossProbe", "NegativeProbe"]

NO_HEAD = "the model has no output layer"


class HeadProbe(Probe):
    """The head's spectrum."""

    name = "head"

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.output_embeddings is not None else NO_HEAD

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        return [{"site": "output embeddings"} | head_spectrum(setup.lens.output_embeddings)]


class LossProbe(Probe):
    """How well does the model predict?"""

    name = "loss"
    TOKENS = 8192

    def reason(self, setup: ProbeSetup) -> str | None:
        if "head" not in setup.lens.sites or setup.lens.width("head") < setup.lens.vocabulary_size:
            return "it gives no logits over its vocabulary"
        return None if setup.lens.traits.causal else "its logits see the tokens that follow"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        ids = data.windows[: max(1, self.TOKENS // setup.context)]
        if ids.shape[-1] < 2:
            return []
        lost: list[Tensor] = []
        step = max(1, min(2048 // setup.context, 2**25 // (setup.context * setup.lens.vocabulary_size)))
        for part in ids.split(step):
            targets = part[:, setup.skip_first + 1 :].to(setup.lens.device)

            def take(site: str, logits: Tensor, targets=targets) -> None:
                scores = logits[:, setup.skip_first : -1].float()
                each = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
                lost.append(each.double().reshape(targets.shape).sum(1).cpu())

            setup.lens.run(part.to(setup.lens.device), sites="head", each=take)
        sums, length = torch.cat(lost).numpy(), ids.shape[1] - 1 - setup.skip_first
        loss = float(sums.mean()) / length
        parts = np.array_split(sums, min(8, len(sums)))
        left = [float(sums.sum() - part.sum()) / (length * max(1, len(sums) - len(part))) for part in parts]
        interval = left_out(loss, left, [len(part) for part in parts], bounds=(0.0, None))
        unigram = entropy_of(data.counts / max(1, data.counts.sum()))
        return [
            {
                "site": "head",
                "loss": loss,
                "loss_interval": interval,
                "unigram_entropy": unigram,
                "predicted": len(sums) * length,
            }
        ]


class NegativeProbe(Probe):
    """The uniformly negative direction."""

    name = "negative"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        states = data.sample.get(setup.last)
        if states is None or not len(states):
            return []
        x = states.double().numpy()
        found, half = nearest_point(x), nearest_point(x[: len(x) // 2])
        assert found is not None
        row: Row = {"verdict": found.verdict, "margin": found.lowest, "distance": found.distance, "gap": found.gap}
        row |= {"support": len(found.support), "violated": None, "states": len(x)}
        if half is not None and half.verdict == "uniformly negative":
            wrong = x[len(x) // 2 :] @ half.point <= 0
            row |= {"violated": float(wrong.mean()), "violated_interval": wilson(int(wrong.sum()), len(wrong))}
        return [{"site": setup.last} | row]


def wilson(hits: int, n: int) -> list[float]:
    """The 95 % score interval of a share (Wilson 1927); it is never empty, even where there are no hits.

    >>> [round(end, 4) for end in wilson(0, 1000)]
    [0.0, 0.0038]
    """
    z, p = 1.96, hits / n
    centre, reach = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return [max(0.0, (centre - reach) / (1 + z * z / n)), min(1.0, (centre + reach) / (1 + z * z / n))]


class CollapseProbe(Probe):
    """Neural collapse over next tokens."""

    name = "collapse"

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: ClassSums(setup.lens.width(setup.last), limit=4096, device=setup.device)}

    def update(self, setup: ProbeSetup, key: str, accumulator: Any, batch: SiteBatch) -> None:
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.next_ids.reshape(-1), batch.norms.reshape(-1), batch.rows.reshape(flat), batch.unit.reshape(flat)
        )

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        sums = data.own[setup.last]
        assert isinstance(sums, ClassSums)
        weight = setup.lens.output_embeddings
        fits = weight is not None and weight.shape[1] == sums.width
        row: Row = {"site": setup.last} | collapse(sums, weight=weight if fits else None) | {"agreement": None}
        states = data.sample.get(setup.last)
        head = setup.lens.traits.linear_head
        if head is not None and states is not None:
            logits = head.logits(states)
            hits = nearest_mean_hits(states, logits.argmax(-1), sums)
            asked = ~np.isnan(hits)
            owners = np.unique(data.blocks[asked])
            if len(owners):
                row["agreement"] = float(hits[asked].mean())
                parts = [hits[asked & (data.blocks == owner)] for owner in owners]
                rest = [(hits[asked].sum() - part.sum()) / max(1, asked.sum() - len(part)) for part in parts]
                sizes = [len(part) for part in parts]
                row["agreement_interval"] = left_out(row["agreement"], rest, sizes, bounds=(0.0, 1.0))
        return [row]


class BottleneckProbe(Probe):
    """What rank the data want."""

    name = "bottleneck"
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

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
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
        errors["head_error"] = None if output is None else w_error(head_spectrum(output)["singular_values"])
        states, targets = self._states(setup, ids[: max(1, self.TOKENS // ids.shape[1])])
        rows: list[Row] = []
        for k in self._ranks(setup):
            row: Row = {"site": f"rank {k}", "rank": k, **ranks}
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
