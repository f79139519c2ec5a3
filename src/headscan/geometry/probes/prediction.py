"""The probe `prediction`: To predict, and not to predict."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import left_out
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.zipf import predict_table
from headscan.text import display

__all__ = ["PredictionProbe"]


class PredictionProbe(Probe):
    """The deck's table."""

    words = ProbeWords(
        name="prediction", title="To predict, and not to predict", group="zipf",
        sentence="How often is each token the one to predict, and how often one not to predict? Frequent tokens are "
        "pulled now and then, rare ones are pushed always.",
        literature="the cone-shaped heads talk, after Gao et al. 2019",
        position="The text's counts know no position.", docs="zipf.md",
        function="headscan.geometry.zipf.predict_table", order=8, fields={
            "rank": Field("rank", "By frequency in the text.", range=(1, None), interval="a place in an order"),
            "count": Field("count", "Occurrences.", range=(0, None), unit="tokens", interval="a count"),
            "predict": Field("to predict", "Share of positions where it is the token to predict.", "c/N", (0, 1),
                percent=True),
            "not_predict": Field("not to predict", "Share of positions where it is one not to predict.", "1 − c/N",
                (0, 1), percent=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        found = predict_table(data.counts)
        tokens = display(setup.lens.tokenizer, [int(row["id"]) for row in found]) if found else []
        sizes = np.array([part.sum() for part in data.count_parts], dtype=float)
        rows: list[Cells] = []
        for row in found:
            own = np.array([float(part[int(row["id"])]) for part in data.count_parts], dtype=float)
            rest = (own.sum() - own) / np.maximum(sizes.sum() - sizes, 1.0)
            interval = left_out(row["predict"], rest.tolist(), sizes, bounds=(0.0, 1.0))
            other = None if interval is None else [1 - interval[1], 1 - interval[0]]
            rows.append({"site": tokens[len(rows)], **row, "predict_interval": interval, "not_predict_interval": other})
        return rows
