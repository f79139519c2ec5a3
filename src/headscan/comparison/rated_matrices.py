"""The harm that each rounding of each matrix does, from one pass backwards through a model.

The divergence of a model's predictions after a small change Δ of its weights is half of Δᵀ F Δ,
with F the Fisher information: the mean over drawn tokens y of the square of ⟨Δ, ∇ log p(y)⟩. One
gradient of a window rates all roundings of all matrices at once. Changes are taken to be small,
and those of two matrices not to interact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headscan.comparison.exchange import TOKENS_AT_ONCE, ExchangeWindows
from headscan.model.matrices import Matrix, matrices
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import rounded
from headscan.run import Run

WHOLE = "whole"
"""The name of the format in which a matrix stays as it is."""

GRADIENTS = 16
"""Gradients of windows that a rating is based on at least."""


@dataclass(frozen=True)
class StoredAs:
    """A format of a matrix, its bytes, and its harm.

    Attributes:
        harm: the divergence that it is expected to add, in nats a token.
        name: of the format that was asked for.
        format: that of the matrix, which differs from `name` where its rows do not fit.
    """

    name: str
    format: str
    bytes: int
    harm: float


@dataclass(frozen=True)
class RatedMatrix:
    """A matrix of a block, and the formats in which it can be stored."""

    part: str
    name: str
    weights: int
    choices: list[StoredAs]


def rated_matrices(
    model: PartwiseModel, windows: ExchangeWindows, formats: Sequence[str], run: Run
) -> list[RatedMatrix]:
    """Return the matrices of all blocks, each rated in these formats.

    Cost: a pass forwards, another with gradients, and a pass backwards for each of the draws.
    Memory: the states before each block, and the errors of one block in all formats.
    """
    states = _states_before_parts(model, windows, run)
    draws = math.ceil(GRADIENTS / len(windows.ids))
    upstream = score_gradients(model, states.pop(), windows, draws, run.seed)
    rated: list[RatedMatrix] = []
    for number in reversed(range(len(model.blocks))):
        run.progress(f"rating · block.{number}", len(states), len(model.blocks), "blocks left")
        rating = _BlockRating(model, number, formats)
        upstream = rating.backwards(states.pop(), upstream)
        predicted = windows.ids.shape[1] - 1 - windows.skipped
        rated = rating.rated(predicted) + rated
    return rated


def _states_before_parts(model: PartwiseModel, windows: ExchangeWindows, run: Run) -> list[Tensor]:
    """Return the states [W, T, d] before each block, and before the head."""
    states = [model.lens.run(windows.ids, sites="embedding")["embedding"].clone()]
    at_once = max(1, TOKENS_AT_ONCE // windows.ids.shape[1])
    for number in range(len(model.blocks)):
        run.progress(f"reading · block.{number}", number, len(model.blocks), "blocks")
        pieces = [model.block(number, piece) for piece in states[-1].split(at_once)]
        states.append(torch.cat(pieces))
    return states


def score_gradients(
    model: PartwiseModel, states: Tensor, windows: ExchangeWindows, draws: int, seed: int
) -> Tensor:
    """Return the gradients [draws, W, T, d] of the log probability of drawn tokens.

    At each position whose next token is in the window a token is drawn from the model's prediction;
    the gradient is that of the sum of their log probabilities over a window, for `states` [W, T, d]
    before the head.
    """
    generator = torch.Generator(device=states.device).manual_seed(seed)
    gradients = torch.zeros(draws, *states.shape, dtype=states.dtype, device=states.device)
    for window, before in enumerate(states):
        leaf = before[None].clone().requires_grad_()
        logits = model.logits(leaf[:, windows.skipped : -1])[0]
        log_probabilities = logits.float().log_softmax(-1)
        probabilities = log_probabilities.detach().exp()
        for draw in range(draws):
            tokens = torch.multinomial(probabilities, 1, generator=generator)
            score = log_probabilities.gather(1, tokens).sum()
            [gradient] = torch.autograd.grad(score, leaf, retain_graph=draw + 1 < draws)
            gradients[draw, window] = gradient[0]
    return gradients


class _BlockRating:
    """The matrices of a block, the errors of their roundings, and the sums of their harms."""

    def __init__(self, model: PartwiseModel, number: int, formats: Sequence[str]) -> None:
        self.model = model
        self.number = number
        self.matrices = list(matrices(model.blocks[number]))
        self.stored: list[list[StoredAs]] = []
        self.errors: list[Tensor] = []
        self.squares = torch.zeros(len(self.matrices), len(formats), dtype=torch.float64)
        self.gradients = 0
        for matrix in self.matrices:
            self._round(matrix, formats)

    def _round(self, matrix: Matrix, formats: Sequence[str]) -> None:
        """Note the formats of a matrix, and the errors [formats, weights] of its roundings."""
        rows = matrix.rows.float().cpu().contiguous()
        stored = []
        errors = []
        for name in formats:
            if name == WHOLE:
                stored.append(StoredAs(name, WHOLE, matrix.weight.nbytes, 0.0))
                errors.append(torch.zeros(rows.numel()))
            else:
                rounding = rounded(rows, name.upper())
                format_name = rounding.format.lower()
                stored.append(StoredAs(name, format_name, rounding.bytes, 0.0))
                errors.append((rounding.weights - rows).flatten())
        self.stored.append(stored)
        self.errors.append(torch.stack(errors).to(matrix.weight.device))

    def backwards(self, states: Tensor, upstream: Tensor) -> Tensor:
        """Add the harms of all windows and draws; return the gradients before the block.

        Args:
            states: [W, T, d], before the block.
            upstream: gradients [draws, W, T, d] behind it.
        """
        weights = [matrix.weight for matrix in self.matrices]
        before = torch.empty_like(upstream)
        needed = [weight.requires_grad for weight in weights]
        for weight in weights:
            weight.requires_grad_()
        for window, window_states in enumerate(states):
            leaf = window_states[None].clone().requires_grad_()
            output = self.model.block(self.number, leaf)
            for draw, gradient in enumerate(upstream[:, window]):
                retain = draw + 1 < len(upstream)
                first, *gradients = torch.autograd.grad(
                    output, [leaf, *weights], gradient[None], retain_graph=retain, allow_unused=True
                )
                before[draw, window] = first[0]
                self._add(gradients)
        for weight, need in zip(weights, needed, strict=True):
            weight.requires_grad_(need)
        return before

    def _add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add the squares of the scores' changes; an expert that read no token has no gradient."""
        self.gradients += 1
        for number, gradient in enumerate(gradients):
            if gradient is not None:
                rows = self.matrices[number].as_rows(gradient)
                change = self.errors[number] @ rows.flatten().float()
                self.squares[number] += change.double().square().cpu()

    def rated(self, predicted: int) -> list[RatedMatrix]:
        """Return the matrices with the mean harm of their roundings; `predicted`: of a window."""
        harms = self.squares / (2 * self.gradients * predicted)
        rated = []
        for matrix, stored, row in zip(self.matrices, self.stored, harms, strict=True):
            choices = []
            for choice, harm in zip(stored, row.tolist(), strict=True):
                choices.append(StoredAs(choice.name, choice.format, choice.bytes, harm))
            part = f"block.{self.number}"
            rated.append(RatedMatrix(part, matrix.name, matrix.weight.numel(), choices))
        return rated
