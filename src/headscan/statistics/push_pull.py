"""Pull and push of cross-entropy on every row of the output matrix, summed over a text."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["PushPull"]


class PushPull(Accumulator):
    """The gradient of Σ −log softmax(W h + b)[next] in each row of W [V, d], split by where it comes from.

    For row v, −∂L/∂w_v = pull_v − push_v with
        pull_v = Σ_{t: next = v} (1 − p_t(v)) h_t     where v is the token to predict: towards the hidden state;
        push_v = Σ_{t: next ≠ v} p_t(v) h_t           everywhere else: away from it.
    `pull` and `push` [V, d] are those sums, `pull_mass` and `push_mass` [V] the sums of the coefficients, `counts` [V]
    how often v came next, `state` [d] Σh, `loss` the summed loss in nats, `tokens` their number. Only the head's gradient
    is seen: where input and output embeddings are tied, the input's share comes on top.

    Cost of n rows: two products of n x d x V beside the softmax; 2·8·V·d bytes.

    >>> sums = PushPull(2, 1)
    >>> sums.update(torch.tensor([[1.0]]), torch.tensor([0]), torch.zeros(2, 1))      # p = 1/2, 1/2
    >>> sums.pull.tolist(), sums.push.tolist()
    ([[0.5], [0.0]], [[0.0], [0.5]])
    """

    NAMES = ("pull", "push", "pull_mass", "push_mass", "counts", "state_sum", "scalars")

    def __init__(self, vocabulary: int, width: int, device: torch.device | str = "cpu"):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.pull, self.push = zeros(vocabulary, width), zeros(vocabulary, width)
        self.pull_mass, self.push_mass, self.counts = zeros(vocabulary), zeros(vocabulary), zeros(vocabulary)
        self.state_sum, self.scalars = zeros(width), zeros(2)  # loss, tokens

    @property
    def loss(self) -> float:
        """The summed loss, nats."""
        return float(self.scalars[0])

    @property
    def tokens(self) -> int:
        """Positions seen."""
        return int(self.scalars[1])

    def update(self, states: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        """Add hidden states [n, d] with the ids that come next [n], under the head's weight [V, d] and bias [V]."""
        step = max(1, 2**25 // (4 * len(weight)))
        for start in range(0, len(targets), step):
            h = states[start : start + step].detach().to(weight.dtype)
            y = targets[start : start + step].to(h.device)
            logits = torch.nn.functional.linear(h, weight, bias).float()
            scale = torch.logsumexp(logits, -1, keepdim=True)
            rows = torch.arange(len(y), device=h.device)
            self.scalars[0] += (scale[:, 0] - logits[rows, y]).double().sum()
            probabilities = logits.sub_(scale).exp_()
            missing = 1 - probabilities[rows, y].double()
            probabilities[rows, y] = 0.0
            h64 = h.double()
            self.push += (probabilities.T @ h.float()).double()
            self.push_mass += probabilities.double().sum(0)
            self.pull.index_add_(0, y, missing[:, None] * h64)
            self.pull_mass.index_add_(0, y, missing)
            self.counts.index_add_(0, y, torch.ones_like(missing))
            self.state_sum += h64.sum(0)
            self.scalars[1] += len(y)

    def merge(self, other: PushPull) -> None:
        """Add the sums of another part of the text."""
        for name in self.NAMES:
            getattr(self, name).add_(getattr(other, name).to(self.pull.device))

    def state(self) -> dict[str, Tensor]:
        """All sums by name."""
        return {name: getattr(self, name) for name in self.NAMES}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        vocabulary, width = state["pull"].shape
        new = cls(vocabulary, width, device=state["pull"].device)
        for name in cls.NAMES:
            setattr(new, name, state[name].clone())
        return new
