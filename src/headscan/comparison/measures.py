"""The measures of similarity: CKA, linear predictability, mutual neighbours, Procrustes, RSA,
SVCCA.
"""

import torch
from torch import Tensor

from headscan.comparison.covariance import CrossCovariance
from headscan.comparison.similarity import (
    SIMILARITIES,
    MomentMeasure,
    RelationMeasure,
    SimilarityWords,
)


@SIMILARITIES.register("cka")
class Cka(MomentMeasure):
    """HSIC₁(x, y) / √(HSIC₁(x, x)·HSIC₁(y, y)), of the unbiased HSIC
    (`headscan.statistics.gram.unbiased_hsic`).

    Where only covariances are known (parts of a text that an interval leaves out) it is the one
    that is not debiased.
    """

    words = SimilarityWords(
        title="CKA",
        sentence="Agreement on which tokens are similar, by centred inner products; 0 on average "
        "if unrelated.",
        formula="HSIC₁(X, Y) / √(HSIC₁(X, X)·HSIC₁(Y, Y))",
        range=(-1.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Kornblith et al. 2019, arXiv:1905.00414; Song et al. 2012 for the debiasing",
        cost="2·d·d' operations a token and pair, one pass",
        order=10,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        if pair.hsic is None:
            return pair.xy.square().sum((-2, -1)) / (pair.x.norm * pair.y.norm)
        between, x, y = pair.hsic
        return between / torch.where((x > 0) & (y > 0), x * y, torch.nan).sqrt()


@SIMILARITIES.register("linear")
class Linear(MomentMeasure):
    """R² = ‖W_xᵀC_xy‖² / tr C_yy of least squares from the first site to the second, adjusted for
    its p directions: 1 − (1 − R²)(n − 1)/(n − p − 1).

    The adjustment takes tokens as independent; where documents hang together, some of the excess
    stays.
    """

    words = SimilarityWords(
        title="Linear predictability",
        sentence="The share of the second site's variance that a linear map of the first predicts.",
        formula="1 − (1 − R²)(n − 1)/(n − p − 1), R² = ‖C_xx^−½ C_xy‖² / tr C_yy",
        range=(-1.0, 1.0),
        invariant="of the first site any invertible map; of the second rotation, one scale, shift",
        source="Ezekiel 1930 for the adjustment; Kornblith et al. 2019, arXiv:1905.00414",
        cost="the same sums as CKA, and one product a pair",
        symmetric=False,
        order=50,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """Return at most 1; NaN where there are no more tokens than directions.

        The variance of the second site is that of its own whitened directions: the trace, computed
        in the same way.
        """
        explained = (pair.x.whitened.map.mT @ pair.xy).square().sum((-2, -1))
        total = (pair.y.whitened.map.mT @ pair.y.matrix).square().sum((-2, -1))
        freedom = pair.count - pair.x.whitened.kept - 1
        share = 1 - (1 - explained / total) * (pair.count - 1) / freedom
        return torch.where(freedom > 0, share, torch.nan)


NEIGHBOURS = 10


@SIMILARITIES.register("mutual_knn")
class MutualKnn(RelationMeasure):
    """The mean of |N_x(i) ∩ N_y(i)|/10, N the ten tokens of the sample with the greatest cosine.

    Of unrelated sites it is 10/(n − 1). It depends on n: values of samples of different sizes are
    not comparable.
    """

    words = SimilarityWords(
        title="Mutual neighbours",
        sentence="Share of a token's ten nearest neighbours in a sample that are the same on "
        "both sides, on average.",
        formula="mean |N_x(i) ∩ N_y(i)| / 10",
        range=(0.0, 1.0),
        invariant="rotation, scale of each token",
        source="Huh et al. 2024, arXiv:2405.07987",
        cost="O(n²d) a site and O(n²) a pair, n tokens of the sample",
        tokens="sample",
        order=70,
    )

    def relation(self, rows: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(rows, dim=1)
        cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
        neighbours = cosines.topk(min(NEIGHBOURS, len(rows) - 1), dim=1).indices
        return torch.zeros_like(cosines).scatter_(1, neighbours, 1.0)


@SIMILARITIES.register("procrustes")
class Procrustes(MomentMeasure):
    """‖C_xy‖_* / √(tr C_xx · tr C_yy): one minus half of the squared Procrustes distance of the
    clouds at length one.

    Its arc cosine is a metric (Williams et al. 2021). Of unrelated round clouds of d dimensions it
    is about 0.85·√(d/n).
    """

    words = SimilarityWords(
        title="Procrustes",
        sentence="How closely the two clouds coincide after the best rotation and one scale.",
        formula="‖C_xy‖_* / √(tr C_xx·tr C_yy)",
        range=(0.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Schönemann 1966; Williams et al. 2021, arXiv:2110.14739",
        cost="the same sums as CKA, and one singular value decomposition a pair",
        order=20,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        return pair.nuclear / (pair.x.nuclear * pair.y.nuclear).sqrt()


@SIMILARITIES.register("rsa")
class Rsa(RelationMeasure):
    """Spearman's correlation of the two tables of distances (1 − cosine about the sample's mean)
    between tokens.
    """

    words = SimilarityWords(
        title="RSA",
        sentence="Agreement on which tokens are far apart: rank correlation of all distances in a "
        "sample.",
        formula="Spearman(D_x, D_y), D = 1 − cos(x − x̄, x' − x̄)",
        range=(-1.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Kriegeskorte et al. 2008, doi:10.3389/neuro.06.004.2008",
        cost="O(n²d) a site and O(n²) a pair, n tokens of the sample",
        tokens="sample",
        order=60,
    )

    def relation(self, rows: Tensor) -> Tensor:
        count = len(rows)
        directions = torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
        distances = 1 - directions @ directions.T
        upper = torch.ones(count, count, dtype=torch.bool, device=rows.device).triu(1)
        order = distances[upper].argsort(stable=True)
        pairs = len(order)
        sorted_ranks = torch.arange(pairs, dtype=rows.dtype, device=rows.device) - (pairs - 1) / 2
        ranks = torch.empty(pairs, dtype=rows.dtype, device=rows.device)
        ranks[order] = sorted_ranks
        table = rows.new_zeros(count, count).masked_scatter_(upper, ranks)
        return table + table.T


@SIMILARITIES.register("svcca")
class Svcca(MomentMeasure):
    """The mean canonical correlation of principal components with 99 % of each side's variance."""

    words = SimilarityWords(
        title="SVCCA",
        sentence="How strongly the best matched directions correlate, on average, among those "
        "with 99 % of the variance.",
        formula="mean ρᵢ, i = 1 … min(k_x, k_y)",
        range=(0.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Raghu et al. 2017, arXiv:1706.05806",
        cost="the same sums as CKA, and one singular value decomposition a pair",
        order=30,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        components_x = pair.x.principal.kept
        components_y = pair.y.principal.kept
        smaller = torch.minimum(components_x, components_y)
        defined = (pair.count > components_x + components_y) & (smaller > 0)
        mean = pair.principal_correlations.sum(-1) / smaller
        return torch.where(defined, mean, torch.nan)
