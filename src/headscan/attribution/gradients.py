"""Gradients of the target by the prompt's embeddings: gradient x input, integrated gradients."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, frozen
from headscan.attribution.target import AttributionTarget, Scores
from headscan.run import BadInput

MOST_VAIN_HALVINGS = 8
"""Halvings in a row that may bring the sum no nearer."""
VAIN_SHARE = 0.98
"""A halving is in vain that leaves more than this share of what the sum misses."""


def gradients(
    engine: Engine, embeds: Float[Tensor, "R T e"], target: AttributionTarget
) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S T e"]]:
    """Return target values and their gradients by the embeddings.

    Raises:
        BadInput: where no gradient comes through the model.
    """
    inputs = embeds.detach().clone().requires_grad_(True)
    slopes = []
    with frozen(engine.model):
        try:
            values = target.value(engine.logits(inputs, target.positions, grad=True))
            steps = values.shape[1]
            for step in range(steps):
                is_last = step + 1 == steps
                (slope,) = torch.autograd.grad(
                    values[:, step].sum(), inputs, retain_graph=not is_last
                )
                slopes.append(slope)
        except (RuntimeError, NotImplementedError) as error:
            if "out of memory" in str(error):
                raise
            reason = str(error).splitlines()[0][:120].rstrip(".")
            raise BadInput(
                f"No gradient comes through '{engine.lens.name}' (its quantised layers may have "
                f"none: {reason}); use --method occlusion, which needs none."
            ) from error
    gradient = torch.stack(slopes, 1)
    if _is_silent(engine, gradient, target):
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


def _is_silent(engine: Engine, gradient: Tensor, target: AttributionTarget) -> bool:
    """Return whether a rounded model let nothing through but the residual.

    The gradient is then exactly zero at every token that is not read. Kernels without a backward
    pass (bitsandbytes' 4 bits on a CPU) only warn, and a map of zeros would look like a result.
    """
    if not engine.lens.traits.quantised:
        return False
    is_unread = torch.ones(gradient.shape[2], dtype=torch.bool, device=gradient.device)
    is_unread[target.positions] = False
    return bool(is_unread.any()) and bool((gradient[:, :, is_unread] == 0).all())


def gradient_x_input(
    engine: Engine, embeds: Float[Tensor, "T e"], target: AttributionTarget, *, signed: bool = True
) -> Scores:
    """Return gradient x input of a prompt, [S, T].

    Signed: score_t = Σ_k (∂f/∂x_tk) x_tk, captum's InputXGradient summed over features. Unsigned:
    Σ_k |∂f/∂x_tk| |x_tk|.

    Cost: one forward pass, and one backward pass a step.
    """
    _, gradient = gradients(engine, embeds[None], target)
    return _summed_over_features(gradient[0].double() * embeds.double(), signed)


def _summed_over_features(product: Tensor, signed: bool) -> Scores:
    if not signed:
        product = product.abs()
    return np.asarray(product.sum(-1).cpu())


@dataclass(frozen=True)
class Completeness:
    """The sum that the scores of each prediction must have, and by how much they miss it.

    Attributes:
        whole: f(prompt) - f(baseline), one a prediction.
        gap: |sum of the scores - whole|.
        relative_gap: the gap divided by |whole|.
        evaluations: forward and backward passes of one row each.
        segments: pieces of the path.
    """

    whole: list[float]
    gap: list[float]
    relative_gap: list[float]
    evaluations: int
    segments: int


class PathSegment(NamedTuple):
    """A piece of the path from the baseline to the prompt.

    Attributes:
        average: the gradient integrated over the piece.
        error: how far the integral is from f(end) - f(start), [S].
    """

    start: float
    end: float
    average: Float[Tensor, "S T e"]
    error: Scores


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
    """Return integrated gradients along the straight line from a baseline to the prompt.

    score_t = sum over k of (x - x')_tk ∫₀¹ ∂f/∂x_tk (x' + α (x - x')) dα. The scores of a row sum
    to f(x) - f(x') (completeness); what is missing is reported.

    Args:
        baseline: one vector for all tokens, or one a token.
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
    path = _Path(engine, embeds, baseline, target, steps or nodes, rows)
    segments = [path.segment(0.0, 1.0)]
    change = path.value(1.0) - path.value(0.0)
    scale = np.maximum(np.abs(change), 1e-6)
    vain_halvings = 0
    miss = _relative_miss(segments, scale)
    while steps is None and miss > tolerance and vain_halvings < MOST_VAIN_HALVINGS:
        if path.evaluations + 2 * nodes > most:
            break
        errors = [float((segment.error / scale).max()) for segment in segments]
        worst = segments.pop(errors.index(max(errors)))
        middle = (worst.start + worst.end) / 2
        segments.append(path.segment(worst.start, middle))
        segments.append(path.segment(middle, worst.end))
        previous_miss = miss
        miss = _relative_miss(segments, scale)
        is_vain = miss > VAIN_SHARE * max(previous_miss, 1e-30)
        vain_halvings = vain_halvings + 1 if is_vain else 0

    average = torch.stack([segment.average for segment in segments]).sum(0)
    product = average * path.difference.double()
    gap = np.abs(product.sum((-1, -2)).cpu().numpy() - change)
    completeness = Completeness(
        whole=change.tolist(),
        gap=gap.tolist(),
        relative_gap=(gap / scale).tolist(),
        evaluations=path.evaluations,
        segments=len(segments),
    )
    return IntegratedScores(_summed_over_features(product, signed), completeness)


def _relative_miss(segments: list[PathSegment], scale: Scores) -> float:
    """Return how far the integral over all pieces may be from what it must be, at most."""
    errors = sum((segment.error for segment in segments), np.zeros(1))
    return float((errors / scale).max())


class _Path:
    """The straight line from a baseline to a prompt, x' + α (x - x'), and the target along it.

    Attributes:
        difference: x - x'.
        evaluations: gradients that were computed so far.
    """

    def __init__(
        self,
        engine: Engine,
        embeds: Float[Tensor, "T e"],
        baseline: Float[Tensor, "*T e"],
        target: AttributionTarget,
        nodes: int,
        rows: int,
    ) -> None:
        self.difference = (embeds - baseline).detach()
        self.evaluations = 0
        self._engine = engine
        self._baseline = baseline
        self._target = target
        self._dtype = embeds.dtype
        self._rows = rows
        self._points: npt.NDArray[np.float64]
        self._weights: npt.NDArray[np.float64]
        self._points, self._weights = np.polynomial.legendre.leggauss(nodes)
        self._values: dict[float, Scores] = {}

    def value(self, alpha: float) -> Scores:
        """Return the target [S] at a point of the line; it is computed once."""
        if alpha not in self._values:
            embeds = self._at([alpha])
            with torch.no_grad():
                logits = self._engine.logits(embeds, self._target.positions)
                values = self._target.value(logits)[0]
            self._values[alpha] = np.asarray(values.double().cpu())
        return self._values[alpha]

    def segment(self, start: float, end: float) -> PathSegment:
        """Return the gradient integrated over a piece of the line."""
        alphas = (start + (end - start) * (self._points + 1) / 2).tolist()
        weights = torch.tensor(self._weights / 2 * (end - start), device=self.difference.device)
        average = torch.zeros(
            len(self._target.steps),
            *self.difference.shape,
            dtype=torch.float64,
            device=self.difference.device,
        )
        for begin in range(0, len(alphas), self._rows):
            batch = slice(begin, begin + self._rows)
            _, gradient = gradients(self._engine, self._at(alphas[batch]), self._target)
            average += torch.einsum("r,rste->ste", weights[batch], gradient.double())
        self.evaluations += len(alphas)
        total = torch.einsum("ste,te->s", average, self.difference.double()).cpu().numpy()
        error = np.abs(total - (self.value(end) - self.value(start)))
        return PathSegment(start, end, average, error)

    def _at(self, alphas: list[float]) -> Float[Tensor, "R T e"]:
        points = [self._baseline + alpha * self.difference for alpha in alphas]
        return torch.stack(points).to(self._dtype)
