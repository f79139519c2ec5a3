"""Probes of the text's counts, alone and against the embedding tables."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np

from headscan.geometry.frequency import direction_correlations, frequency_bins
from headscan.geometry.gradient import push_pull_bins
from headscan.geometry.interval import left_out
from headscan.geometry.partition import partition_isotropy
from headscan.geometry.probe import Cost, Finished, Probe, Row, Setting
from headscan.geometry.zipf import heaps, predict_table, zipf_intervals, zipf_mandelbrot
from headscan.statistics import PushPull, Seen
from headscan.statistics.accumulator import Accumulator
from headscan.text import display

__all__ = ["Frequency", "FrequencyDirections", "Gradient", "Partition", "Prediction", "Zipf"]


def tables(setting: Setting) -> dict[str, np.ndarray]:
    """The input embedding table and, where it is another, the output's; float64 [V, d]."""
    found = {"input embeddings": setting.lens.input_embeddings}
    output = setting.lens.output_embeddings
    if output is not None:
        if output.data_ptr() == setting.lens.input_embeddings.data_ptr():
            found = {"tied embeddings": output}
        else:
            found["output embeddings"] = output
    return {name: table.detach().double().cpu().numpy() for name, table in found.items()}


class Zipf(Probe):
    """Rank and frequency."""

    name = "zipf"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        c = finished.counts
        row: Row = {"site": "text", "tokens": int(c.sum()), "types": int((c > 0).sum())} | zipf_mandelbrot(c) | heaps(c)
        return [row | zipf_intervals(finished.count_parts)]


class Prediction(Probe):
    """The deck's table."""

    name = "prediction"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        found: list[Row] = predict_table(finished.counts)
        tokens = display(setting.lens.tokenizer, [int(row["id"]) for row in found]) if found else []
        sizes = np.array([part.sum() for part in finished.count_parts], dtype=float)
        for row in found:
            own = np.array([part[int(row["id"])] for part in finished.count_parts], dtype=float)
            rest = (own.sum() - own) / np.maximum(sizes.sum() - sizes, 1.0)
            interval = left_out(row["predict"], rest.tolist(), sizes, bounds=(0.0, 1.0))
            row["predict_interval"] = interval
            row["not_predict_interval"] = None if interval is None else [1 - interval[1], 1 - interval[0]]
        return [{"site": token} | row for token, row in zip(tokens, found, strict=True)]


class Partition(Probe):
    """I(W) of the tables."""

    name = "partition"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        return [{"site": name} | partition_isotropy(table) for name, table in tables(setting).items()]


class Frequency(Probe):
    """Rare and frequent rows."""

    name = "frequency"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        last = finished.clouds.get(setting.last)
        for name, table in tables(setting).items():
            mean = last.mean if last is not None and last.width == table.shape[1] else None
            rows += [{"site": name} | bin_ for bin_ in frequency_bins(table, finished.counts, mean_state=mean)]
        return rows


class FrequencyDirections(Probe):
    """Which singular directions know frequency."""

    name = "frequency_directions"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        for name, table in tables(setting).items():
            rows += [{"site": name} | row for row in direction_correlations(table, finished.counts, top=10)]
        return rows


class Gradient(Probe):
    """Push and pull."""

    name = "gradient"

    def reason(self, setting: Setting) -> str | None:
        return None if setting.head else "its logits are no linear map of the last site"

    def cost(self, setting: Setting) -> Cost:
        vocabulary, width = setting.lens.vocabulary_size, setting.lens.width(setting.last)
        return Cost(4.0 * (setting.tokens or 10**6) * vocabulary * (width + 10), 24.0 * vocabulary * width)

    def accumulators(self, setting: Setting) -> dict[str, Accumulator]:
        assert setting.head is not None
        vocabulary, width = setting.head[0].shape
        return {setting.last: PushPull(vocabulary, width, device=setting.device)}

    def see(self, setting: Setting, key: str, accumulator: Any, seen: Seen) -> None:
        assert setting.head is not None
        known = seen.next_ids >= 0
        accumulator.update(seen.rows[known], seen.next_ids[known], *setting.head)

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        sums = next(iter(finished.own.values()))
        assert isinstance(sums, PushPull)
        return [{"site": "output embeddings"} | row for row in push_pull_bins(sums)]
