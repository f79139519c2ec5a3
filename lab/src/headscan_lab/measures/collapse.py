"""Neural collapse over next tokens: do states that precede the same token gather at one point?

Classes are next tokens (any other labels serve as well). Everything comes from `ClassSums` of one
pass, since the scatter within a class is Σ‖x‖² − n‖μ‖². Definitions and sources:
`headscan.statistics.classes`.
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
GROUPS = 16  # of classes, of which each is left out in turn
BOUNDS = {
    "cdnv": (0.0, None),
    "equinorm": (0.0, None),
    "interference": (-1.0, 1.0),
    "spread": (0.0, None),
    "duality": (-1.0, 1.0),
    "duality_spread": (0.0, None),
}
"""The metrics, and the bounds of their intervals."""


def collapse(
    sums: ClassSums, *, weight: Tensor | None = None, least: int = 2, block: int = 1024
) -> Cells:
    """Return the collapse metrics over all classes with at least `least` vectors.

    They are `classes`, their number, and of `headscan.statistics.classes`: `cdnv` (NC1), `equinorm`
    and `interference` (NC2), `spread` (GNC2), `duality` (NC3) and `duality_spread` (UNC3) with the
    head's `weight` [V, d]. A metric is None with fewer than two classes, or where a mean that is
    divided by is zero. NAME_interval takes the classes as the sample: one of 16 groups of them, by
    a hash of their numbers, is left out at a time; None below 64 classes. Cost O(C²d) in blocks;
    memory O(C·(d + block)).

    >>> sums = ClassSums(2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    >>> sums.update(torch.tensor([0, 0, 1, 1]), x)
    >>> metrics = collapse(sums, weight=torch.tensor([[2.0, 0.0], [-1.0, 0.0]]))
    >>> metrics["cdnv"], metrics["equinorm"], metrics["interference"], metrics["duality"]
    (0.0, 0.0, -1.0, 1.0)
    """
    large = sums.counts >= max(2, least)
    classes = int(large.sum())
    if classes < 2:
        undefined: Cells = {"classes": classes}
        for name in BOUNDS:
            undefined[name] = None
            undefined[f"{name}_interval"] = None
        return undefined
    counts = sums.counts[large].double()
    labels = sums.labels[large]
    means = sums.sums[large] / counts[:, None]
    variances = (sums.squares[large] / counts - means.square().sum(-1)).clamp(min=0)
    offsets = means - means.mean(0)
    lengths = torch.linalg.vector_norm(offsets, dim=-1)
    groups = _groups(labels)
    pairs = pair_sums(means, variances, groups=groups, count=GROUPS, block=block)
    cosines = torch.zeros(0, dtype=torch.float64)
    cosine_groups = groups[:0]
    if weight is not None:
        rows = weight.detach()[labels.to(weight.device)].to(offsets)
        sizes = torch.linalg.vector_norm(rows, dim=-1) * lengths
        cosines = (rows * offsets).sum(-1)[sizes > 0] / sizes[sizes > 0]
        cosine_groups = groups[sizes > 0]

    def metrics(chosen_groups: Tensor) -> dict[str, float | None]:
        """Return the metrics over the classes of the groups that are true in bool [GROUPS]."""
        own_lengths = lengths[chosen_groups[groups.cpu()].to(groups.device)]
        own_cosines = cosines[chosen_groups[cosine_groups.cpu()].to(groups.device)]
        geometry = pairs.of(chosen_groups)
        return {
            "cdnv": geometry.cdnv,
            "interference": geometry.interference,
            "spread": geometry.spread,
            "equinorm": variation(own_lengths),
            "duality": float(own_cosines.mean()) if len(own_cosines) else None,
            "duality_spread": variation(own_cosines) if len(own_cosines) else None,
        }

    all_metrics = metrics(torch.ones(GROUPS, dtype=torch.bool))
    without_one = []
    # With too few classes in a group the interval says more of the split than of the classes.
    if classes >= 4 * GROUPS:
        numbers = torch.arange(GROUPS)
        without_one = [metrics(numbers != left_out) for left_out in range(GROUPS)]
    group_sizes = torch.bincount(groups.cpu(), minlength=GROUPS).numpy()
    row: Cells = {"classes": classes, **all_metrics}
    return row | with_intervals(all_metrics, without_one, group_sizes, BOUNDS, running=False)


def _groups(labels: Tensor) -> Tensor:
    """Return the group of each class, int [C] below GROUPS, by a hash of its number."""
    mixed = labels * 2654435761 % 2**32
    return (mixed ^ (mixed >> 15)) * 2246822519 % 2**32 // (2**32 // GROUPS)


def nearest_mean_hits(
    states: Tensor, predicted: Tensor, sums: ClassSums, *, least: int = 2, block: int = 2048
) -> Floats:
    """Return NC4: whether a state's nearest class mean is of the class that the head predicts.

    It is 1 or 0 for each state, and NaN where the predicted class has no mean of at least `least`
    vectors. Cost O(nCd).

    Args:
        states: [n, d].
        predicted: the predicted classes [n].

    >>> sums = ClassSums(1)
    >>> sums.update(torch.tensor([0, 0, 5, 5]), torch.tensor([[0.0], [2.0], [9.0], [11.0]]))
    >>> nearest_mean_hits(torch.tensor([[2.0], [9.0]]), torch.tensor([0, 0]), sums).tolist()
    [1.0, 0.0]
    """
    large = sums.counts >= least
    labels = sums.labels[large]
    hits = np.full(len(states), np.nan)
    if not len(labels):
        return hits
    means = sums.sums[large] / sums.counts[large, None]
    has_mean = torch.isin(predicted.to(labels.device), labels)
    classified = states.to(means)[has_mean.to(states.device)]
    nearest = labels[nearest_means(classified, means, block=block)]
    agrees = nearest == predicted.to(labels.device)[has_mean]
    hits[has_mean.cpu().numpy()] = agrees.double().cpu().numpy()
    return hits


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
        self, _setup: ProbeSetup, _key: str, accumulator: Accumulator, batch: SiteBatch
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
        row: Cells = {"site": setup.last, **collapse(sums, weight=weight if fits else None)}
        row["agreement"] = None
        states = data.sample.get(setup.last)
        head = setup.lens.traits.linear_head
        if head is not None and states is not None:
            hits = nearest_mean_hits(states, head.logits(states).argmax(-1), sums)
            row |= _agreement(hits, data)
        return [row]


def _agreement(hits: Floats, data: ProbeData) -> Cells:
    """Return the share of hits, with its interval over the blocks of the sample."""
    defined = ~np.isnan(hits)
    owners = np.unique(data.blocks[defined])
    if not len(owners):
        return {}
    agreement = float(hits[defined].mean())
    parts = [hits[defined & (data.blocks == owner)] for owner in owners]
    total = hits[defined].sum()
    count = defined.sum()
    without_one = [(total - part.sum()) / max(1, count - len(part)) for part in parts]
    sizes = [len(part) for part in parts]
    return {
        "agreement": agreement,
        "agreement_interval": jackknife(agreement, without_one, sizes, bounds=(0.0, 1.0)),
    }
