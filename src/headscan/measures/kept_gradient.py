"""The gradient bottleneck: the part of the logits' gradient that the head hands on to the hidden
states.

The gradient of the cross-entropy of one token by its logits is g = p − 1[y], V numbers. The body
receives W'g, so only the part of g in the column space of the head W [V, d] tells it anything: with
an orthonormal basis W·A of that space (A from the eigenvectors of W'W, d x d) that part has the
energy ‖A'(W'g)‖², and no V x V projector is formed. Energies of tokens are summed before the root
is taken.

The nulls: a random head of the same shape keeps √(d/V) of the norm; a head with these leverages,
met by a gradient whose entries have their sizes but random signs, keeps √(Σ gᵢ² Pᵢᵢ / Σ gᵢ²); and
no head keeps more than the best d directions for these very gradients. Norm that is not kept is no
learning that is lost: how useful a direction is does not follow from its norm.

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
CELLS = 2**24  # logits that are made at a time
MOST = 2**26  # entries of gradients that are stored for the best rank


@dataclass(frozen=True, kw_only=True)
class KeptGradient:
    """The share of the norm of the logits' gradient that passes a head, in [0, 1].

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
    """The gradients of tokens at one head: `update` with states and targets, then `result`.

    rows: the head [V, d], without padded rows (they are no tokens). bias: [V], part of the logits
    and no way for the gradient to the states. cap: a soft cap of the logits, whose slope is part of
    the gradient. best: keep gradients for the best rank, n V numbers.

    Cost: O(V d²) once and O(n V d); memory 16,384 rows of the head in float64 and 16 million logits
        beside what is given.

    >>> _ = torch.manual_seed(0)
    >>> through = GradientThroughHead(torch.randn(300, 12))
    >>> through.update(torch.randn(64, 12), torch.randint(300, (64,)))
    >>> result = through.result()
    >>> round(result.kept_norm_random, 3), 0.1 < result.kept_norm < 0.4 < result.kept_norm_best
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
        zeros = width - int(nonzero.sum())  # values ascend
        basis = vectors[:, zeros:] / values[zeros:].sqrt()

        # A Gram matrix squares the head's condition; that of the basis made from it is near 1, and
        # takes the error away.
        factor = torch.linalg.cholesky(self._gram(basis))
        self.basis = torch.linalg.solve_triangular(factor, basis.T, upper=False).T
        leverages = [(part @ self.basis).square().sum(1) for _, part in self._parts()]
        self.leverages = torch.cat(leverages)
        self.best = best
        self.restart()

    def restart(self) -> None:
        """Forget the tokens that were added; the head's basis stays."""
        self.batch = torch.zeros(len(self.rows), dtype=torch.float64, device=self.rows.device)
        self.leverage_energy = self.batch.new_zeros(())
        self.energies = list[Tensor]()
        self.gradients: list[Tensor] | None = [] if self.best else None

    def _parts(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the head's rows in float64, some at a time, with where they stand."""
        for start in range(0, len(self.rows), PIECE):
            cut = slice(start, start + PIECE)
            yield cut, self.rows[cut].double()

    def _gram(self, basis: Tensor | None = None) -> Tensor:
        """Return W'W of the head, or that of W times a basis."""
        size = self.rows.shape[1] if basis is None else basis.shape[1]
        gram = torch.zeros(size, size, dtype=torch.float64, device=self.rows.device)
        for _, part in self._parts():
            image = part if basis is None else part @ basis
            gram += image.T @ image
        return gram

    def _through(self, gradient: Tensor) -> Tensor:
        """Return W'g of gradients [..., V], float64 [..., d]."""
        shape = (*gradient.shape[:-1], self.rows.shape[1])
        states_gradient = torch.zeros(shape, dtype=torch.float64, device=gradient.device)
        for cut, part in self._parts():
            states_gradient += gradient[..., cut] @ part
        return states_gradient

    @torch.no_grad()
    def update(self, states: Float[Tensor, "n d"], targets: Int[Tensor, " n"]) -> None:
        """Add tokens by the states that the head reads and the tokens that follow."""
        size = max(1, CELLS // len(self.rows))
        chunks = zip(states.split(size), targets.split(size), strict=True)
        for chunk, chunk_targets in chunks:
            self._add(chunk.double(), chunk_targets)

    def _gradient(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the gradient of each token's cross-entropy by its logits [n, V]."""
        scores = torch.cat([states @ part.T for _, part in self._parts()], 1)
        if self.bias is not None:
            scores += self.bias
        slope = None
        if self.cap is not None:
            scores = self.cap * torch.tanh(scores / self.cap)
            slope = 1 - (scores / self.cap).square()
        scores -= scores.logsumexp(1, keepdim=True)
        target_scores = scores.gather(1, targets[:, None])
        # p − 1 comes from expm1, and squares are summed: Σp² − 2p + 1 cancels where a prediction is
        # nearly sure.
        gradient = scores.exp_().scatter_(1, targets[:, None], torch.expm1(target_scores))
        if slope is not None:
            gradient *= slope
        return gradient

    def _add(self, states: Tensor, targets: Tensor) -> None:
        gradient = self._gradient(states, targets)
        squares = gradient.square()
        kept = (self._through(gradient) @ self.basis).square().sum(1)
        self.energies.append(torch.stack([kept, squares.sum(1)], 1))
        self.leverage_energy += (squares @ self.leverages).sum()
        self.batch += gradient.sum(0)
        if self.gradients is not None:
            self.gradients.append(gradient)
            if sum(gradients.numel() for gradients in self.gradients) > MOST:
                self.gradients = None

    @property
    def token_energies(self) -> Tensor:
        """The energy of each token's gradient that is kept, and all of it, float64 [n, 2]."""
        return torch.cat(self.energies) if self.energies else torch.zeros(0, 2, dtype=torch.float64)

    def result(self) -> KeptGradient:
        """Return the shares over all tokens added so far."""
        width = self.basis.shape[1]
        size = len(self.rows)
        energies = self.token_energies
        batch_squares = self.batch.square()
        of_batch = torch.stack(
            [
                batch_squares.sum(),
                (self._through(self.batch) @ self.basis).square().sum(),
                batch_squares @ self.leverages,
                self.leverage_energy,
            ]
        )
        of_tokens = energies.sum(0).to(of_batch)
        numbers = torch.cat([of_tokens, of_batch]).cpu().tolist()
        kept_energy, total_energy, batch_energy, batch_kept, batch_leverage, leverage = numbers
        return KeptGradient(
            tokens=len(energies),
            rank=width,
            vocabulary=size,
            kept_norm=_root(kept_energy, total_energy),
            kept_norm_leverage=_root(leverage, total_energy),
            kept_norm_random=math.sqrt(width / size),
            kept_norm_best=self._best(total_energy),
            batch_kept_norm=_root(batch_kept, batch_energy),
            batch_kept_norm_leverage=_root(batch_leverage, batch_energy),
        )

    def _best(self, total: float) -> float | None:
        """Return the share of norm that the best directions, as many as the head's rank, could
        keep.
        """
        rank = self.basis.shape[1]
        if not self.gradients or sum(map(len, self.gradients)) <= rank:
            return None
        rows = torch.cat(self.gradients)
        gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        largest = torch.linalg.eigvalsh(gram)[-rank:]
        return _root(float(largest.clamp(min=0).sum()), total)


def _root(part: float, total: float) -> float | None:
    """Return the share of norm, the root of the share of energy; None where the total is zero."""
    return min(1.0, math.sqrt(max(0.0, part) / total)) if total > 0 else None
