"""Projection of logits on the constraints of the NTP-SVM: equal inside each support, lower by a margin outside."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MarginSet"]

# Entries of a block that stay in a core's cache while the dozen passes of a projection run over it.
_BLOCK_ENTRIES = 1 << 16


class MarginSet:
    """The convex set of scaled logits Z[j, t] = s_j q_t L[j, t] where L is equal on S_j and at least 1 lower off it.

    `inside` bool [u, c] marks the support of each row; `scale` s float64 [u] is the square root of the row's weight,
    `token_scale` q [c] that of the column's (how many equal tokens it stands for). The level of each row is kept
    between calls, so that a sequence of nearby projections costs about two Newton sweeps each.
    """

    def __init__(self, inside: Tensor, scale: Tensor, token_scale: Tensor) -> None:
        self.inside = inside
        self.scale = scale
        self.q = token_scale
        self.plain = bool((token_scale == 1).all())
        self.mass = token_scale**2
        self.inside_mass = inside.to(torch.float64) @ self.mass
        self.level = scale * (1 - self.inside_mass / self.mass.sum())  # the level of S~, where the solver starts
        columns = inside.shape[1]
        self.block = max(1, _BLOCK_ENTRIES // columns) if inside.device.type == "cpu" else len(inside)

    def centred_supports(self) -> Tensor:
        """S~ scaled: the feasible point that meets every margin with equality, float64 [u, c]."""
        level = (1 - self.inside_mass / self.mass.sum())[:, None]
        unscaled = torch.where(self.inside, level, level - 1)
        return unscaled * self.scale[:, None] * self.q

    def update(self, X: Tensor, Z: Tensor, U: Tensor, relax: float) -> None:
        """One ADMM step in place: Y = relax X + (1 - relax) Z + U, then Z = projection of Y and U = Y - Z.

        Afterwards U is >= 0 off the support and orthogonal to q in every row, exactly up to rounding: that is what
        makes
        -ρU a feasible point of the dual.
        """
        for start in range(0, len(Z), self.block):
            rows = slice(start, start + self.block)
            Y = torch.lerp(Z[rows], X[rows], relax).add_(U[rows])
            projected = self.project(Y, rows)
            Z[rows] = projected
            torch.sub(Y, projected, out=U[rows])

    def project(self, Y: Tensor, rows: slice = slice(None)) -> Tensor:
        """The nearest point of the set to the rows Y; warm-started at the rows' last levels.

        The level C of a row solves  Σ_S q(qC - y) = Σ_off q max(0, y - q(C - s)).  The left side minus the right is
        increasing, concave and piecewise linear in C, so Newton's steps land left of the root after the first one,
        climb monotonically, and end exactly, after as many steps as the active set changes.
        """
        inside, s = self.inside[rows], self.scale[rows][:, None]
        y = Y if self.plain else Y / self.q
        inner = torch.where(inside, y, 0.0) @ self.mass
        shifted = (y + s).masked_fill_(inside, -torch.inf)
        K, C = self.inside_mass[rows], self.level[rows]
        for _ in range(100):
            excess = shifted - C[:, None]
            above = (excess > 0).to(torch.float64) @ self.mass
            step = (inner + excess.clamp_min_(0) @ self.mass - K * C) / (K + above)
            C = C + step
            if float((step.abs() - 1e-15 * (1 + C.abs())).max()) <= 0:
                break
        self.level[rows] = C
        level = C[:, None]
        projected = torch.where(inside, level, torch.minimum(y, level - s))
        return projected if self.plain else projected * self.q

    def dual_value(self, U: Tensor, penalty: float) -> float:
        """⟨-ρU, S~⟩ = Σ_off ρ U s q, summed off the support alone (every term is >= 0: nothing cancels)."""
        outside = torch.where(self.inside, 0.0, U).clamp_min_(0) @ self.q
        return penalty * float(outside @ self.scale)
