"""Neural collapse, from the means and variances of classes: one family of measures for whoever has classes.

With class means μ_c, their unweighted mean μ̄, offsets v_c = μ_c − μ̄, directions v̂_c = v_c/‖v_c‖, variances
s_c = E‖x − μ_c‖² within a class, C classes, and the head's row w_c for each:

| name | formula | collapsed | after |
|---|---|---|---|
| `cdnv` (NC1) | mean over pairs c ≠ c' of (s_c + s_c')/(2‖μ_c − μ_c'‖²) | 0 | Galanti et al. 2022 |
| `cdnv_squared` (NC1) | the same with ‖μ_c − μ_c'‖⁴ | 0 | Wu and Papyan 2024 |
| `equinorm` (NC2) | coefficient of variation of ‖v_c‖ | 0 | Papyan et al. 2020 |
| `interference` (NC2) | mean over pairs of cos(v_c, v_c') | −1/(C − 1) | Papyan et al. 2020 |
| `kernel_mean`, `kernel_variance` (GNC2) | of k = log 1/‖v̂_c − v̂_c'‖ over pairs | variance 0 | Liu et al. 2023 |
| `spread` (GNC2) | coefficient of variation of k, sd/|mean| | 0 | Wu and Papyan 2024 |
| `duality` (NC3) | mean of cos(w_c, v_c) | 1 | Papyan et al. 2020 |
| `duality_spread` (UNC3) | coefficient of variation of cos(w_c, v_c) | 0 | Wu and Papyan 2024 |
| simplex distance (NC2, NC3) | ‖ABᵀ/‖ABᵀ‖_F − (I − 11ᵀ/C)/√(C−1)‖_F, A = B = v, or A = w | 0 | Papyan et al. 2020 |

Papyan et al. 2020: arXiv:2008.08186; Galanti et al. 2022: arXiv:2112.15121; Liu et al. 2023: arXiv:2303.06484; Wu and
Papyan 2024 (Linguistic Collapse): arXiv:2405.17767. A class of n vectors has a mean that is off by s_c/n itself, so that
few vectors a class make `cdnv` look smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["PairMeasures", "PairSums", "nearest_means", "pair_sums", "simplex_distance", "variation"]

_ROWS = ("pairs", "cdnv", "apart", "kernel", "kernel_squared", "all", "cosine", "cdnv_squared")


@dataclass(frozen=True)
class PairMeasures:
    """What pairs of classes say; None where no pair can be asked. See the module for the formulas."""

    cdnv: float | None
    cdnv_squared: float | None
    interference: float | None
    kernel_mean: float | None
    kernel_variance: float | None
    spread: float | None


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over all ordered pairs of distinct classes, kept apart by the groups that both classes are in.

    So the measures of the classes of some groups come without looking at the classes again, which is what a jackknife
    over groups of classes wants.
    """

    table: Float[Tensor, "8 groups groups"]

    def of(self, chosen: Bool[Tensor, " groups"] | None = None) -> PairMeasures:
        """The measures over the classes of the chosen groups; of all by default."""
        part = self.table if chosen is None else self.table[:, chosen][:, :, chosen]
        sums = dict(zip(_ROWS, part.sum((1, 2)).tolist(), strict=True))
        pairs, kernels = sums["pairs"], sums["apart"]
        mean = sums["kernel"] / kernels if kernels else 0.0
        variance = max(0.0, sums["kernel_squared"] / kernels - mean**2) if kernels else 0.0
        return PairMeasures(
            cdnv=sums["cdnv"] / pairs if pairs else None,
            cdnv_squared=sums["cdnv_squared"] / pairs if pairs else None,
            interference=sums["cosine"] / sums["all"] if sums["all"] else None,
            kernel_mean=mean if kernels else None,
            kernel_variance=variance if kernels else None,
            spread=variance**0.5 / abs(mean) if abs(mean) > 1e-12 else None,
        )


