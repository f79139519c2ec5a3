"""Gradients of the target by the prompt's embeddings: gradient x input, and integrated gradients with their gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscan.attribution.engine import Engine, frozen
from headscan.attribution.target import Target
from headscan.errors import BadInput

__all__ = ["Integrated", "gradient_x_input", "gradients", "integrated_gradients"]

VAIN = 8


def gradients(engine: Engine, embeds: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    """Target values [R, S] and their gradients [R, S, T, e] by the embeddings [R, T, e].

    Raises:
        BadInput: no gradient comes through (quantised layers that do not support it).
    """
    inputs = embeds.detach().clone().requires_grad_(True)
    found = []
    with frozen(engine.model):
        try:
            values = target.value(engine.logits(inputs, target.positions, grad=True))
            for step in range(values.shape[1]):
                keep = step + 1 < values.shape[1]
                found.append(torch.autograd.grad(values[:, step].sum(), inputs, retain_graph=keep)[0])
        except (RuntimeError, NotImplementedError) as error:
            if "out of memory" in str(error):
                raise
            raise BadInput(
                f"No gradient comes through '{engine.lens.name}' (its quantised layers may have none: "
                f"{str(error).splitlines()[0][:120].rstrip('.')}); use --method occlusion, which needs none."
            ) from error
    gradient = torch.stack(found, 1)
    if _silent(engine, gradient, target):
        raise BadInput(
            f"No gradient comes through '{engine.lens.name}': its quantised layers return zero without saying so; "
            "use --method occlusion, which needs none."
        )
    if not bool(torch.isfinite(gradient).all()):
        raise BadInput(f"The gradient of '{engine.lens.name}' is not finite in {gradient.dtype}; try --dtype float32.")
    return values.detach(), gradient


def _silent(engine: Engine, gradient: Tensor, target: Target) -> bool:
    """Whether a rounded model let nothing through but the residual: exact zeros at every token that is not read.

    Kernels without a backward pass (bitsandbytes' 4 bits on a CPU) only warn, and a map of zeros would look like a result.
    """
    if not engine.lens.traits.quantised:
        return False
    if engine.translates:
        return bool((gradient == 0).all())
    others = torch.ones(gradient.shape[2], dtype=torch.bool, device=gradient.device)
    others[target.positions] = False
    return bool(others.any()) and bool((gradient[:, :, others] == 0).all())


def gradient_x_input(engine: Engine, embeds: Tensor, target: Target, *, signed: bool = True) -> np.ndarray:
    """Gradient x input, [S, T].

    Signed: score_t = sum over k of (∂f/∂x_tk) x_tk, captum's InputXGradient summed over features. Unsigned:
    sum over k of |∂f/∂x_tk| |x_tk|, the seed of this tool's v = |∇f| * a with its absolute value summed.

    Args:
        engine: the model.
        embeds: the prompt [T, e].
        target: what is differentiated.
        signed: keep signs.

    Cost: one forward pass, and one backward pass a step.
    """
    _, gradient = gradients(engine, embeds[None], target)
    return _summed(gradient[0].double() * embeds.double(), signed)


def _summed(product: Tensor, signed: bool) -> np.ndarray:
    return (product if signed else product.abs()).sum(-1).cpu().numpy()


@dataclass(frozen=True)
class Integrated:
    """Integrated gradients with their certificate.

    Attributes:
        scores: [S, T].
        whole: [S], f(prompt) - f(baseline), which signed scores must sum to.
        gap: [S], |sum of signed scores - whole|.
        relative_gap: [S], gap / |whole|.
        evaluations: forward and backward passes of one row each.
        segments: pieces of the path.
    """

    scores: np.ndarray
    whole: np.ndarray
    gap: np.ndarray
    relative_gap: np.ndarray
    evaluations: int
    segments: int


@dataclass
class _Segment:
    start: float
    end: float
    average: Tensor  # [S, T, e], the gradient integrated over the segment
    error: np.ndarray  # [S], how far it is from f(end) - f(start)


def integrated_gradients(
    engine: Engine, embeds: Tensor, baseline: Tensor, target: Target, *, steps: int | None = None,
    tolerance: float = 0.002, most: int = 4096, nodes: int = 16, rows: int = 8, signed: bool = True,
) -> Integrated:  # fmt: skip
    """Integrated gradients along the straight line from a baseline to the prompt.

    score_t = sum over k of (x - x')_tk ∫₀¹ ∂f/∂x_tk (x' + α (x - x')) dα. The scores of a row sum to f(x) - f(x')
    (completeness); what is missing is reported.

    Args:
        engine: the model.
        embeds: the prompt [T, e].
        baseline: [e] or [T, e].
        target: what is differentiated.
        steps: a fixed number of Gauss-Legendre nodes on the whole path (50 is captum's default). None: the path is cut
            where it needs it. The gradient's integral over any piece must equal f(end) - f(start), which is known
            exactly; the piece that misses most is halved until the misses sum to less than `tolerance`, or until eight
            halvings in a row bring nothing: a model that rounds its activations (8-bit) is a staircase, whose slopes
            miss its steps however fine the path is cut.
        tolerance: of |f(x) - f(x')|.
        most: an end to halving, in gradient evaluations.
        nodes: Gauss-Legendre nodes of one piece.
        rows: nodes of one micro-batch.
        signed: keep signs.

    Source: Sundararajan, Taly and Yan 2017, "Axiomatic attribution for deep networks". The cutting is headscan's:
    layer norms make the gradient steep near a small baseline, where equal steps need thousands of nodes.
    """
    difference = (embeds - baseline).detach()
    count = steps or nodes
    points, weights = np.polynomial.legendre.leggauss(count)
    ends: dict[float, np.ndarray] = {}

    def at(alpha: float) -> np.ndarray:
        if alpha not in ends:
            with torch.no_grad():
                place = (baseline + alpha * difference)[None].to(embeds.dtype)
                ends[alpha] = target.value(engine.logits(place, target.positions))[0].double().cpu().numpy()
        return ends[alpha]

    def measure(start: float, end: float) -> _Segment:
        alphas = (start + (end - start) * (points + 1) / 2).tolist()
        shares = (weights / 2 * (end - start)).tolist()
        average = torch.zeros(len(target.steps), *embeds.shape, dtype=torch.float64, device=embeds.device)
        for first in range(0, count, rows):
            part = alphas[first : first + rows]
            place = torch.stack([baseline + alpha * difference for alpha in part]).to(embeds.dtype)
            _, gradient = gradients(engine, place, target)
            share = torch.tensor(shares[first : first + rows], dtype=torch.float64, device=embeds.device)
            average += torch.einsum("r,rste->ste", share, gradient.double())
        total = torch.einsum("ste,te->s", average, difference.double()).cpu().numpy()
        return _Segment(start, end, average, np.abs(total - (at(end) - at(start))))

    def segment_error(parts: list[_Segment], unit: np.ndarray) -> float:
        return float((sum(part.error for part in parts) / unit).max())

    segments = [measure(0.0, 1.0)]
    evaluations = count
    whole = at(1.0) - at(0.0)
    scale = np.maximum(np.abs(whole), 1e-6)
    vain = 0  # halvings in a row that brought the sum no nearer
    while steps is None and evaluations + 2 * count <= most and vain < VAIN:
        if (sum(segment.error for segment in segments) <= tolerance * scale).all():
            break
        before = max(segment_error(segments, scale), 1e-30)
        worst = max(segments, key=lambda segment: float((segment.error / scale).max()))
        segments.remove(worst)
        middle = (worst.start + worst.end) / 2
        segments += [measure(worst.start, middle), measure(middle, worst.end)]
        evaluations += 2 * count
        vain = vain + 1 if segment_error(segments, scale) > 0.98 * before else 0
    average = torch.stack([segment.average for segment in segments]).sum(0)
    product = average * difference.double()
    gap = np.abs(product.sum((-1, -2)).cpu().numpy() - whole)
    return Integrated(_summed(product, signed), whole, gap, gap / scale, evaluations, len(segments))
