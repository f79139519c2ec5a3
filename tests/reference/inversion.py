"""Inversion written out: slow, and obviously right."""

import numpy as np
import torch


def brute_force(run, target, vocabulary):
    """The tokens by trying every one at every position with the whole prefix; run: ids [n, t] ->
    outputs [n, t, w].
    """
    tokens = []
    for position in range(len(target)):
        candidates = torch.tensor([[*tokens, token] for token in range(vocabulary)])
        outputs = run(candidates)[:, position]
        tokens.append(int((outputs - target[position]).norm(dim=-1).argmin()))
    return tokens


def pinv_scores(vectors, table):
    """x W^+ with numpy's pseudo-inverse."""
    return vectors @ np.linalg.pinv(table)


def nearest(vectors, table):
    """The row of least Euclidean distance, one vector at a time."""
    return np.array([np.argmin([np.sum((x - row) ** 2) for row in table]) for x in vectors])


def published_descent(run, target, start, steps, rate):
    """Plain steps on the L1 norm, the rate falling linearly to a tenth: the loop of the source, one
    prompt.
    """
    x = start.clone()
    for step in range(steps):
        x = x.detach().requires_grad_(True)
        (run(x) - target).abs().sum().backward()
        x = x.detach() - (rate * (steps - step) / steps + rate / 10 * step / steps) * x.grad
    return x.detach()
