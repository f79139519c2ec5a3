"""Neural collapse of language models: do states that precede the same token gather at one point, and the points spread?

Classes are next tokens (any other labels serve as well); everything comes from `ClassSums` of one pass, since the
scatter within a class is Σ‖x‖² − n‖μ‖². Definitions: Wu and Papyan 2024, arXiv:2405.17767 (Linguistic Collapse), after
Papyan et al. 2020 and, for CDNV, Galanti et al. 2022.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.geometry.explained import Cells
from headscan.geometry.interval import left_out
from headscan.statistics import ClassSums

__all__ = ["collapse", "nearest_mean_agreement", "nearest_mean_hits"]

GROUPS = 16


def collapse(sums: ClassSums, *, weight: Tensor | None = None, least: int = 2, block: int = 1024) -> Cells:
    """The collapse metrics over all classes with at least `least` vectors (two, or a class has no scatter).

    With class means μ_c, their unweighted mean μ̄, v_c = μ_c − μ̄ and the variance s_c = Σ‖x − μ_c‖²/n_c:
        classes: how many classes that is;
        cdnv (NC1): mean over pairs c ≠ c' of (s_c + s_c')/(2‖μ_c − μ_c'‖²); ≥ 0, 0: collapsed. A class of n vectors has
            a mean that is off by s_c/n itself, so that few vectors a class make it look smaller;
        equinorm (NC2): coefficient of variation of ‖v_c‖; ≥ 0, 0: all classes at one distance;
        interference (NC2): mean over pairs of cos(v_c, v_c'); −1/(C − 1) for a simplex, 0 for orthogonal means;
        spread (GNC2): coefficient of variation over pairs of the kernel log(1/‖v̂_c − v̂_c'‖), sd/|mean|; 0: every pair
            equally far. Pairs of equal directions are left out;
        duality (NC3): mean of cos(w_c, v_c) with the rows w_c of the head `weight` [V, d]; 1: self-dual;
        duality_spread (UNC3): coefficient of variation of those cosines.
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
        return {"classes": c} | dict.fromkeys(names) | {f"{name}_interval": None for name in names}
    n = sums.counts[kept].double()
    means = sums.sums[kept] / n[:, None]
    scatter = (sums.squares[kept] / n - means.square().sum(-1)).clamp(min=0)
    offsets = means - means.mean(0)
    lengths = torch.linalg.vector_norm(offsets, dim=-1)
    unit = offsets / lengths.clamp(min=1e-300)[:, None]
    squares = offsets.square().sum(-1)
    groups = _groups(sums.labels[kept])
    member = torch.nn.functional.one_hot(groups, GROUPS).double().cpu()
    # Pairs and Σ CDNV; pairs, Σ kernel, Σ kernel²; pairs and Σ cosine; each by the groups of both classes.
    sums_of = torch.zeros(7, GROUPS, GROUPS, dtype=torch.float64)
    for start in range(0, c, block):
        part = slice(start, start + block)
        other = torch.arange(c)[None, :] != torch.arange(start, min(start + block, c))[:, None]
        far = (squares[part, None] + squares[None, :] - 2 * offsets[part] @ offsets.T).cpu()
        use = other & (far > 1e-12 * squares.max().cpu())
        # What is left out is made harmless and adds zero: to pick entries by a mask would copy them all.
        ratio = (
            (scatter[part, None] + scatter[None, :]).cpu().div_(2 * far.masked_fill_(~use, 1.0)).masked_fill_(~use, 0.0)
        )
        cosines = (unit[part] @ unit.T).cpu().masked_fill_(~other, 0.0)
        apart = other & (cosines < 1 - 1e-12)
        # ‖a − b‖² = 2 − 2cos for unit vectors, and log(1/‖a − b‖) = −½ log ‖a − b‖².
        kernel = (2 - 2 * cosines).masked_fill_(~apart, 1.0).log_().mul_(-0.5)
        for k, found in enumerate((use, ratio, apart, kernel, kernel.square(), other, cosines)):
            sums_of[k] += member[part].T @ (found.double() @ member)
    weights = None if weight is None else weight.detach()[sums.labels[kept].to(weight.device)].to(offsets)
    duals = torch.zeros(0, dtype=torch.float64)
    dual_groups = groups[:0]
    if weights is not None:
        sizes = torch.linalg.vector_norm(weights, dim=-1) * lengths
        duals = (weights * offsets).sum(-1)[sizes > 0] / sizes[sizes > 0]
        dual_groups = groups[sizes > 0]

    def metrics(chosen: Tensor) -> dict[str, float | None]:
        """All of them over the classes of the chosen groups."""
        mine, twins = chosen[groups.cpu()].to(groups.device), chosen[dual_groups.cpu()].to(groups.device)
        return _from_pairs(sums_of[:, chosen][:, :, chosen].sum((1, 2)).tolist()) | {
            "equinorm": _variation(lengths[mine]),
            "duality": float(duals[twins].mean()) if bool(twins.any()) else None,
            "duality_spread": _variation(duals[twins]) if bool(twins.any()) else None,
        }

    answer = metrics(torch.ones(GROUPS, dtype=torch.bool))
    # Too few classes in a group and the interval says more of the split than of the classes.
    others = [metrics(torch.arange(GROUPS) != g) for g in range(GROUPS)] if c >= 4 * GROUPS else []
    counts = torch.bincount(groups.cpu(), minlength=GROUPS).numpy()
    for name in names:
        values = [other[name] for other in others]
        low = -1.0 if name in ("interference", "duality") else 0.0
        high = 1.0 if name in ("interference", "duality") else None
        answer[f"{name}_interval"] = left_out(answer[name], values, counts, bounds=(low, high)) if others else None  # type: ignore[assignment]
    return {"classes": c} | answer


def _groups(labels: Tensor) -> Tensor:
    """One of 16 groups for each class, by its number alone."""
    mixed = labels * 2654435761 % 2**32
    return (mixed ^ (mixed >> 15)) * 2246822519 % 2**32 // (2**32 // GROUPS)


def _from_pairs(sums: list[float]) -> dict[str, float | None]:
    """CDNV, spread and interference from the sums over pairs of classes."""
    pairs, cdnv, kernels, kernel_sum, kernel_square, all_pairs, cosine_sum = sums
    mean = kernel_sum / kernels if kernels else 0.0
    deviation = max(0.0, kernel_square / kernels - mean**2) ** 0.5 if kernels else 0.0
    return {
        "cdnv": cdnv / pairs if pairs else None,
        "interference": cosine_sum / all_pairs if all_pairs else None,
        "spread": deviation / abs(mean) if abs(mean) > 1e-12 else None,
    }


def _variation(values: Tensor) -> float | None:
    mean = float(values.mean())
    return float(values.std(correction=0)) / abs(mean) if abs(mean) > 1e-12 else None


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
    squares, hits = means.square().sum(-1), []
    for start in range(0, len(states), block):
        distances = squares[None, :] - 2 * states[start : start + block] @ means.T
        hits.append(labels[distances.argmin(1)] == predicted[start : start + block])
    if hits:
        found[asked.cpu().numpy()] = torch.cat(hits).double().cpu().numpy()
    return found
