"""Gradients of the target by the prompt's embeddings: gradient x input, and integrated gradients
with their gap.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, frozen
from headscan.attribution.target import AttributionTarget, Scores
from headscan.run import BadInput

VAIN = 8  # halvings in a row that may bring the sum no nearer


def gradients(
    engine: Engine, embeds: Float[Tensor, "R T e"], target: AttributionTarget
) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S T e"]]:
    """Target values [R, S] and their gradients [R, S, T, e] by the embeddings [R, T, e]; BadInput
    where none comes through.
    """
    inputs = embeds.detach().clone().requires_grad_(True)
    slopes = []
    with frozen(engine.model):
        try:
            values = target.value(engine.logits(inputs, target.positions, grad=True))
            for step in range(values.shape[1]):
                slopes.append(
                    torch.autograd.grad(
                        values[:, step].sum(), inputs, retain_graph=step + 1 < values.shape[1]
                    )[0]
                )
        except (RuntimeError, NotImplementedError) as error:
            if "out of memory" in str(error):
                raise
            raise BadInput(
                f"No gradient comes through '{engine.lens.name}' (its quantised layers may have "
                f"none: {str(error).splitlines()[0][:120].rstrip('.')}); use --method occlusion, "
                "which needs none."
            ) from error
    gradient = torch.stack(slopes, 1)
    if _silent(engine, gradient, target):
        raise BadInput(
            f"No gradient comes through '{engine.lens.name}': its quantised layers return zero "
            "without saying so; use --method occlusion, which needs none."
        )
    if not bool(torch.isfinite(gradient).all()):
        raise BadInput(
            f"The gradient of '{engine.lens.name}' is not finite in {gradient.dtype}; try --dtype "
            "float32."
        )
    return values.detach(), gradient


def _silent(engine: Engine, gradient: Tensor, target: AttributionTarget) -> bool:
    """Whether a rounded model let nothing through but the residual: exact zeros at every token that
    is not read. Kernels without a backward pass (bitsandbytes' 4 bits on a CPU) only warn, and a
    map of zeros would look like a result.
    """
    if not engine.lens.traits.quantised:
        return False
    others = torch.ones(gradient.shape[2], dtype=torch.bool, device=gradient.device)
    others[target.positions] = False
    return bool(others.any()) and bool((gradient[:, :, others] == 0).all())


def gradient_x_input(
    engine: Engine, embeds: Float[Tensor, "T e"], target: AttributionTarget, *, signed: bool = True
) -> Scores:
    """Gradient x input of a prompt, [S, T].

    Signed: score_t = Σ_k (∂f/∂x_tk) x_tk, captum's InputXGradient summed over features. Unsigned:
        Σ_k |∂f/∂x_tk| |x_tk|.

    Cost: one forward pass, and one backward pass a step.
    """
    _, gradient = gradients(engine, embeds[None], target)
    return _summed(gradient[0].double() * embeds.double(), signed)


def _summed(product: Tensor, signed: bool) -> Scores:
    return np.asarray((product if signed else product.abs()).sum(-1).cpu())


@dataclass(frozen=True)
class Completeness:
    """What the scores of each prediction must sum to, and by how much they miss it."""

    whole: list[float]  # f(prompt) - f(baseline), one a prediction
    gap: list[float]  # |sum of the scores - whole|
    relative_gap: list[float]  # the gap divided by |whole|
    evaluations: int  # forward and backward passes of one row each
    segments: int  # pieces of the path


class PathSegment(NamedTuple):
    start: float
    end: float
    average: Float[Tensor, "S T e"]  # the gradient integrated over the segment
    error: Scores  # [S], how far it is from f(end) - f(start)


class IntegratedScores(NamedTuple):
    """Integrated gradients [S, T], and how far they are from the sum that they must have."""

    scores: Scores
    completeness: Completeness


def integrated_gradients(
    engine: Engine,
    embeds: Float[Tensor, "T e"],
    baseline: Float[Tensor, "*T e"],
    target: AttributionTarget,
    *,
    steps: int | None = None,
    tolerance: float = 0.002,
    most: int = 4096,
    nodes: int = 16,
    rows: int = 8,
    signed: bool = True,
) -> IntegratedScores:
    """Integrated gradients [S, T] along the straight line from a baseline [e] or [T, e] to the
    prompt, and their gap.

    score_t = sum over k of (x - x')_tk ∫₀¹ ∂f/∂x_tk (x' + α (x - x')) dα. The scores of a row sum
    to f(x) - f(x') (completeness); what is missing is reported.

    Args:
        steps: a fixed number of Gauss-Legendre nodes on the whole path (50 is captum's default).
            None: the path is cut where it needs it. The gradient's integral over any piece must
            equal f(end) - f(start), which is known exactly; the piece that misses most is halved
            until the misses sum to less than `tolerance`, or until eight halvings in a row bring
            nothing: a model that rounds its activations (8-bit) is a staircase, whose slopes miss
            its steps however fine the path is cut.
        tolerance: of |f(x) - f(x')|.
        most: an end to halving, in gradient evaluations.
        nodes, rows: Gauss-Legendre nodes of one piece, and of one micro-batch.

    Source: Sundararajan, Taly and Yan 2017, "Axiomatic attribution for deep networks". The cutting
    is headscan's: layer norms make the gradient steep near a small baseline, where equal steps need
    thousands of nodes.
    """
    difference = (embeds - baseline).detach()
    count = steps or nodes
    points, weights = np.polynomial.legendre.leggauss(count)

    @cache
    def value(alpha: float) -> Scores:
        with torch.no_grad():
            place = (baseline + alpha * difference)[None].to(embeds.dtype)
            values = target.value(engine.logits(place, target.positions))[0]
        return np.asarray(values.double().cpu())

    def segment(start: float, end: float) -> PathSegment:
        alphas = (start + (end - start) * (points + 1) / 2).tolist()
        shares = torch.tensor(weights / 2 * (end - start), device=difference.device)
        average = torch.zeros(
            len(target.steps), *difference.shape, dtype=torch.float64, device=difference.device
        )
        for first in range(0, count, rows):
            places = torch.stack(
                [baseline + alpha * difference for alpha in alphas[first : first + rows]]
            )
            _, gradient = gradients(engine, places.to(embeds.dtype), target)
            average += torch.einsum("r,rste->ste", shares[first : first + rows], gradient.double())
        total = torch.einsum("ste,te->s", average, difference.double()).cpu().numpy()
        return PathSegment(start, end, average, np.abs(total - (value(end) - value(start))))

    segments = [segment(0.0, 1.0)]
    evaluations = count
    whole = value(1.0) - value(0.0)
    scale = np.maximum(np.abs(whole), 1e-6)

    def missed() -> float:
        return float((sum((part.error for part in segments), np.zeros(1)) / scale).max())

    vain = 0  # halvings in a row that brought the sum no nearer
    while (
        steps is None
        and evaluations + 2 * count <= most
        and vain < VAIN
        and (before := missed()) > tolerance
    ):
        worst = max(range(len(segments)), key=lambda k: float((segments[k].error / scale).max()))
        start, end = segments.pop(worst)[:2]
        middle = (start + end) / 2
        segments += [segment(start, middle), segment(middle, end)]
        evaluations += 2 * count
        vain = vain + 1 if missed() > 0.98 * max(before, 1e-30) else 0
    product = torch.stack([part.average for part in segments]).sum(0) * difference.double()
    gap = np.abs(product.sum((-1, -2)).cpu().numpy() - whole)
    completeness = Completeness(
        whole.tolist(), gap.tolist(), (gap / scale).tolist(), evaluations, len(segments)
    )
    return IntegratedScores(_summed(product, signed), completeness)
