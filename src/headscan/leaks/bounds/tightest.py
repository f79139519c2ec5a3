"""The tightest of the bounds on what a noisy release tells, and what accuracy so many bits allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscan.leaks.bounds.code import Code
from headscan.leaks.bounds.mixture import pairwise_bits, union_accuracy
from headscan.run import BadInput
from headscan.statistics.information import (
    divergence_accuracy,
    entropy_bits,
    fano_accuracy,
    fano_bits,
    gaussian_bits,
)

__all__ = ["LeakBounds", "accuracy_ceiling", "code_bits", "leak_bounds"]


@dataclass(frozen=True, kw_only=True)
class LeakBounds:
    """What a release with Gaussian noise tells of the candidate, proved from below and from above.

    Attributes:
        noise: σ, in the unit of the points.
        lower, upper: bits.
        lower_by, upper_by: which bound is the tightest: "pairs", "Gaussian", "Fano", "entropy".
        accuracy_upper: no attack names the candidate more often than that, under this prior.
    """

    noise: float
    lower: float
    upper: float
    lower_by: str
    upper_by: str
    accuracy_upper: float


def accuracy_ceiling(code: Code, bits: float) -> float:
    """What no attack's accuracy exceeds, if a release tells at most so many bits: the lower of two, both from Fano's idea.

    `fano_accuracy` with the entropy of the prior, and `divergence_accuracy` with its likeliest candidate. It holds in the
    mean over the prior and the noise: for one text an attack may be luckier.
    """
    size = max(code.size, 2)
    return max(
        code.likeliest,
        min(fano_accuracy(bits, size, code.entropy), divergence_accuracy(bits, code.likeliest)),
    )


def leak_bounds(code: Code, sigmas: Sequence[float]) -> list[LeakBounds]:
    """The tightest bounds on I(X; x_X + σ N(0, I)) for each noise σ.

    From above: the pairwise curve U(σ), the Gaussian of the same covariance, the entropy of the prior. From below: U(2σ),
    and Fano's inequality for an accuracy that decoding to the nearest point is proved to have (`union_accuracy`). Candidates
    that were not run cost `Code.tail` bits of the upper bound.

    Raises:
        BadInput: a noise of 0: there is no finite bound then but H(X), and whether it is reached is a question to exact
            inversion.

    Cost: M² d multiplications and some M² exponentials a noise.

    >>> import torch
    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [(round(one.lower, 3), round(one.upper, 3), one.upper_by) for one in leak_bounds(code, [0.5, 4.0])]
    [(0.843, 1.0, 'pairs'), (0.028, 0.044, 'Gaussian')]
    """
    if any(not sigma > 0 for sigma in sigmas):
        raise BadInput("Bits are bounded for noise above 0: of a release without noise exact inversion speaks.")
    scales = sorted({scale for sigma in sigmas for scale in (sigma, 2 * sigma)})
    curve = dict(zip(scales, pairwise_bits(code, scales), strict=True))
    found = []
    for sigma in sigmas:
        share, kept = code.kept, len(code.points)
        inside = float(code.entropy - code.tail) / share if len(code.outside) else code.entropy  # H(X | run)
        above = {
            "pairs": share * curve[sigma] + code.tail,
            "Gaussian": share * gaussian_bits(code.variances, sigma) + code.tail,
            "entropy": code.entropy,
        }
        floor = fano_bits(union_accuracy(code, sigma), kept, inside) if kept > 1 else 0.0
        below = {"pairs": share * curve[2 * sigma], "Fano": share * floor}
        upper_by, lower_by = min(above, key=above.__getitem__), max(below, key=below.__getitem__)
        upper = max(above[upper_by], 0.0)
        lower = min(max(below[lower_by], 0.0), upper)  # where both are H, the last digit may differ
        found.append(
            LeakBounds(
                noise=sigma, lower=lower, upper=upper, lower_by=lower_by, upper_by=upper_by,
                accuracy_upper=accuracy_ceiling(code, upper),
            )
        )  # fmt: skip
    return found


def code_bits(code: Code) -> LeakBounds:
    """What a release without noise tells that is the same for some candidates, because it was rounded: H of what is seen.

    Y = f(X) gives I(X; Y) = H(Y): the entropy of the classes of equal releases, exactly; and the best attack names the
    likeliest of its class. Assumption: whoever computes a candidate's release gets the same numbers, to the last bit of the
    rounded ones.

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
        noise=0.0, lower=inside, upper=inside + code.tail, lower_by="equal releases", upper_by="equal releases",
        accuracy_upper=min(1.0, float(best.sum()) + outside),
    )  # fmt: skip
