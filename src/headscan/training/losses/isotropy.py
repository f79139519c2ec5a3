"""Isotropy as a training target: the cosine regulariser and IsoScore*, both differentiable and linear in the rows."""

from __future__ import annotations

import torch
from torch import Tensor


def cosine_regulariser(rows: Tensor, *, epsilon: float = 1e-12) -> Tensor:
    """Mean cosine over the ordered pairs of distinct rows of a table [V, d], a scalar with gradient; in [−1/(V − 1), 1].

    Add γ times it to the loss (Gao et al. 2019, arXiv:1907.12009, with γ = 1 and a sum over pairs divided by V²: the
    same up to the factor (V − 1)/V). O(Vd) by ‖Σŵ‖², where the published form multiplies V x V. Rows shorter than
    `epsilon` count as zero vectors. Raises ValueError for fewer than two rows.

    >>> w = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> round(cosine_regulariser(w).item(), 4)
    0.3333
    """
    n = len(rows)
    if n < 2:
        raise ValueError("a mean over pairs needs two rows")
    unit = torch.nn.functional.normalize(rows, dim=-1, eps=epsilon)
    return (unit.sum(0).square().sum() - unit.square().sum()) / (n * (n - 1))


def isoscore_star(points: Tensor, *, shrinkage: float = 0.0, target: Tensor | None = None) -> Tensor:
    """IsoScore* of points [n, d], a scalar with gradient; in [0, 1]: (PR − 1)/(d − 1) of (1 − ζ)C + ζC₀.

    Rudman and Eickhoff 2024, arXiv:2305.19358. PR = tr(S)²/‖S‖²_F, so there is no eigendecomposition and no gradient
    through one. C is the covariance of the points (divided by n); C₀ = `target` [d, d], a covariance estimated on more
    points than a batch has, by default tr(C)/d·I; ζ = `shrinkage` in [0, 1] is needed where n < d: without it the score
    is at most (n − 2)/(d − 1) whatever the points. With ζ = 0 it is IsoScore. Raises ValueError for d = 1 or n < 2.
    Without gradient and with ζ = 0 not even the covariance is kept. Where all points are equal and ζ = 0, 0/0 is NaN.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> isoscore_star(x).item()
    1.0
    """
    n, d = points.shape
    if d < 2 or n < 2:
        raise ValueError("IsoScore needs two points and two dimensions")
    centred = points - points.mean(0)
    if shrinkage == 0 and not (torch.is_grad_enabled() and points.requires_grad):
        return (centred.square().sum().square() / _gram_norm(centred) - 1) / (d - 1)
    covariance = centred.T @ centred / n
    if target is None:
        target = covariance.diagonal().sum() / d * torch.eye(d, dtype=points.dtype, device=points.device)
    mixed = (1 - shrinkage) * covariance + shrinkage * target
    ratio = mixed.diagonal().sum().square() / mixed.square().sum()
    return (ratio - 1) / (d - 1)


def _gram_norm(rows: Tensor, *, panels: int = 8) -> Tensor:
    """‖XᵀX‖²_F by horizontal panels that begin at the diagonal: 9/16 of the products, and no d x d matrix is kept."""
    d = rows.shape[1]
    total = rows.new_zeros(())
    for k in range(panels):
        a, b = d * k // panels, d * (k + 1) // panels
        panel = rows[:, a:b].T @ rows[:, a:]
        total = total + 2 * panel.square().sum() - panel[:, : b - a].square().sum()
    return total


def isoscore_loss(
    layers: list[Tensor], *, strength: float, shrinkage: float = 0.2, target: Tensor | None = None
) -> Tensor:
    """I-STAR's term λ(1 − IsoScore*) of the points of all given layers together; add it to the task's loss.

    `strength` λ < 0 *lowers* isotropy, which the paper found to help fine-tuning; λ > 0 raises it. Each layer is
    [..., d]; all must share d.

    >>> x = torch.randn(64, 8, requires_grad=True)
    >>> loss = isoscore_loss([x, 2 * x], strength=1.0); loss.backward()
    >>> x.grad.shape, 0 <= loss.item() <= 1
    (torch.Size([64, 8]), True)
    """
    points = torch.cat([layer.reshape(-1, layer.shape[-1]) for layer in layers])
    return strength * (1 - isoscore_star(points, shrinkage=shrinkage, target=target))
