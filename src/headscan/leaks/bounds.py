"""Bounds on the bits that a release tells of its candidate, and an estimate of the truth.

All are computed from one thing: what is released for each candidate, with how likely each is. The
bounds with noise come from the candidates' pairwise distances. With

    U(s) = Σ_i p_i · −log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²)        U(2σ) ≤ I(X; Y) ≤ U(σ)

(Kolchinsky and Tracey 2017). docs/leaks.md derives them, and says what they assume and what they do
not say.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headscan.run import BadInput
from headscan.statistics.information import (
    divergence_accuracy,
    entropy_bits,
    fano_accuracy,
    fano_bits,
    gaussian_bits,
)

DISTANCES = 1 << 22  # distances that are in memory at once
CHUNK = 1 << 23  # distances of Monte Carlo draws that are in memory at once
ALL_ROWS = 4096  # candidates up to which the rows' terms are computed for all of them


@dataclass(frozen=True, eq=False, repr=False)
class Code:
    """A clean release for each candidate: X has the prior, and Y = x_X + σ N(0, I) is what is seen.

    The split. Let Z say whether X is one of the M that were run, m its probability, r = 1 − m. X
    determines Z, so

        I(X; Y) = I(Z; Y) + m I(X; Y | Z = 1) + r I(X; Y | Z = 0),

    and with 0 ≤ I(Z; Y) ≤ h(r) and 0 ≤ I(X; Y | Z = 0) ≤ H(X | Z = 0):

        m I₁ ≤ I(X; Y) ≤ m I₁ + h(r) + r H(X | Z = 0),        I₁ = I(X; Y | Z = 1).

    So every bound on I₁, which needs the M points only, gives one on I(X; Y), and what was not run
    costs `tail` bits of upper bound and none of the lower. H(X | Z = 0) is that of the prior, which
    is known for all tokens: nothing is assumed of the points that were not run.

    Attributes:
        points: the clean release of each candidate that was run.
        masses: prior probability of each, above 0; with `outside` they add up to 1.
        outside: prior probabilities of the candidates that were not run; empty where all were.
        curves: results of `pairwise_curve`, by scale.

    >>> code = Code(torch.tensor([[0.0], [9.0]]), torch.tensor([0.5, 0.25]), torch.tensor([0.25]))
    >>> code.entropy, round(code.tail, 3), code.kept
    (1.5, 0.811, 0.75)
    """

    points: Float[Tensor, "M d"]
    masses: Float[Tensor, " M"]
    outside: Float[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0))
    curves: dict[float, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = float(self.masses.double().sum() + self.outside.double().sum())
        if not abs(total - 1) < 1e-6:
            raise BadInput(f"The candidates' probabilities add up to {total:g}, not to 1.")
        if not bool(self.points.isfinite().all()):
            raise BadInput("A candidate's release is not finite, so its leak cannot be bounded.")

    def __repr__(self) -> str:
        count, width = self.points.shape
        return f"Code({count} candidates of width {width}, mass {self.kept:.4f})"

    @cached_property
    def _all_masses(self) -> Float[Tensor, " V"]:
        return torch.cat([self.masses.double(), self.outside.double()])

    @cached_property
    def entropy(self) -> float:
        """Return the entropy of the prior, in bits."""
        return entropy_bits(self._all_masses.cpu().numpy())

    @cached_property
    def likeliest(self) -> float:
        """Return the largest probability of the prior."""
        return float(self._all_masses.max())

    @cached_property
    def kept(self) -> float:
        """Return the prior probability of the candidates that were run."""
        return 1.0 if not len(self.outside) else float(self.masses.double().sum())

    @cached_property
    def tail(self) -> float:
        """Return h(r) + r H(X | not run), in bits.

        That is what the candidates that were not run add to an upper bound.
        """
        if not len(self.outside):
            return 0.0
        r = float(self.outside.double().sum())
        # r H(p/r) = H(p) + r log r, where H(p) is that of the weights as they are.
        entropy = entropy_bits(self.outside.double().cpu().numpy())
        correction = r * float(np.log2(r)) if r else 0.0
        return entropy_bits([r, 1 - r]) + entropy + correction

    @cached_property
    def prior(self) -> Float[Tensor, " M"]:
        """Return the probabilities of those that were run, given X is among them, in float64."""
        return self.masses.double() / self.masses.double().sum()

    @cached_property
    def centred(self) -> Float[Tensor, "M d"]:
        """Return the points around their mean, in float64.

        Distances of large vectors lose no digits then.
        """
        x = self.points.double()
        return x - self.prior @ x

    @cached_property
    def squares(self) -> Float[Tensor, " M"]:
        return self.centred.square().sum(1)

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """Return the eigenvalues of the covariance under the prior, or of the smaller Gram matrix.

        Both have the same eigenvalues above 0.
        """
        weighted = self.centred * self.prior.sqrt()[:, None]
        count, width = weighted.shape
        gram = weighted.T @ weighted if width <= count else weighted @ weighted.T
        return np.asarray(torch.linalg.eigvalsh(gram).clamp_min(0).cpu().numpy())

    def square_distances(self, rows: Tensor) -> Float[Tensor, "n M"]:
        """Return ‖xᵢ − xⱼ‖² for the candidates `rows` and all; 0 on the diagonal."""
        products = self.centred[rows] @ self.centred.T
        distances = self.squares[rows, None] + self.squares - 2 * products
        distances.clamp_min_(0)
        distances[torch.arange(len(rows)), rows] = 0
        return distances

    def in_parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return rows in parts whose distances fit into memory."""
        parts: tuple[Tensor, ...] = rows.split(max(1, DISTANCES // len(self.points)))
        return parts


def pairwise_curve(
    code: Code, scales: Sequence[float], *, rows: Tensor | None = None
) -> Float[Tensor, "S n"]:
    """Return −log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²) for each scale s and candidate i, in bits.

    U(s) is its mean under the prior.

    Cost: n M d multiplications once, n M exponentials a scale. Memory: 4 M distances, however many
    candidates.

    Args:
        code: the candidates.
        scales: the scales s.
        rows: the candidates i, all by default; drawn from the prior their plain mean estimates U
            without bias.
    """
    if rows is None and all(scale in code.curves for scale in scales):
        return torch.stack([code.curves[scale] for scale in scales])
    candidates = torch.arange(len(code.points)) if rows is None else rows
    logs = code.prior.log()
    parts = []
    for part in code.in_parts(candidates):
        distances = code.square_distances(part)
        terms = [-torch.logsumexp(logs - distances / (2 * s * s), 1) for s in scales]
        parts.append(torch.stack(terms))
    curve = torch.cat(parts, 1) / math.log(2)
    if rows is None:
        code.curves.update(zip(scales, curve, strict=True))
    return curve


def pairwise_bits(code: Code, scales: Sequence[float]) -> list[float]:
    """Return U(s) of the candidates that were run, in bits, for each scale.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [round(bits, 4) for bits in pairwise_bits(code, [0.1, 1.0, 2.0, 100.0])]
    [1.0, 0.8169, 0.3161, 0.0001]
    """
    return (pairwise_curve(code, scales) @ code.prior).tolist()


def union_accuracy(code: Code, sigma: float) -> float:
    """Return an accuracy that decoding to the nearest candidate has at least.

    Of those that were run it is 1 − Σ pᵢ Σ_j≠i Q(‖xᵢ − x_j‖ / 2σ), where Q is the Gaussian tail:
    the probability that x_j comes nearer than x_i. The sum over j bounds the probability that any
    does. It is at least 0, where the bound says nothing. Equal points count as errors, so that it
    is a floor for ties, too.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> round(union_accuracy(code, 1.0), 4)
    0.8413
    """
    errors = []
    for part in code.in_parts(torch.arange(len(code.points))):
        distances = code.square_distances(part).sqrt()
        passed = 0.5 * torch.erfc(distances / (2 * sigma * math.sqrt(2)))
        errors.append((passed.sum(1) - 0.5).clamp(0, 1))
    return 1 - float(code.prior @ torch.cat(errors))


@dataclass(frozen=True, kw_only=True)
class LeakBounds:
    """The bits that a release tells of the candidate, proved from below and from above.

    Attributes:
        noise: σ, in the unit of the points.
        lower, upper: bits.
        lower_by, upper_by: the tightest bound: "pairs", "Gaussian", "Fano", "entropy".
        accuracy_upper: no attack names the candidate more often, under this prior.
    """

    noise: float
    lower: float
    upper: float
    lower_by: str
    upper_by: str
    accuracy_upper: float


def accuracy_ceiling(code: Code, bits: float) -> float:
    """Return an accuracy that no attack exceeds if a release tells at most so many bits.

    It is the lower of two, both from Fano's idea: `fano_accuracy` with the entropy of the prior,
    and `divergence_accuracy` with its likeliest candidate. It holds in the mean over the prior and
    the noise: for one text an attack may be luckier.
    """
    possible = int((code.masses > 0).sum() + (code.outside > 0).sum())
    by_entropy = fano_accuracy(bits, max(possible, 2), code.entropy)
    by_divergence = divergence_accuracy(bits, code.likeliest)
    return max(code.likeliest, min(by_entropy, by_divergence))


def leak_bounds(code: Code, sigmas: Sequence[float]) -> list[LeakBounds]:
    """Return the tightest bounds on I(X; x_X + σ N(0, I)) for each noise σ.

    From above: the pairwise curve U(σ), the Gaussian of the same covariance, the entropy of the
    prior. From below: U(2σ), and Fano's inequality for an accuracy that decoding to the nearest
    point is proved to have (`union_accuracy`). Candidates that were not run cost `Code.tail` bits
    of the upper bound.

    Cost: M² d multiplications and some M² exponentials a noise.

    Raises:
        BadInput: a noise of 0. There is no finite bound then but H(X), and exact inversion shows
            whether it is reached.

    >>> import torch
    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> bounds = leak_bounds(code, [0.5, 4.0])
    >>> [(round(bound.lower, 3), round(bound.upper, 3), bound.upper_by) for bound in bounds]
    [(0.843, 1.0, 'pairs'), (0.028, 0.044, 'Gaussian')]
    """
    if any(not sigma > 0 for sigma in sigmas):
        raise BadInput(
            "Bits are bounded for noise above 0: use exact inversion for a release without noise."
        )
    scales = _scales(sigmas)
    curve = dict(zip(scales, pairwise_bits(code, scales), strict=True))
    return [_bounds_at(code, sigma, curve) for sigma in sigmas]


def _scales(sigmas: Sequence[float]) -> list[float]:
    """Return the scales σ and 2σ of all noises, in order."""
    return sorted({scale for sigma in sigmas for scale in (sigma, 2 * sigma)})


def _bounds_at(code: Code, sigma: float, curve: dict[float, float]) -> LeakBounds:
    """Return the bounds at one noise, from U by scale."""
    mass = code.kept
    above = {
        "pairs": mass * curve[sigma] + code.tail,
        "Gaussian": mass * gaussian_bits(code.variances, sigma) + code.tail,
        "entropy": code.entropy,
    }
    below = {"pairs": mass * curve[2 * sigma], "Fano": mass * _fano_floor(code, sigma)}
    upper_by = min(above, key=above.__getitem__)
    lower_by = max(below, key=below.__getitem__)
    upper = max(above[upper_by], 0.0)
    lower = min(max(below[lower_by], 0.0), upper)  # where both are H, the last digit may differ
    return LeakBounds(
        noise=sigma,
        lower=lower,
        upper=upper,
        lower_by=lower_by,
        upper_by=upper_by,
        accuracy_upper=accuracy_ceiling(code, upper),
    )


def _fano_floor(code: Code, sigma: float) -> float:
    """Return bits that the candidates that were run tell at least, by Fano's inequality."""
    if len(code.points) <= 1:
        return 0.0
    entropy = code.entropy  # H(X | run)
    if len(code.outside):
        entropy = float(code.entropy - code.tail) / code.kept
    return fano_bits(union_accuracy(code, sigma), len(code.points), entropy)


def code_bits(code: Code) -> LeakBounds:
    """Return what a release without noise tells that is the same for some candidates.

    It was rounded. Y = f(X) gives I(X; Y) = H(Y): the entropy of the classes of equal releases,
    exactly; and the best attack names the likeliest of its class. Assumption: whoever computes a
    candidate's release gets the same numbers, to the last bit of the rounded ones.

    >>> import torch
    >>> code = Code(torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0.25, 0.25, 0.5]))
    >>> bits = code_bits(code)
    >>> bits.lower, bits.upper, bits.accuracy_upper
    (1.0, 1.0, 0.75)
    """
    classes = code.points.unique(dim=0, return_inverse=True)[1]
    masses = code.masses.double()
    sums = masses.new_zeros(int(classes.max()) + 1).index_add_(0, classes, masses)
    best = masses.new_zeros(len(sums)).scatter_reduce_(0, classes, masses, "amax")
    bits = code.kept * entropy_bits((sums / sums.sum()).cpu().numpy())
    outside = float(code.outside.double().sum())
    return LeakBounds(
        noise=0.0,
        lower=bits,
        upper=bits + code.tail,
        lower_by="equal releases",
        upper_by="equal releases",
        accuracy_upper=min(1.0, float(best.sum()) + outside),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Monte Carlo draws at one noise: each a candidate drawn from the prior, with noise and with
    its mirror image.

    Attributes:
        bits: estimates of I, each without bias; independent of one another.
        right: share of the two that the likeliest candidate names rightly, 0, ½ or 1.
    """

    bits: Float[Tensor, " n"]
    right: Float[Tensor, " n"]

    @property
    def mean(self) -> float:
        return float(self.bits.mean())

    @property
    def error(self) -> float:
        return float(self.bits.std() / len(self.bits) ** 0.5)

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


@torch.no_grad()
def draws_of(
    code: Code,
    sigmas: Sequence[float],
    *,
    draws: int = 64,
    seed: int = 0,
    all_rows: bool | None = None,
) -> list[Draws]:
    """Return draws for each noise, of the candidates that were run, given that X is one of them.

    With y = x_i + σn the posterior of every candidate is known, and −log2 Σ_j p_j exp(−(‖x_i −
    x_j‖² + 2σ n·(x_i − x_j)) / 2σ²) has the mean I. Variance is taken away by mirrored noise (n and
    −n), and by subtracting half the sum of the row's terms in U(σ) and U(2σ), whose means are known
    where all rows are; the coefficients are fixed, since fitted ones would bias small samples. All
    noises see the same draws.

    Cost: draws · M · d multiplications, and M² d for all rows.

    Args:
        code: the candidates.
        sigmas: the noises.
        draws: draws of each noise.
        seed: seed of the draws.
        all_rows: whether the rows' terms are computed for all candidates; by default up to 4,096.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> samples = draws_of(code, [0.1, 2.0], draws=4000)
    >>> [round(float(sample.bits.mean()), 2) for sample in samples]  # 0.1607 by integration
    [1.0, 0.16]
    """
    generator = torch.Generator().manual_seed(seed)
    if all_rows is None:
        all_rows = len(code.points) <= ALL_ROWS
    prior = code.prior.cpu()
    logs = prior.log()
    x = code.centred.cpu()
    drawn = torch.multinomial(prior, draws, replacement=True, generator=generator)
    curves: dict[float, Tensor] = {}
    if all_rows:
        scales = _scales(sigmas)
        curves = dict(zip(scales, pairwise_curve(code, scales).cpu(), strict=True))

    bits: list[list[Tensor]] = [[] for _ in sigmas]
    right: list[list[Tensor]] = [[] for _ in sigmas]
    for rows in drawn.split(max(1, CHUNK // len(x))):
        noise = torch.randn(len(rows), x.shape[1], generator=generator, dtype=torch.float64)
        distances = code.square_distances(rows).cpu()
        # n·(x_i − x_j)
        products = (noise * x[rows]).sum(1, keepdim=True) - noise @ x.T
        products[torch.arange(len(rows)), rows] = 0
        for index, sigma in enumerate(sigmas):
            posteriors = [
                logs - (distances + sign * 2 * sigma * products) / (2 * sigma**2)
                for sign in (1, -1)
            ]
            estimate = _mean_bits(posteriors)
            for scale in (sigma, 2 * sigma):
                if scale in curves:
                    curve = curves[scale]
                    estimate = estimate - 0.5 * (curve[rows] - prior @ curve)
            named = [(posterior.argmax(1) == rows).double() for posterior in posteriors]
            bits[index].append(estimate)
            right[index].append(torch.stack(named).mean(0))
    return [
        Draws(bits=torch.cat(bit_parts), right=torch.cat(right_parts))
        for bit_parts, right_parts in zip(bits, right, strict=True)
    ]


def _mean_bits(posteriors: Sequence[Tensor]) -> Tensor:
    """Return the mean of −log2 Σ_j of two unnormalised log posteriors."""
    first, mirrored = (-torch.logsumexp(posterior, 1) for posterior in posteriors)
    return (first + mirrored) / (2 * math.log(2))
