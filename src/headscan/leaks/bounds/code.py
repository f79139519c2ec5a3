"""What is released for each candidate, with how likely each is: the one thing that every bound is computed from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headscan.run import BadInput
from headscan.statistics.information import entropy_bits

__all__ = ["Code"]


@dataclass(frozen=True, eq=False, repr=False)
class Code:
    """A clean release for each candidate: X has the prior, and Y = x_X + σ N(0, I) is what is seen.

    Args:
        points: [M, d] the clean release of each candidate that was run.
        masses: [M] prior probability of each, above 0; with `outside` they add up to 1.
        outside: [R] prior probabilities of the candidates that were not run; empty where all were.

    The split. Let Z say whether X is one of the M that were run, m its probability, r = 1 − m. X determines Z, so

        I(X; Y) = I(Z; Y) + m I(X; Y | Z = 1) + r I(X; Y | Z = 0),

    and with 0 ≤ I(Z; Y) ≤ h(r) and 0 ≤ I(X; Y | Z = 0) ≤ H(X | Z = 0):

        m I₁ ≤ I(X; Y) ≤ m I₁ + h(r) + r H(X | Z = 0),        I₁ = I(X; Y | Z = 1).

    So every bound on I₁, which needs the M points only, gives one on I(X; Y), and what was not run costs `tail` bits of
    upper bound and none of the lower. H(X | Z = 0) is that of the prior, which is known for all tokens: nothing is assumed
    of the points that were not run.

    >>> code = Code(torch.tensor([[0.0], [9.0]]), torch.tensor([0.5, 0.25]), torch.tensor([0.25]))
    >>> code.entropy, round(code.tail, 3), code.kept
    (1.5, 0.811, 0.75)
    """

    points: Float[Tensor, "M d"]
    masses: Float[Tensor, " M"]
    outside: Float[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0))

    def __post_init__(self) -> None:
        total = float(self.masses.double().sum() + self.outside.double().sum())
        if not abs(total - 1) < 1e-6:
            raise BadInput(f"The candidates' probabilities add up to {total:g}, not to 1.")
        if not bool(self.points.isfinite().all()):
            raise BadInput("A candidate's release is no number, so nothing can be said of what it gives away.")

    def __repr__(self) -> str:
        return f"Code({len(self.points)} candidates of width {self.points.shape[1]}, mass {self.kept:.4f})"

    @cached_property
    def entropy(self) -> float:
        """H(X) of the whole prior, in bits."""
        return entropy_bits(torch.cat([self.masses.double(), self.outside.double()]).cpu().numpy())

    @cached_property
    def likeliest(self) -> float:
        """The largest probability of the prior: the accuracy of a guess without a release."""
        return float(torch.cat([self.masses.double(), self.outside.double()]).max())

    @property
    def size(self) -> int:
        """Candidates with a probability above 0, run or not."""
        return int((self.masses > 0).sum() + (self.outside > 0).sum())

    @cached_property
    def kept(self) -> float:
        """m, the probability of the candidates that were run."""
        return 1.0 if not len(self.outside) else float(self.masses.double().sum())

    @cached_property
    def tail(self) -> float:
        """h(r) + r H(X | not run), in bits: what the candidates that were not run add to an upper bound."""
        if not len(self.outside):
            return 0.0
        r = float(self.outside.double().sum())
        # r H(p/r) = H(p) + r log r, where H(p) is that of the weights as they are.
        return (
            entropy_bits([r, 1 - r])
            + entropy_bits(self.outside.double().cpu().numpy())
            + (r * float(np.log2(r)) if r else 0.0)
        )

    @cached_property
    def prior(self) -> Float[Tensor, " M"]:
        """The probabilities of those that were run, given that X is among them, in float64."""
        masses = self.masses.double()
        return masses / masses.sum()

    @cached_property
    def centred(self) -> Float[Tensor, "M d"]:
        """The points around their mean, in float64: distances of large vectors lose no digits."""
        x = self.points.double()
        return x - self.prior @ x

    @cached_property
    def squares(self) -> Float[Tensor, " M"]:
        """‖x‖² of the centred points."""
        return self.centred.square().sum(1)

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """Eigenvalues of the covariance under the prior: those of the smaller of the two Gram matrices."""
        weighted = self.centred * self.prior.sqrt()[:, None]
        gram = weighted.T @ weighted if weighted.shape[1] <= len(weighted) else weighted @ weighted.T
        found: NDArray[np.float64] = torch.linalg.eigvalsh(gram).clamp_min(0).cpu().numpy()
        return found

    def away(self, rows: Tensor) -> Float[Tensor, "n M"]:
        """‖xᵢ − xⱼ‖² for the candidates `rows` and all; 0 on the diagonal."""
        found = self.squares[rows, None] + self.squares - 2 * self.centred[rows] @ self.centred.T
        found.clamp_min_(0)
        found[torch.arange(len(rows)), rows] = 0
        return found
