"""The gradient bottleneck: how much of the logits' gradient the head hands on to the hidden states.

The gradient of the cross-entropy of one token by its logits is g = p − 1[y], V numbers. What
reaches the body is W'g, so only the part of g in the column space of the head W [V, d] tells it
anything: with an orthonormal basis W·A of that space (A from the eigenvectors of W'W, d x d) that
part has the energy ‖A'(W'g)‖², and no V x V projector is formed. Energies of tokens are summed
before the root is taken.

What a head of that shape keeps by its shape alone: a random one keeps √(d/V) of the norm; one with
these leverages, met by a gradient whose entries have their sizes but random signs, keeps √(Σ gᵢ²
Pᵢᵢ / Σ gᵢ²); and none keeps more than the best d directions for these very gradients. Norm that is
not kept is no learning that is lost: how useful a direction is does not follow from its norm.

Source: Godey and Artzi 2026 (arXiv:2603.10145), who report 1 − r² with r² = 1 − kept²; the nulls
    are headscan's own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

PIECE = 16_384  # rows of the head that are made float64 at a time
CELLS = 2**24  # logits that are held at a time
MOST = 2**26  # gradients' entries that are kept for the best rank


@dataclass(frozen=True, kw_only=True)
class KeptGradient:
    """What of the logits' gradient passes a head; shares of its norm, in [0, 1].

    tokens, rank, vocabulary: tokens measured, dimensions of the head's column space, its rows.
    kept_norm, kept_norm_leverage, kept_norm_random, kept_norm_best: of the tokens' gradients, its
    nulls, and the best that any `rank` directions could keep (None: no more tokens than directions,
    or too many to compare).
    batch_kept_norm, batch_kept_norm_leverage: of the mean gradient of all tokens.
    """

    tokens: int
    rank: int
    vocabulary: int
    kept_norm: float | None
    kept_norm_leverage: float | None
    kept_norm_random: float
    kept_norm_best: float | None
    batch_kept_norm: float | None
    batch_kept_norm_leverage: float | None


class GradientThroughHead:
    """Sums over tokens for one head: `update` with states and targets, then `result`.

    rows: the head [V, d], without padded rows (they are no tokens). bias: [V], part of the logits
    and no way for the gradient to the states. cap: a soft cap of the logits, whose slope is part of
    the gradient. best: keep gradients for the best rank, n V numbers.

    Cost: O(V d²) once and O(n V d); memory 16,384 rows of the head in float64 and 16 million logits
        beside what is given.

    >>> _ = torch.manual_seed(0)
    >>> through = GradientThroughHead(torch.randn(300, 12))
    >>> through.update(torch.randn(64, 12), torch.randint(300, (64,)))
    >>> found = through.result()
    >>> round(found.kept_norm_random, 3), 0.1 < found.kept_norm < 0.4 < found.kept_norm_best
    (0.2, True)
    """

    def __init__(
        self,
        rows: Float[Tensor, "V d"],
        *,
        bias: Float[Tensor, " V"] | None = None,
        cap: float | None = None,
        best: bool = True,
    ) -> None:
        self.rows = rows.detach()
        self.cap = cap
        self.bias = None if bias is None else bias.detach().double()
        width = rows.shape[1]
        values, vectors = torch.linalg.eigh(self._gram())
        nonzero = values > 4 * width * 2.2e-16 * values[-1].clamp(min=0)
        basis = vectors[:, nonzero] / values[nonzero].sqrt()
        # A Gram matrix squares the head's condition; that of the basis made from it is near 1, and
        # takes the error away.
        self.basis = torch.linalg.solve_triangular(
            torch.linalg.cholesky(self._gram(basis)), basis.T, upper=False
        ).T
        self.leverages = torch.cat(
            [(part @ self.basis).square().sum(1) for _, part in self._parts()]
        )
        self.best = best
        self.restart()

    def restart(self) -> None:
        """Forget the tokens that were added: what the head alone decides, its basis, stays."""
        self.batch = torch.zeros(len(self.rows), dtype=torch.float64, device=self.rows.device)
        self.lent = 0.0
        self.energies = list[Tensor]()
        self.gradients: list[Tensor] | None = [] if self.best else None

    def _parts(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, len(self.rows), PIECE):
            cut = slice(start, start + PIECE)
            yield cut, self.rows[cut].double()

    def _gram(self, basis: Tensor | None = None) -> Tensor:
        size = self.rows.shape[1] if basis is None else basis.shape[1]
        gram = torch.zeros(size, size, dtype=torch.float64, device=self.rows.device)
        for _, part in self._parts():
            image = part if basis is None else part @ basis
            gram += image.T @ image
        return gram

    @torch.no_grad()
    def update(self, states: Float[Tensor, "n d"], targets: Int[Tensor, " n"]) -> None:
        size = max(1, CELLS // len(self.rows))
        for chunk, chunk_targets in zip(states.split(size), targets.split(size), strict=True):
            self._add(chunk.double(), chunk_targets)

    def _add(self, states: Tensor, targets: Tensor) -> None:
        scores = torch.cat([states @ part.T for _, part in self._parts()], 1)
        if self.bias is not None:
            scores += self.bias
        slope = None
        if self.cap is not None:
            scores = self.cap * torch.tanh(scores / self.cap)
            slope = 1 - (scores / self.cap).square()
        scores -= scores.logsumexp(1, keepdim=True)
        right = scores.gather(1, targets[:, None])
        # p − 1 by expm1, and squares summed: Σp² − 2p + 1 cancels where a prediction is nearly
        # sure.
        gradient = scores.exp_().scatter_(1, targets[:, None], torch.expm1(right))
        if slope is not None:
            gradient *= slope
        squares = gradient.square()
        handed = torch.zeros(
            len(states), self.rows.shape[1], dtype=torch.float64, device=states.device
        )
        for cut, part in self._parts():
            handed += gradient[:, cut] @ part
        self.energies.append(
            torch.stack([(handed @ self.basis).square().sum(1), squares.sum(1)], 1)
        )
        self.lent += float((squares @ self.leverages).sum())
        self.batch += gradient.sum(0)
        if self.gradients is not None:
            self.gradients.append(gradient)
            if sum(gradients.numel() for gradients in self.gradients) > MOST:
                self.gradients = None

    @property
    def token_energies(self) -> Tensor:
        """Per token (kept, all), float64 [n, 2]."""
        return torch.cat(self.energies) if self.energies else torch.zeros(0, 2, dtype=torch.float64)

    def result(self) -> KeptGradient:
        """What was kept, over all tokens added so far."""
        width = self.basis.shape[1]
        size = len(self.rows)
        energies = self.token_energies
        kept_energy, total_energy = (float(energy) for energy in energies.sum(0))
        handed = sum(
            (self.batch[cut] @ part for cut, part in self._parts()), torch.zeros(()).double()
        )
        batch = float(self.batch.square().sum())
        return KeptGradient(
            tokens=len(energies),
            rank=width,
            vocabulary=size,
            kept_norm=_root(kept_energy, total_energy),
            kept_norm_leverage=_root(self.lent, total_energy),
            kept_norm_random=math.sqrt(width / size),
            kept_norm_best=self._best(total_energy),
            batch_kept_norm=_root(float((handed @ self.basis).square().sum()), batch)
            if batch
            else None,
            batch_kept_norm_leverage=_root(float(self.batch.square() @ self.leverages), batch),
        )

    def _best(self, total: float) -> float | None:
        if not self.gradients or sum(map(len, self.gradients)) <= self.basis.shape[1]:
            return None
        rows = torch.cat(self.gradients)
        gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        return _root(
            float(torch.linalg.eigvalsh(gram)[-self.basis.shape[1] :].clamp(min=0).sum()), total
        )


def _root(part: float, total: float) -> float | None:
    return min(1.0, math.sqrt(max(0.0, part) / total)) if total > 0 else None
