"""The probe `collapse`: neural collapse."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np

from headscan.geometry.collapse import collapse, nearest_mean_hits
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import left_out
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.statistics import ClassSums, SiteBatch
from headscan.statistics.accumulator import Accumulator

__all__ = ["CollapseProbe"]


class CollapseProbe(Probe):
    """Neural collapse over next tokens."""

    words = ProbeWords(
        name="collapse", title="Neural collapse", group="head",
        sentence="Do states that precede the same token gather at one point, do these points spread evenly, and do "
        "the head's rows point at them?",
        literature="Wu and Papyan 2024, arXiv:2405.17767; Galanti et al. 2022",
        position="All positions that have a successor: position 0 is 1 of a window's positions in each class's mean "
        "(--skip-first 1 leaves it out).",
        docs="collapse.md", function="headscan.geometry.collapse.collapse", sample=2000, order=16, fields={
            "classes": Field("classes",
                "Next tokens that follow at least two positions (at most 4,096 are followed).", range=(0, None),
                unit="classes", interval="a count"),
            "cdnv": Field("CDNV (NC1)", "Class-distance normalised variance, mean over pairs; 0: collapsed.",
                "(s_c + s_c')/(2‖μ_c − μ_c'‖²)", (0, None), undefined="fewer than two next tokens occur twice",
                interval="fewer than 64 classes"),
            "equinorm": Field("equinormness (NC2)",
                "Coefficient of variation of the class means' norms about their mean; 0: equal.", "sd‖v‖/mean‖v‖",
                (0, None), undefined="fewer than two next tokens occur twice", interval="fewer than 64 classes"),
            "interference": Field("interference (NC2)",
                "Mean cosine between two class means; −1/(C − 1) for a simplex.", "mean cos(v_c, v_c')", (-1, 1),
                undefined="fewer than two next tokens occur twice", interval="fewer than 64 classes"),
            "spread": Field("hyperspherical uniformity (GNC2)",
                "Coefficient of variation of log 1/‖v̂_c − v̂_c'‖; 0: every pair equally far.", "sd/|mean|",
                (0, None), undefined="fewer than two next tokens occur twice", interval="fewer than 64 classes"),
            "duality": Field("self-duality (NC3)", "Mean cosine of a class mean to the head's row.",
                "mean cos(w_c, v_c)", (-1, 1),
                undefined="fewer than two next tokens occur twice, or no head of this width",
                interval="fewer than 64 classes"),
            "duality_spread": Field("uniform duality (UNC3)", "Coefficient of variation of those cosines.",
                "sd/|mean|", (0, None), undefined="fewer than two next tokens occur twice, or no head of this width",
                interval="fewer than 64 classes"),
            "agreement": Field("nearest mean (NC4)",
                "Share of sampled states whose nearest class mean is the class that the head predicts.", range=(0, 1),
                undefined="the logits are no linear map of this site, or no predicted class has a mean"),
        },
    )  # fmt: skip

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: ClassSums(setup.lens.width(setup.last), limit=4096, device=setup.device)}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        assert isinstance(accumulator, ClassSums)
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.next_ids.reshape(-1), batch.norms.reshape(-1), batch.rows.reshape(flat), batch.unit.reshape(flat)
        )

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sums = data.own[setup.last]
        assert isinstance(sums, ClassSums)
        weight = setup.lens.output_embeddings
        fits = weight is not None and weight.shape[1] == sums.width
        row: Cells = {"site": setup.last, **collapse(sums, weight=weight if fits else None)} | {"agreement": None}
        states = data.sample.get(setup.last)
        head = setup.lens.traits.linear_head
        if head is not None and states is not None:
            hits = nearest_mean_hits(states, head.logits(states).argmax(-1), sums)
            asked = ~np.isnan(hits)
            owners = np.unique(data.blocks[asked])
            if len(owners):
                agreement = row["agreement"] = float(hits[asked].mean())
                parts = [hits[asked & (data.blocks == owner)] for owner in owners]
                rest = [(hits[asked].sum() - part.sum()) / max(1, asked.sum() - len(part)) for part in parts]
                sizes = [len(part) for part in parts]
                row["agreement_interval"] = left_out(agreement, rest, sizes, bounds=(0.0, 1.0))
        return [row]