def pair_sums(
    means: Float[Tensor, "classes width"],
    variances: Float[Tensor, " classes"],
    *,
    centre: Float[Tensor, " width"] | None = None,
    groups: Int[Tensor, " classes"] | None = None,
    count: int = 1,
    block: int = 1024,
) -> PairSums:
    """Go over all pairs of classes once, in blocks.

    Args:
        means: μ_c, float64.
        variances: s_c, float64.
        centre: μ̄, where these are not all classes; by default the mean of these means.
        groups: the group of each class, 0 to count − 1; by default one group for all.
        count: groups.
        block: classes of a block.

    Pairs whose means are equal (to 1e-12 of the largest ‖v_c‖²) have no cdnv, pairs of equal directions no kernel: they
    are left out. Cost O(C²d); memory O(C·(d + block)).

    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> found = pair_sums(means, torch.tensor([0.5, 1.5], dtype=torch.float64)).of()
    >>> found.cdnv, found.interference, round(found.kernel_mean, 4)     # 2/(2·4); −1/(2 − 1); −log 2
    (0.25, -1.0, -0.6931)
    """
    c = len(means)
    offsets = means - (means.mean(0) if centre is None else centre)
    lengths = torch.linalg.vector_norm(offsets, dim=-1)
    unit = offsets / lengths.clamp(min=1e-300)[:, None]
    squares = offsets.square().sum(-1)
    groups = torch.zeros(c, dtype=torch.int64) if groups is None else groups
    member = torch.nn.functional.one_hot(groups, count).double().cpu()
    table = torch.zeros(len(_ROWS), count, count, dtype=torch.float64)
    for start in range(0, c, block):
        part = slice(start, start + block)
        other = torch.arange(c)[None, :] != torch.arange(start, min(start + block, c))[:, None]
        far = (squares[part, None] + squares[None, :] - 2 * offsets[part] @ offsets.T).cpu()
        use = other & (far > 1e-12 * squares.max().cpu())
        # What is left out is made harmless and adds zero: to pick entries by a mask would copy them all.
        far.masked_fill_(~use, 1.0)
        ratio = (variances[part, None] + variances[None, :]).cpu().div_(2 * far).masked_fill_(~use, 0.0)
        cosines = (unit[part] @ unit.T).cpu().masked_fill_(~other, 0.0)
        apart = other & (cosines < 1 - 1e-12)
        # ‖a − b‖² = 2 − 2cos for unit vectors, and log(1/‖a − b‖) = −½ log ‖a − b‖².
        kernel = (2 - 2 * cosines).masked_fill_(~apart, 1.0).log_().mul_(-0.5)
        summed = (use, ratio, apart, kernel, kernel.square(), other, cosines, ratio / far)
        for row, found in enumerate(summed):
            table[row] += member[part].T @ (found.double() @ member)
    return PairSums(table)


def variation(values: Float[Tensor, " n"]) -> float | None:
    """The coefficient of variation, sd/|mean| (of the population); None where the mean is zero.

    >>> variation(torch.tensor([1.0, 3.0]))
    0.5
    """
    mean = float(values.mean())
    return float(values.std(correction=0)) / abs(mean) if abs(mean) > 1e-12 else None


def simplex_distance(a: Float[Tensor, "classes width"], b: Float[Tensor, "classes width"]) -> float | None:
    """‖ABᵀ/‖ABᵀ‖_F − (I − 11ᵀ/C)/√(C−1)‖_F in [0, 2]; None where ABᵀ is zero. O(C d²): no C x C matrix is formed.

    >>> round(simplex_distance(torch.eye(3, dtype=torch.float64) - 1 / 3, torch.eye(3, dtype=torch.float64)), 6)
    0.0
    """
    c = len(a)
    norm = max(float(((a.T @ a) * (b.T @ b)).sum()), 0.0) ** 0.5
    if norm == 0:
        return None
    inner = float((a * b).sum() - a.sum(0) @ b.sum(0) / c) / (c - 1) ** 0.5
    return float(max(2 - 2 * inner / norm, 0.0) ** 0.5)  # both matrices have norm one


def nearest_means(
    states: Float[Tensor, "n width"], means: Float[Tensor, "classes width"], *, block: int = 2048
) -> Int[Tensor, " n"]:
    """For each state the class whose mean is nearest (NC4 asks whether the head says the same). O(n C d).

    >>> nearest_means(torch.tensor([[0.1], [0.9]]), torch.tensor([[0.0], [1.0]])).tolist()
    [0, 1]
    """
    squares = means.square().sum(-1)
    found = [
        (squares[None, :] - 2 * states[start : start + block] @ means.T).argmin(1)
        for start in range(0, len(states), block)
    ]
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=means.device)
