"""Neural collapse of language models: do states that precede the same token gather at one point,
and the points spread?

Classes are next tokens (any other labels serve as well); everything comes from `ClassSums` of one
pass, since the scatter within a class is Σ‖x‖² − n‖μ‖². Definitions and sources:
`headscan.statistics.collapse`.
"""

import numpy as np
import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.statistics import Accumulator, ClassSums, SiteBatch
from headscan.statistics.collapse import nearest_means, pair_sums, variation
from headscan.statistics.uncertainty import Cells, Floats, jackknife, with_intervals

FEW_CLASSES = "fewer than two next tokens occur twice"
UNDER_64 = "fewer than 64 classes"

GROUPS = 16


def collapse(
    sums: ClassSums, *, weight: Tensor | None = None, least: int = 2, block: int = 1024
) -> Cells:
    """The collapse metrics over all classes with at least `least` vectors.

    `classes`, their number, and of `headscan.statistics.collapse`: `cdnv` (NC1), `equinorm` and
    `interference` (NC2), `spread` (GNC2), `duality` (NC3) and `duality_spread` (UNC3) with the
    head's `weight` [V, d]. None with fewer than two classes, or where a mean that is divided by is
    zero. NAME_interval takes the classes as the sample: one of 16 groups of them, by a hash of
    their numbers, is left out at a time; None below 64 classes. Cost O(C²d) in blocks; memory
    O(C·(d + block)).

    >>> sums = ClassSums(2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    >>> sums.update(torch.tensor([0, 0, 1, 1]), x)
    >>> found = collapse(sums, weight=torch.tensor([[2.0, 0.0], [-1.0, 0.0]]))
    >>> found["cdnv"], found["equinorm"], found["interference"], found["duality"]
    (0.0, 0.0, -1.0, 1.0)
    """
    names = ("cdnv", "equinorm", "interference", "spread", "duality", "duality_spread")
    kept = sums.counts >= max(2, least)
    c = int(kept.sum())
    if c < 2:
        return {"classes": c, **dict.fromkeys((*names, *(f"{name}_interval" for name in names)))}
    n = sums.counts[kept].double()
    means = sums.sums[kept] / n[:, None]
    variances = (sums.squares[kept] / n - means.square().sum(-1)).clamp(min=0)
    offsets = means - means.mean(0)
    lengths = torch.linalg.vector_norm(offsets, dim=-1)
    groups = _groups(sums.labels[kept])
    pairs = pair_sums(means, variances, groups=groups, count=GROUPS, block=block)
    duals = torch.zeros(0, dtype=torch.float64)
    dual_groups = groups[:0]
    if weight is not None:
        weights = weight.detach()[sums.labels[kept].to(weight.device)].to(offsets)
        sizes = torch.linalg.vector_norm(weights, dim=-1) * lengths
        duals = (weights * offsets).sum(-1)[sizes > 0] / sizes[sizes > 0]
        dual_groups = groups[sizes > 0]

    def metrics(chosen: Tensor) -> dict[str, float | None]:
        """All of them over the classes of the chosen groups."""
        mine = lengths[chosen[groups.cpu()].to(groups.device)]
        cosines = duals[chosen[dual_groups.cpu()].to(groups.device)]
        geometry = pairs.of(chosen)
        return {
            "cdnv": geometry.cdnv,
            "interference": geometry.interference,
            "spread": geometry.spread,
            "equinorm": variation(mine),
            "duality": float(cosines.mean()) if len(cosines) else None,
            "duality_spread": variation(cosines) if len(cosines) else None,
        }

    answer = metrics(torch.ones(GROUPS, dtype=torch.bool))
    # Too few classes in a group and the interval says more of the split than of the classes.
    others = [metrics(torch.arange(GROUPS) != g) for g in range(GROUPS)] if c >= 4 * GROUPS else []
    counts = torch.bincount(groups.cpu(), minlength=GROUPS).numpy()
    bounds = {
        name: (-1.0, 1.0) if name in ("interference", "duality") else (0.0, None) for name in names
    }
    row: Cells = {"classes": c, **answer}
    return row | with_intervals(answer, others, counts, bounds, running=False)


def _groups(labels: Tensor) -> Tensor:
    mixed = labels * 2654435761 % 2**32
    return (mixed ^ (mixed >> 15)) * 2246822519 % 2**32 // (2**32 // GROUPS)


