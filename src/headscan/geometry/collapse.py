"""Neural collapse of language models: do states that precede the same token gather at one point, and the points spread?

Classes are next tokens (any other labels serve as well); everything comes from `ClassSums` of one pass, since the
scatter within a class is Σ‖x‖² − n‖μ‖². Definitions and sources: `headscan.statistics.collapse`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.geometry.explained import Cells
from headscan.geometry.interval import with_intervals
from headscan.statistics import ClassSums
from headscan.statistics.collapse import nearest_means, pair_sums, variation

__all__ = ["collapse", "nearest_mean_agreement", "nearest_mean_hits"]

GROUPS = 16


def collapse(sums: ClassSums, *, weight: Tensor | None = None, least: int = 2, block: int = 1024) -> Cells:
    """The collapse metrics over all classes with at least `least` vectors (two, or a class has no scatter).

    `classes`, how many that is, and of the measures that `headscan.statistics.collapse` defines: `cdnv` (NC1), `equinorm`
    and `interference` (NC2), `spread` (GNC2), `duality` (NC3) and `duality_spread` (UNC3) with the head's `weight` [V, d].
    None, with fewer than two such classes, for all; where a mean that is divided by is zero, for that one.

    NAME_interval is a 95 % interval that takes the classes as the sample: one of 16 groups of them, by a hash of their
    numbers, is left out at a time (μ̄ stays), out of the same sums over pairs. It does not cover the choice of the text,
    whose blocks would each need a table of all class means. None below 64 classes.
    Cost O(C²d) in blocks; memory O(C·(d + block)).

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
    duals, dual_groups = torch.zeros(0, dtype=torch.float64), groups[:0]
    if weight is not None:
        weights = weight.detach()[sums.labels[kept].to(weight.device)].to(offsets)
        sizes = torch.linalg.vector_norm(weights, dim=-1) * lengths
        duals = (weights * offsets).sum(-1)[sizes > 0] / sizes[sizes > 0]
        dual_groups = groups[sizes > 0]

    def metrics(chosen: Tensor) -> dict[str, float | None]:
        """All of them over the classes of the chosen groups."""
        mine = lengths[chosen[groups.cpu()].to(groups.device)]
        cosines = duals[chosen[dual_groups.cpu()].to(groups.device)]
        found = pairs.of(chosen)
        return {
            "cdnv": found.cdnv,
            "interference": found.interference,
            "spread": found.spread,
            "equinorm": variation(mine),
            "duality": float(cosines.mean()) if len(cosines) else None,
            "duality_spread": variation(cosines) if len(cosines) else None,
        }

    answer = metrics(torch.ones(GROUPS, dtype=torch.bool))
    # Too few classes in a group and the interval says more of the split than of the classes.
    others = [metrics(torch.arange(GROUPS) != g) for g in range(GROUPS)] if c >= 4 * GROUPS else []
    counts = torch.bincount(groups.cpu(), minlength=GROUPS).numpy()
    bounds = {name: (-1.0, 1.0) if name in ("interference", "duality") else (0.0, None) for name in names}
    row: Cells = {"classes": c, **answer}
    return row | with_intervals(answer, others, counts, bounds, running=False)


def _groups(labels: Tensor) -> Tensor:
    """One of 16 groups for each class, by its number alone."""
    mixed = labels * 2654435761 % 2**32
    return (mixed ^ (mixed >> 15)) * 2246822519 % 2**32 // (2**32 // GROUPS)


def nearest_mean_agreement(
    states: Tensor, predicted: Tensor, sums: ClassSums, *, least: int = 2, block: int = 2048
) -> float | None:
    """NC4: the share of states [n, d] whose nearest class mean belongs to the class that the head predicts [n]; [0, 1].

    Only states whose predicted class has a mean (of at least `least` vectors) are asked; None where there are none.
    Cost O(nCd).

    >>> sums = ClassSums(1)
    >>> sums.update(torch.tensor([0, 0, 5, 5]), torch.tensor([[0.0], [2.0], [9.0], [11.0]]))
    >>> nearest_mean_agreement(torch.tensor([[2.0], [9.0]]), torch.tensor([0, 0]), sums)
    0.5
    """
    hits = nearest_mean_hits(states, predicted, sums, least=least, block=block)
    return None if np.isnan(hits).all() else float(np.nanmean(hits))


def nearest_mean_hits(
    states: Tensor, predicted: Tensor, sums: ClassSums, *, least: int = 2, block: int = 2048
) -> npt.NDArray[np.float64]:
    """1 or 0 for each state of `nearest_mean_agreement` that is asked, NaN for the others [n]."""
    kept = sums.counts >= least
    labels = sums.labels[kept]
    found = np.full(len(states), np.nan)
    if not len(labels):
        return found
    means = sums.sums[kept] / sums.counts[kept, None]
    asked = torch.isin(predicted.to(labels.device), labels)
    states, predicted = states.to(means)[asked.to(states.device)], predicted.to(labels.device)[asked]
    hits = labels[nearest_means(states, means, block=block)] == predicted
    found[asked.cpu().numpy()] = hits.double().cpu().numpy()
    return found
