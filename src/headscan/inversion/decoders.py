"""From vectors back to tokens: nearest neighbour or pseudo-inverse; whole or restricted vocabulary."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.run import BadInput

Decoding = Literal["nearest", "pinv"]
Mask = Literal["-inf", "zero"]


class Decoder:
    """Scores of every token for given vectors; the factors that this needs are computed once.

    Args:
        table: [V, e], the vectors of the tokens.
        allowed: tokens that may be returned, of all prompts [V] or of each [B, V]; the others score -inf.
        mask: "-inf", or "zero" for the published fault: scores are multiplied by 0 or 1, so that a forbidden token
            wins wherever all allowed ones score below zero.

    >>> table = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> Decoder(table).scores(torch.tensor([[0.9, 1.1]])).argmax(-1)
    tensor([2])
    """

    def __init__(
        self, table: Float[Tensor, "V e"], allowed: Bool[Tensor, "*B V"] | None = None, mask: Mask = "-inf"
    ) -> None:
        if allowed is not None and not bool(allowed.any(-1).all()):
            raise BadInput("The restricted vocabulary is empty.")
        self.table, self.allowed, self.mask = table.float(), allowed, mask

    @cached_property
    def _gram(self) -> Tensor:
        gram = self.table.double().T @ self.table.double()
        factor, info = torch.linalg.cholesky_ex(gram)
        if bool(info):
            gram = gram + 1e-10 * gram.trace() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            factor = torch.linalg.cholesky(gram)
        return torch.as_tensor(factor)

    def pinv(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """x W^+ = x (W^T W)^-1 W^T, [..., V]: the coefficients of least norm with which rows of W sum to x."""
        flat = vectors.reshape(-1, vectors.shape[-1]).double()
        solved = torch.cholesky_solve(flat.T, self._gram).T.float()
        return (solved @ self.table.T).reshape(*vectors.shape[:-1], -1)

    def nearest(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """Minus half the squared Euclidean distance, up to a constant of the vector, [..., V]."""
        return vectors.float() @ self.table.T - 0.5 * (self.table**2).sum(1)

    def scores(self, vectors: Float[Tensor, "*batch e"], method: Decoding = "nearest") -> Float[Tensor, "*batch V"]:
        """[..., V], larger is better; forbidden tokens as `mask` says."""
        return self.restrict(self.nearest(vectors) if method == "nearest" else self.pinv(vectors))

    def restrict(self, scores: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
        """Scores with the forbidden tokens masked."""
        if self.allowed is None:
            return scores
        allowed = self.allowed if self.allowed.ndim == 1 else self.allowed[:, None]  # [B, V] for scores [B, T, V]
        return scores * allowed.to(scores) if self.mask == "zero" else scores.masked_fill(~allowed, float("-inf"))


def spread(table: Float[Tensor, "V e"]) -> float:
    """The standard deviation of the entries of a table [V, e], of its finite ones where some are not."""
    deviation = float(table.std())
    return deviation if math.isfinite(deviation) else float(table[table.isfinite()].std())
