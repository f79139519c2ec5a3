"""Bounds on what a noisy release tells of which candidate it belongs to, from the candidates' pairwise distances.

X has prior p over M candidates, Y = x_X + σ N(0, I_d). Then I(X; Y) = h(Y) − h(Y | X), and Y is a mixture of M equal
Gaussians. Kolchinsky and Tracey ("Estimating mixture entropy with pairwise distances", Entropy 19 (2017) 361) bound its
entropy from pairwise distances D of the components: with h(Y | X) + E_i[−log Σ_j p_j exp(−D_ij)] from above where D is the
Kullback-Leibler divergence, and from below where D is a Chernoff divergence. For equal Gaussians these are

    KL(i ‖ j)         = ‖x_i − x_j‖² / 2σ²
    Bhattacharyya     = ‖x_i − x_j‖² / 8σ²      (the Chernoff divergence of order ½, the best for equal covariances)

so with the one curve

    U(s) = Σ_i p_i · −log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²)

I(X; Y) ≤ U(σ), and since 8σ² = 2(2σ)², I(X; Y) ≥ U(2σ):

    U(2σ) ≤ I(σ) ≤ U(σ).

Why the upper: Jensen on the other side of the logarithm, −E_Y|i log Σ_j p_j N(Y; x_j) ≤ −log Σ_j p_j exp E_Y|i log N(Y; x_j)
(log-sum-exp is convex in its exponents). So certifying never costs more than twice the noise that is truly needed.

Assumptions: the noise is Gaussian, equal and independent in every coordinate, independent of X; the prior is that of X.
What it does not say: nothing for σ = 0 (U(0) is H(X), less what equal points hide), nothing for other noise, and nothing of a
prior that is not the one given: of an attacker who knows more of the text than the prior does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.bounds.code import Code

__all__ = ["pairwise_bits", "pairwise_curve", "union_accuracy"]

ROWS = 1 << 22
"""Distances that are held at once."""


def pairwise_curve(code: Code, scales: Sequence[float], *, rows: Tensor | None = None) -> Float[Tensor, "S n"]:
    """−log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²) for each scale s and candidate i, in bits: U(s) is its mean under the prior.

    Args:
        code: of it the candidates that were run, with their prior given that X is one of them.
        scales: s, in the unit of the points, above 0.
        rows: the candidates i, all by default; drawn from the prior their plain mean estimates U without bias.

    Cost: n M d multiplications once, n M exponentials a scale. Memory: 4 M distances, however many candidates.
    """
    wanted = torch.arange(len(code.points)) if rows is None else rows
    logs = code.prior.log()
    parts = []
    for some in wanted.split(max(1, ROWS // len(code.points))):
        away = code.away(some)
        parts.append(torch.stack([-torch.logsumexp(logs - away / (2 * s * s), 1) for s in scales]))
    return torch.cat(parts, 1) / math.log(2)


def pairwise_bits(code: Code, scales: Sequence[float]) -> list[float]:
    """U(s) of the candidates that were run, in bits, for each scale.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [round(bits, 4) for bits in pairwise_bits(code, [0.1, 1.0, 2.0, 100.0])]
    [1.0, 0.8169, 0.3161, 0.0001]
    """
    return (pairwise_curve(code, scales) @ code.prior).tolist()


def union_accuracy(code: Code, sigma: float) -> float:
    """An accuracy that decoding to the nearest candidate has at least, of those that were run: 1 − Σ pᵢ Σ_j≠i Q(‖xᵢ − x_j‖ / 2σ).

    Q is the Gaussian tail: the probability that x_j comes nearer than x_i; the sum over j bounds the probability that any
    does. At least 0, where the bound says nothing. Equal points count as errors, so it is a floor for ties, too.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> round(union_accuracy(code, 1.0), 4)
    0.8413
    """
    wrong = []
    for some in torch.arange(len(code.points)).split(max(1, ROWS // len(code.points))):
        passed = 0.5 * torch.erfc(code.away(some).sqrt() / (2 * sigma * math.sqrt(2)))
        wrong.append((passed.sum(1) - 0.5).clamp(0, 1))
    return 1 - float(code.prior @ torch.cat(wrong))
