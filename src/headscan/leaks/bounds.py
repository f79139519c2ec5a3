"""What is released for each candidate, with how likely each is: the one thing that every bound is
computed from.
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

    >>> code = Code(torch.tensor([[0.0], [9.0]]), torch.tensor([0.5, 0.25]), torch.tensor([0.25]))
    >>> code.entropy, round(code.tail, 3), code.kept
    (1.5, 0.811, 0.75)
    """

    points: Float[Tensor, "M d"]  # the clean release of each candidate that was run
    # prior probability of each, above 0; with `outside` they add up to 1
    masses: Float[Tensor, " M"]
    # prior probabilities of the candidates that were not run; empty where all were
    outside: Float[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0))
    # of each scale asked for, by `pairwise_curve`
    curves: dict[float, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = float(self.masses.double().sum() + self.outside.double().sum())
        if not abs(total - 1) < 1e-6:
            raise BadInput(f"The candidates' probabilities add up to {total:g}, not to 1.")
        if not bool(self.points.isfinite().all()):
            raise BadInput(
                "A candidate's release is no number, so nothing can be said of what it gives away."
            )

    def __repr__(self) -> str:
        return (
            f"Code({len(self.points)} candidates of width {self.points.shape[1]}, mass "
            f"{self.kept:.4f})"
        )

    @cached_property
    def entropy(self) -> float:
        return entropy_bits(torch.cat([self.masses.double(), self.outside.double()]).cpu().numpy())

    @cached_property
    def likeliest(self) -> float:
        return float(torch.cat([self.masses.double(), self.outside.double()]).max())

    @cached_property
    def kept(self) -> float:
        return 1.0 if not len(self.outside) else float(self.masses.double().sum())

    @cached_property
    def tail(self) -> float:
        """h(r) + r H(X | not run), in bits: what the candidates that were not run add to an upper
        bound.
        """
        if not len(self.outside):
            return 0.0
        r = float(self.outside.double().sum())
        # r H(p/r) = H(p) + r log r, where H(p) is that of the weights as they are.
        inside = entropy_bits(self.outside.double().cpu().numpy())
        return entropy_bits([r, 1 - r]) + inside + (r * float(np.log2(r)) if r else 0.0)

    @cached_property
    def prior(self) -> Float[Tensor, " M"]:
        """The probabilities of those that were run, given that X is among them, in float64."""
        return self.masses.double() / self.masses.double().sum()

    @cached_property
    def centred(self) -> Float[Tensor, "M d"]:
        """The points around their mean, in float64: distances of large vectors lose no digits."""
        x = self.points.double()
        return x - self.prior @ x

    @cached_property
    def squares(self) -> Float[Tensor, " M"]:
        return self.centred.square().sum(1)

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """Eigenvalues of the covariance under the prior: those of the smaller of the two Gram
        matrices.
        """
        weighted = self.centred * self.prior.sqrt()[:, None]
        gram = (
            weighted.T @ weighted if weighted.shape[1] <= len(weighted) else weighted @ weighted.T
        )
        return np.asarray(torch.linalg.eigvalsh(gram).clamp_min(0).cpu().numpy())

    def away(self, rows: Tensor) -> Float[Tensor, "n M"]:
        """‖xᵢ − xⱼ‖² for the candidates `rows` and all; 0 on the diagonal."""
        found = self.squares[rows, None] + self.squares - 2 * self.centred[rows] @ self.centred.T
        found.clamp_min_(0)
        found[torch.arange(len(rows)), rows] = 0
        return found


# ---- Bounds on what a noisy release tells of which candidate it belongs to, from the candidates' pairwise distances. With
#
#     U(s) = Σ_i p_i · −log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²)        U(2σ) ≤ I(X; Y) ≤ U(σ)
#
# (Kolchinsky and Tracey 2017). docs/leaks.md derives them, and says what they assume and what they
# do not say.

ROWS = 1 << 22  # distances that are held at once


def pairwise_curve(
    code: Code, scales: Sequence[float], *, rows: Tensor | None = None
) -> Float[Tensor, "S n"]:
    """−log2 Σ_j p_j exp(−‖x_i − x_j‖² / 2s²) for each scale s and candidate i, in bits: U(s) is its
    mean under the prior.

    `rows` are the candidates i, all by default; drawn from the prior their plain mean estimates U
    without bias.

    Cost: n M d multiplications once, n M exponentials a scale. Memory: 4 M distances, however many
        candidates.
    """
    if rows is None and all(scale in code.curves for scale in scales):
        return torch.stack([code.curves[scale] for scale in scales])
    wanted = torch.arange(len(code.points)) if rows is None else rows
    logs = code.prior.log()
    parts = []
    for some in wanted.split(max(1, ROWS // len(code.points))):
        away = code.away(some)
        parts.append(torch.stack([-torch.logsumexp(logs - away / (2 * s * s), 1) for s in scales]))
    found = torch.cat(parts, 1) / math.log(2)
    if rows is None:
        code.curves.update(zip(scales, found, strict=True))
    return found


def pairwise_bits(code: Code, scales: Sequence[float]) -> list[float]:
    """U(s) of the candidates that were run, in bits, for each scale.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [round(bits, 4) for bits in pairwise_bits(code, [0.1, 1.0, 2.0, 100.0])]
    [1.0, 0.8169, 0.3161, 0.0001]
    """
    return (pairwise_curve(code, scales) @ code.prior).tolist()


def union_accuracy(code: Code, sigma: float) -> float:
    """An accuracy that decoding to the nearest candidate has at least, of those that were run: 1 −
    Σ pᵢ Σ_j≠i Q(‖xᵢ − x_j‖ / 2σ).

    Q is the Gaussian tail: the probability that x_j comes nearer than x_i; the sum over j bounds
    the probability that any does. At least 0, where the bound says nothing. Equal points count as
    errors, so it is a floor for ties, too.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> round(union_accuracy(code, 1.0), 4)
    0.8413
    """
    wrong = []
    for some in torch.arange(len(code.points)).split(max(1, ROWS // len(code.points))):
        passed = 0.5 * torch.erfc(code.away(some).sqrt() / (2 * sigma * math.sqrt(2)))
        wrong.append((passed.sum(1) - 0.5).clamp(0, 1))
    return 1 - float(code.prior @ torch.cat(wrong))


# ---- The tightest of the bounds on what a noisy release tells, and what accuracy so many bits allow.


@dataclass(frozen=True, kw_only=True)
class LeakBounds:
    """What a release with Gaussian noise tells of the candidate, proved from below and from above."""

    noise: float  # σ, in the unit of the points
    lower: float  # bits
    upper: float
    lower_by: str  # which bound is the tightest: "pairs", "Gaussian", "Fano", "entropy"
    upper_by: str
    accuracy_upper: float  # no attack names the candidate more often than that, under this prior


def accuracy_ceiling(code: Code, bits: float) -> float:
    """What no attack's accuracy exceeds, if a release tells at most so many bits: the lower of two,
    both from Fano's idea.

    `fano_accuracy` with the entropy of the prior, and `divergence_accuracy` with its likeliest
    candidate. It holds in the mean over the prior and the noise: for one text an attack may be
    luckier.
    """
    size = max(int((code.masses > 0).sum() + (code.outside > 0).sum()), 2)
    return max(
        code.likeliest,
        min(fano_accuracy(bits, size, code.entropy), divergence_accuracy(bits, code.likeliest)),
    )


def leak_bounds(code: Code, sigmas: Sequence[float]) -> list[LeakBounds]:
    """The tightest bounds on I(X; x_X + σ N(0, I)) for each noise σ.

    From above: the pairwise curve U(σ), the Gaussian of the same covariance, the entropy of the
    prior. From below: U(2σ), and Fano's inequality for an accuracy that decoding to the nearest
    point is proved to have (`union_accuracy`). Candidates that were not run cost `Code.tail` bits
    of the upper bound.

    Raises BadInput for a noise of 0: there is no finite bound then but H(X), and whether it is
    reached is a question to exact inversion. Cost: M² d multiplications and some M² exponentials a
    noise.

    >>> import torch
    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [(round(one.lower, 3), round(one.upper, 3), one.upper_by) for one in leak_bounds(code, [0.5, 4.0])]
    [(0.843, 1.0, 'pairs'), (0.028, 0.044, 'Gaussian')]
    """
    if any(not sigma > 0 for sigma in sigmas):
        raise BadInput(
            "Bits are bounded for noise above 0: of a release without noise exact inversion speaks."
        )
    scales = sorted({scale for sigma in sigmas for scale in (sigma, 2 * sigma)})
    curve = dict(zip(scales, pairwise_bits(code, scales), strict=True))
    bounds = []
    for sigma in sigmas:
        share = code.kept
        kept = len(code.points)
        # H(X | run)
        inside = float(code.entropy - code.tail) / share if len(code.outside) else code.entropy
        gaussian = share * gaussian_bits(code.variances, sigma) + code.tail
        above = {
            "pairs": share * curve[sigma] + code.tail,
            "Gaussian": gaussian,
            "entropy": code.entropy,
        }
        floor = fano_bits(union_accuracy(code, sigma), kept, inside) if kept > 1 else 0.0
        below = {"pairs": share * curve[2 * sigma], "Fano": share * floor}
        upper_by = min(above, key=above.__getitem__)
        lower_by = max(below, key=below.__getitem__)
        upper = max(above[upper_by], 0.0)
        lower = min(max(below[lower_by], 0.0), upper)  # where both are H, the last digit may differ
        ceiling = accuracy_ceiling(code, upper)
        bounds += [
            LeakBounds(
                noise=sigma,
                lower=lower,
                upper=upper,
                lower_by=lower_by,
                upper_by=upper_by,
                accuracy_upper=ceiling,
            )
        ]
    return bounds


def code_bits(code: Code) -> LeakBounds:
    """What a release without noise tells that is the same for some candidates, because it was
    rounded: H of what is seen.

    Y = f(X) gives I(X; Y) = H(Y): the entropy of the classes of equal releases, exactly; and the
    best attack names the likeliest of its class. Assumption: whoever computes a candidate's release
    gets the same numbers, to the last bit of the rounded ones.

    >>> import torch
    >>> found = code_bits(Code(torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0.25, 0.25, 0.5])))
    >>> found.lower, found.upper, found.accuracy_upper
    (1.0, 1.0, 0.75)
    """
    classes = code.points.unique(dim=0, return_inverse=True)[1]
    masses = code.masses.double()
    sums = masses.new_zeros(int(classes.max()) + 1).index_add_(0, classes, masses)
    best = masses.new_zeros(len(sums)).scatter_reduce_(0, classes, masses, "amax")
    inside = code.kept * entropy_bits((sums / sums.sum()).cpu().numpy())
    outside = float(code.outside.double().sum())
    return LeakBounds(
        noise=0.0,
        lower=inside,
        upper=inside + code.tail,
        lower_by="equal releases",
        upper_by="equal releases",
        accuracy_upper=min(1.0, float(best.sum()) + outside),
    )


# ---- What a noisy release really tells, by Monte Carlo with the exact posterior over all candidates, and the best attack.

CHUNK = 1 << 23


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Monte Carlo draws at one noise: each a candidate drawn from the prior, with noise and with
    its mirror image.
    """

    bits: Float[Tensor, " n"]  # estimates of I, each without bias; independent of one another
    # share of the two that the likeliest candidate names rightly, 0, ½ or 1
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
    every: bool | None = None,
) -> list[Draws]:
    """Draws for each noise, of the candidates that were run and given that X is one of them.

    With y = x_i + σn the posterior of every candidate is known, and −log2 Σ_j p_j exp(−(‖x_i −
    x_j‖² + 2σ n·(x_i − x_j)) / 2σ²) has the mean I. Variance is taken away by mirrored noise (n and
    −n), and by subtracting half the sum of the row's terms in U(σ) and U(2σ), whose means are known
    where all rows are (`every`); the coefficients are fixed, since fitted ones would bias small
    samples.

    All noises see the same draws. `every`: whether the rows' terms are computed for all candidates;
    by default up to 4,096.

    Cost: draws · M · d multiplications, and M² d for `every`.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [round(float(one.bits.mean()), 2) for one in draws_of(code, [0.1, 2.0], draws=4000)]  # 0.1607 by integration
    [1.0, 0.16]
    """
    generator = torch.Generator().manual_seed(seed)
    every = len(code.points) <= 4096 if every is None else every
    prior = code.prior.cpu()
    x = code.centred.cpu()
    chosen = torch.multinomial(prior, draws, replacement=True, generator=generator)
    logs = prior.log()
    scales = sorted({scale for sigma in sigmas for scale in (sigma, 2 * sigma)})
    rows = pairwise_curve(code, scales).cpu() if every else None
    bits, right = ([list[Tensor]() for _ in sigmas] for _ in range(2))
    for some in chosen.split(max(1, CHUNK // len(x))):
        noise = torch.randn(len(some), x.shape[1], generator=generator, dtype=torch.float64)
        away = code.away(some).cpu()
        here = torch.arange(len(some))
        along = (noise * x[some]).sum(1, keepdim=True) - noise @ x.T
        along[here, some] = 0
        for k, sigma in enumerate(sigmas):
            posterior = [
                logs - (away + sign * 2 * sigma * along) / (2 * sigma**2) for sign in (1, -1)
            ]
            both = sum(-torch.logsumexp(one, 1) for one in posterior) / (2 * math.log(2))
            if rows is not None:
                for scale in (sigma, 2 * sigma):
                    row = rows[scales.index(scale)]
                    both = both - 0.5 * (row[some] - prior @ row)
            bits[k].append(torch.as_tensor(both))
            right[k].append(
                torch.stack([(one.argmax(1) == some).double() for one in posterior]).mean(0)
            )
    return [Draws(bits=torch.cat(b), right=torch.cat(r)) for b, r in zip(bits, right, strict=True)]