def nearest_mean_hits(
    states: Tensor, predicted: Tensor, sums: ClassSums, *, least: int = 2, block: int = 2048
) -> Floats:
    """NC4: 1 for each state [n, d] whose nearest class mean belongs to the class that the head
    predicts [n], 0 for another, NaN where the class predicted has no mean of at least `least`
    vectors [n]. Cost O(nCd).

    >>> sums = ClassSums(1)
    >>> sums.update(torch.tensor([0, 0, 5, 5]), torch.tensor([[0.0], [2.0], [9.0], [11.0]]))
    >>> nearest_mean_hits(torch.tensor([[2.0], [9.0]]), torch.tensor([0, 0]), sums).tolist()
    [1.0, 0.0]
    """
    kept = sums.counts >= least
    labels = sums.labels[kept]
    found = np.full(len(states), np.nan)
    if not len(labels):
        return found
    means = sums.sums[kept] / sums.counts[kept, None]
    asked = torch.isin(predicted.to(labels.device), labels)
    states = states.to(means)[asked.to(states.device)]
    predicted = predicted.to(labels.device)[asked]
    hits = labels[nearest_means(states, means, block=block)] == predicted
    found[asked.cpu().numpy()] = hits.double().cpu().numpy()
    return found


class CollapseProbe(Probe):
    """Neural collapse over next tokens."""

    words = ProbeWords(
        name="collapse",
        title="Neural collapse",
        group="head",
        sentence="Do states that precede the same token gather at one point, do these points "
        "spread evenly, and do the head's rows point at them?",
        literature="Wu and Papyan 2024, arXiv:2405.17767; Galanti et al. 2022",
        position="All positions that have a successor: position 0 is 1 of a window's positions in "
        "each class's mean (--skip-first 1 leaves it out).",
        docs="collapse.md",
        function="headscan_lab.measures.collapse.collapse",
        sample=2000,
        order=16,
        fields={
            "classes": Field(
                "classes",
                "Next tokens that follow at least two positions (at most 4,096 are followed).",
                range=(0, None),
                unit="classes",
                interval="a count",
            ),
            "cdnv": Field(
                "CDNV (NC1)",
                "Class-distance normalised variance, mean over pairs; 0: collapsed.",
                "(s_c + s_c')/(2‖μ_c − μ_c'‖²)",
                range=(0, None),
                undefined=FEW_CLASSES,
                interval=UNDER_64,
            ),
            "equinorm": Field(
                "equinormness (NC2)",
                "Coefficient of variation of the class means' norms about their mean; 0: equal.",
                "sd‖v‖/mean‖v‖",
                range=(0, None),
                undefined=FEW_CLASSES,
                interval=UNDER_64,
            ),
            "interference": Field(
                "interference (NC2)",
                "Mean cosine between two class means; −1/(C − 1) for a simplex.",
                "mean cos(v_c, v_c')",
                range=(-1, 1),
                undefined=FEW_CLASSES,
                interval=UNDER_64,
            ),
            "spread": Field(
                "hyperspherical uniformity (GNC2)",
                "Coefficient of variation of log 1/‖v̂_c − v̂_c'‖; 0: every pair equally far.",
                "sd/|mean|",
                range=(0, None),
                undefined=FEW_CLASSES,
                interval=UNDER_64,
            ),
            "duality": Field(
                "self-duality (NC3)",
                "Mean cosine of a class mean to the head's row.",
                "mean cos(w_c, v_c)",
                range=(-1, 1),
                undefined="fewer than two next tokens occur twice, or no head of this width",
                interval=UNDER_64,
            ),
            "duality_spread": Field(
                "uniform duality (UNC3)",
                "Coefficient of variation of those cosines.",
                "sd/|mean|",
                range=(0, None),
                undefined="fewer than two next tokens occur twice, or no head of this width",
                interval=UNDER_64,
            ),
            "agreement": Field(
                "nearest mean (NC4)",
                "Share of sampled states whose nearest class mean is the class that the head "
                "predicts.",
                range=(0, 1),
                undefined="the logits are no linear map of this site, or no predicted class has a "
                "mean",
            ),
        },
    )

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {
            setup.last: ClassSums(setup.lens.width(setup.last), limit=4096, device=setup.device)
        }

    def update(
        self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        assert isinstance(accumulator, ClassSums)
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.next_ids.reshape(-1),
            batch.norms.reshape(-1),
            batch.rows.reshape(flat),
            batch.unit.reshape(flat),
        )

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sums = data.own[setup.last]
        assert isinstance(sums, ClassSums)
        weight = setup.lens.output_embeddings
        fits = weight is not None and weight.shape[1] == sums.width
        row: Cells = {"site": setup.last, **collapse(sums, weight=weight if fits else None)} | {
            "agreement": None
        }
        states = data.sample.get(setup.last)
        head = setup.lens.traits.linear_head
        if head is not None and states is not None:
            hits = nearest_mean_hits(states, head.logits(states).argmax(-1), sums)
            asked = ~np.isnan(hits)
            owners = np.unique(data.blocks[asked])
            if len(owners):
                agreement = row["agreement"] = float(hits[asked].mean())
                parts = [hits[asked & (data.blocks == owner)] for owner in owners]
                rest = [
                    (hits[asked].sum() - part.sum()) / max(1, asked.sum() - len(part))
                    for part in parts
                ]
                row["agreement_interval"] = jackknife(
                    agreement, rest, [len(part) for part in parts], bounds=(0.0, 1.0)
                )
        return [row]
