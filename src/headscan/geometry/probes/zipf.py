"""Probes of the text's counts, alone and against the embedding tables."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np

from headscan.geometry.frequency import direction_correlations, frequency_bins
from headscan.geometry.gradient import push_pull_bins
from headscan.geometry.interval import left_out
from headscan.geometry.partition import partition_isotropy
from headscan.geometry.probe import Cost, Probe, ProbeData, ProbeSetup, Row
from headscan.geometry.zipf import heaps, predict_table, zipf_intervals, zipf_mandelbrot
from headscan.statistics import PushPull, SiteBatch
from headscan.statistics.accumulator import Accumulator
from headscan.text import display

__all__ = [
    "FrequencyDirectionsProbe",
    "FrequencyProbe",
    "GradientProbe",
    "PartitionProbe",
    "PredictionProbe",
    "ZipfProbe",
]


def tables(setup: ProbeSetup) -> dict[str, np.ndarray]:
    """The input embedding table and, where it is another, the output's; float64 [V, d]."""
    found = {"input embeddings": setup.lens.input_embeddings}
    output = setup.lens.output_embeddings
    if output is not None:
        if output.data_ptr() == setup.lens.input_embeddings.data_ptr():
            found = {"tied embeddings": output}
        else:
            found["output embeddings"] = output
    return {name: table.detach().double().cpu().numpy() for name, table in found.items()}


class ZipfProbe(Probe):
    """Rank and frequency."""

    name = "zipf"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        c = data.counts
        row: Row = {"site": "text", "tokens": int(c.sum()), "types": int((c > 0).sum())} | zipf_mandelbrot(c) | heaps(c)
        return [row | zipf_intervals(data.count_parts)]


class PredictionProbe(Probe):
    """The deck's table."""

    name = "prediction"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        found: list[Row] = predict_table(data.counts)
        tokens = display(setup.lens.tokenizer, [int(row["id"]) for row in found]) if found else []
        sizes = np.array([part.sum() for part in data.count_parts], dtype=float)
        for row in found:
            own = np.array([part[int(row["id"])] for part in data.count_parts], dtype=float)
            rest = (own.sum() - own) / np.maximum(sizes.sum() - sizes, 1.0)
            interval = left_out(row["predict"], rest.tolist(), sizes, bounds=(0.0, 1.0))
            row["predict_interval"] = interval
            row["not_predict_interval"] = None if interval is None else [1 - interval[1], 1 - interval[0]]
        return [{"site": token} | row for token, row in zip(tokens, found, strict=True)]


class PartitionProbe(Probe):
    """I(W) of the tables."""

    name = "partition"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        return [{"site": name} | partition_isotropy(table) for name, table in tables(setup).items()]


class FrequencyProbe(Probe):
    """Rare and frequent rows."""

    name = "frequency"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows: list[Row] = []
        last = data.clouds.get(setup.last)
        for name, table in tables(setup).items():
            mean = last.mean if last is not None and last.width == table.shape[1] else None
            rows += [{"site": name} | bin_ for bin_ in frequency_bins(table, data.counts, mean_state=mean)]
        return rows


class FrequencyDirectionsProbe(Probe):
    """Which singular directions know frequency."""

    name = "frequency_directions"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows: list[Row] = []
        for name, table in tables(setup).items():
            rows += [{"site": name} | row for row in direction_correlations(table, data.counts, top=10)]
        return rows


class GradientProbe(Probe):
    """Push and pull."""

    name = "gradient"

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.traits.linear_head else "its logits are no linear map of the last site"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        return Cost(4.0 * (setup.tokens or 10**6) * vocabulary * (width + 10), 24.0 * vocabulary * width)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        head = setup.lens.traits.linear_head
        assert head is not None
        vocabulary, width = head.weight.shape
        return {setup.last: PushPull(vocabulary, width, device=setup.device)}

    def update(self, setup: ProbeSetup, key: str, accumulator: Any, batch: SiteBatch) -> None:
        head = setup.lens.traits.linear_head
        assert head is not None
        known = batch.next_ids >= 0
        accumulator.update(batch.rows[known], batch.next_ids[known], head.weight, head.bias)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        sums = next(iter(data.own.values()))
        assert isinstance(sums, PushPull)
        return [{"site": "output embeddings"} | row for row in push_pull_bins(sums)]
