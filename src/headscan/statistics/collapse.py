"""Neural collapse: three measures of the means and variances of classes.

With class means μ_c, their unweighted mean μ̄, offsets v_c = μ_c − μ̄, directions v̂_c =
v_c/‖v_c‖ and variances s_c = E‖x − μ_c‖² within a class:

| name | formula | collapsed |
|---|---|---|
| `cdnv` (NC1) | mean over pairs c ≠ c' of (s_c + s_c')/(2‖μ_c − μ_c'‖²) | 0 |
| `interference` (NC2) | mean over pairs of cos(v_c, v_c') | −1/(C − 1) |
| `spread` (GNC2) | sd/|mean| of log 1/‖v̂_c − v̂_c'‖ over pairs | 0 |

Sources: `cdnv` Galanti et al. 2022, arXiv:2112.15121; `interference` Papyan et al. 2020,
arXiv:2008.08186; `spread` Liu et al. 2023, arXiv:2303.06484, and Wu and Papyan 2024.

A class of n vectors has a mean that is off by s_c/n itself, so that few vectors a class make `cdnv`
look smaller.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TERMS = ("pairs", "cdnv", "apart", "kernel", "kernel_squared", "all", "cosine")
"""The terms that are summed over pairs of classes, in the order of `PairSums.table`.

`pairs` counts the pairs that have a cdnv, `apart` those that have a kernel log 1/‖v̂_c − v̂_c'‖,
`all` all of them; the others are sums of values.
"""

SAME_MEAN = 1e-12
"""Two means are equal when ‖μ_c − μ_c'‖² is at most this share of the largest ‖v_c‖²."""


@dataclass(frozen=True)
class PairMeasures:
    """The measures over pairs of classes; None where there is no pair to measure."""

    cdnv: float | None
    interference: float | None
    spread: float | None


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over all ordered pairs of distinct classes, by the groups that both classes are in.

    The measures of the classes of some groups follow without reading the classes again, as a
    jackknife over groups needs.
    """

    table: Float[Tensor, "7 groups groups"]

    def of(self, groups: Bool[Tensor, " groups"] | None = None) -> PairMeasures:
        """Return the measures over the classes of the chosen groups; of all by default."""
        table = self.table if groups is None else self.table[:, groups][:, :, groups]
        sums = dict(zip(TERMS, table.sum((1, 2)).tolist(), strict=True))
        cdnv = None
        interference = None
        spread = None

        if sums["pairs"]:
            cdnv = sums["cdnv"] / sums["pairs"]
        if sums["all"]:
            interference = sums["cosine"] / sums["all"]
        if sums["apart"]:
            mean = sums["kernel"] / sums["apart"]
            variance = max(0.0, sums["kernel_squared"] / sums["apart"] - mean**2)
            if abs(mean) > 1e-12:
                spread = variance**0.5 / abs(mean)
        return PairMeasures(cdnv=cdnv, interference=interference, spread=spread)


def pair_sums(
    means: Float[Tensor, "classes width"],
    variances: Float[Tensor, " classes"],
    *,
    groups: Int[Tensor, " classes"] | None = None,
    count: int = 1,
    block: int = 1024,
) -> PairSums:
    """Return the sums over all pairs of classes, from the means μ_c and variances s_c, float64.

    `groups`: the group of each class, 0 to count − 1. Pairs whose means are equal (to 1e-12 of the
    largest ‖v_c‖²) have no cdnv, pairs of equal directions no kernel: they are left out. The pairs
    are computed in blocks of classes. Cost O(C²d); memory O(C·(d + block)).

    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> measures = pair_sums(means, torch.tensor([0.5, 1.5], dtype=torch.float64)).of()
    >>> measures.cdnv, measures.interference     # 2/(2·4); −1/(2 − 1)
    (0.25, -1.0)
    """
    classes = len(means)
    offsets = means - means.mean(0)
    norms = torch.linalg.vector_norm(offsets, dim=-1)
    directions = offsets / norms.clamp(min=1e-300)[:, None]
    squares = offsets.square().sum(-1)
    if groups is None:
        groups = torch.zeros(classes, dtype=torch.int64)
    membership = torch.nn.functional.one_hot(groups, count).double().cpu()

    table = torch.zeros(len(TERMS), count, count, dtype=torch.float64)
    for start in range(0, classes, block):
        rows = slice(start, start + block)
        row_numbers = torch.arange(start, min(start + block, classes))
        distinct = torch.arange(classes)[None, :] != row_numbers[:, None]

        distances = squares[rows, None] + squares[None, :] - 2 * offsets[rows] @ offsets.T
        distances = distances.cpu()  # squared
        separated = distinct & (distances > SAME_MEAN * squares.max().cpu())
        # Pairs that are left out are made harmless and add zero: selecting entries by a mask would
        # copy them all.
        distances.masked_fill_(~separated, 1.0)
        cdnv = (variances[rows, None] + variances[None, :]).cpu()
        cdnv.div_(2 * distances).masked_fill_(~separated, 0.0)

        cosines = (directions[rows] @ directions.T).cpu().masked_fill_(~distinct, 0.0)
        apart = distinct & (cosines < 1 - 1e-12)
        # ‖a − b‖² = 2 − 2cos for unit vectors, and log(1/‖a − b‖) = −½ log ‖a − b‖².
        kernel = (2 - 2 * cosines).masked_fill_(~apart, 1.0).log_().mul_(-0.5)

        terms = (separated, cdnv, apart, kernel, kernel.square(), distinct, cosines)
        for index, term in enumerate(terms):
            table[index] += membership[rows].T @ (term.double() @ membership)
    return PairSums(table)


def variation(values: Float[Tensor, " n"]) -> float | None:
    """Return the coefficient of variation, sd/|mean| of the population; None for a mean of 0."""
    mean = float(values.mean())
    if abs(mean) <= 1e-12:
        return None
    return float(values.std(correction=0)) / abs(mean)


def nearest_means(
    states: Float[Tensor, "n width"], means: Float[Tensor, "classes width"], *, block: int = 2048
) -> Int[Tensor, " n"]:
    """Return for each state the class whose mean is nearest; O(n C d).

    NC4 compares it with the class that the output head predicts.
    """
    squares = means.square().sum(-1)
    nearest = []
    for part in states.split(block):
        # ‖x − μ‖² but for ‖x‖², which is the same for all means
        distances = squares[None, :] - 2 * part @ means.T
        nearest.append(distances.argmin(1))
    return torch.cat(nearest)
