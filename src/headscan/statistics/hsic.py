"""The sums over the same tokens at two sites that comparisons need, and the debiased dependence
(Hilbert-Schmidt independence criterion) that follows from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CrossSums:
    """The sums that the debiased dependence of x [n, p] on y [n, q] needs.

    With a = ‖x‖², b = ‖y‖²: `count` n, `xy` Σxyᵀ [p, q], `x` Σx, `y` Σy, `a` Σa, `b` Σb, `ab` Σab,
    `xb` Σxb [p], `ya` Σya [q]. Leading dimensions are batches.
    """

    count: float
    xy: Tensor
    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor
    ab: Tensor
    xb: Tensor
    ya: Tensor


def unbiased_hsic(sums: CrossSums) -> Tensor:
    """Return the unbiased estimate of the Hilbert-Schmidt independence criterion of linear kernels,
    from one pass; n ≥ 4.

    Song et al. (2012) leave the diagonals out of the Gram matrices K = XXᵀ and L = YYᵀ, with K̃ and
    L̃ the matrices without them:

        HSIC₁ = [tr K̃L̃ + (1ᵀK̃1)(1ᵀL̃1)/((n − 1)(n − 2)) − 2/(n − 2) · 1ᵀK̃L̃1] / (n(n − 3)).

    None of the three needs a matrix of tokens by tokens. With a = diag K, b = diag L, s = Σx, t =
    Σy, A = Σxyᵀ:

        tr K̃L̃   = Σᵢⱼ (xᵢ·xⱼ)(yᵢ·yⱼ) − Σ aᵢbᵢ = ‖A‖² − Σab,
        1ᵀK̃1    = ‖s‖² − Σa, and (K̃1)ᵢ = xᵢ·s − aᵢ, so
        1ᵀK̃L̃1   = Σ (xᵢ·s − aᵢ)(yᵢ·t − bᵢ) = sᵀAt − s·Σxb − t·Σya + Σab.

    A shift of all x adds rᵢ + rⱼ to every entry of K off the diagonal, which U-centring removes
    again: the value does not depend on the origin, so sums about any point near the mean give it,
    and keep their digits.
    """
    n = sums.count
    trace = sums.xy.square().sum((-2, -1)) - sums.ab
    total_k = sums.x.square().sum(-1) - sums.a
    total_l = sums.y.square().sum(-1) - sums.b

    a_t = (sums.xy @ sums.y[..., None])[..., 0]
    s_a_t = (sums.x * a_t).sum(-1)
    s_xb = (sums.x * sums.xb).sum(-1)
    t_ya = (sums.y * sums.ya).sum(-1)
    total_kl = s_a_t - s_xb - t_ya + sums.ab

    between: Tensor = total_k * total_l / ((n - 1) * (n - 2))
    numerator = trace + between - 2 / (n - 2) * total_kl
    return numerator / (n * (n - 3))


class CrossMoments:
    """Σxyᵀ of every pair of sites of two different models, Σxxᵀ of every site, and the sums that
    debiasing needs.

    `models[u]` is the model of site u, `pilots[u]` [dᵤ] a point near its vectors, about which all
    sums are taken. Products of a batch are taken in the precision of its rows (float32 at least)
    and summed in float64; with float32 rows an entry errs by about 10⁻⁷·‖xᵢ‖‖yⱼ‖. Equal vectors
    have equal moments bit for bit.

    With aᵤ = ‖xᵤ‖² of a token at site u: `total[u]` Σxᵤ, `cross[u, v]` Σxᵤxᵥᵀ, `square[u]` Σaᵤ,
    `squares[u, v]` Σaᵤaᵥ, `bent[u][:, v]` Σxᵤaᵥ.

    Cost: 2·dᵤ·dᵥ operations a token and pair; memory 8·Σdᵤdᵥ bytes.

    >>> moments = CrossMoments([0, 1], [torch.zeros(2), torch.zeros(3)])
    >>> moments.update([torch.ones(4, 2), torch.ones(4, 3)])
    >>> moments.count, moments.cross[0, 1].tolist()
    (4.0, [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]])
    """

    def __init__(self, models: Sequence[int], pilots: Sequence[Tensor]):
        self.models = list(models)
        self.pilots = list(pilots)
        self.count = 0.0

        sites = range(len(pilots))
        zero = pilots[0].new_zeros(0, dtype=torch.float64)
        self.cross: dict[tuple[int, int], Tensor] = {}
        for u in sites:
            for v in sites:
                if u == v or models[u] < models[v]:
                    self.cross[u, v] = zero.new_zeros(len(pilots[u]), len(pilots[v]))
        self.total = [zero.new_zeros(len(pilot)) for pilot in pilots]
        self.square = zero.new_zeros(len(pilots))
        self.squares = zero.new_zeros(len(pilots), len(pilots))
        self.bent = [zero.new_zeros(len(pilot), len(pilots)) for pilot in pilots]

    def update(self, rows: Sequence[Tensor]) -> None:
        """Add the same n tokens at every site: rows [n, dᵤ], in the order of the sites."""
        centred = []
        for x, pilot in zip(rows, self.pilots, strict=True):
            precise = x if x.dtype == torch.float64 else x.float()
            centred.append(precise - pilot.to(precise.dtype))
        norms = [torch.linalg.vector_norm(x, dim=1).double() for x in centred]
        squares = torch.stack([norm.square() for norm in norms], dim=1)

        self.count += len(squares)
        self.square += squares.sum(0)
        self.squares += squares.T @ squares
        for u, x in enumerate(centred):
            self.total[u] += x.sum(0, dtype=torch.float64)
            self.bent[u] += x.T @ squares.to(x.dtype)
        for (u, v), cross in self.cross.items():
            dtype = torch.promote_types(centred[u].dtype, centred[v].dtype)
            cross += centred[u].to(dtype).T @ centred[v].to(dtype)

    def pair(self, u: int, v: int) -> CrossSums:
        """Return the sums of two sites of different models, that of the lower-numbered model first,
        or of one site with itself.
        """
        return CrossSums(
            count=self.count,
            xy=self.cross[u, v],
            x=self.total[u],
            y=self.total[v],
            a=self.square[u],
            b=self.square[v],
            ab=self.squares[u, v],
            xb=self.bent[u][:, v],
            ya=self.bent[v][:, u],
        )

    def covariance(self, u: int, v: int) -> Tensor:
        """Return Σ(x − x̄)(y − ȳ)ᵀ/(n − 1) [dᵤ, dᵥ]."""
        outer = torch.outer(self.total[u], self.total[v])
        scatter = self.cross[u, v] - outer / max(self.count, 1.0)
        return scatter / max(self.count - 1, 1.0)
