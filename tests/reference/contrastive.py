"""The contrastive loss as its definition reads: two loops, no tricks, float64."""

import math

import numpy as np


def cwt(
    hidden: np.ndarray, embeddings: np.ndarray, targets: list[int], pool: list[int] | None = None
) -> np.ndarray:
    """Loss of each row: -log of the target's exponential over the sum over all tokens of the pool,
    one by one.
    """
    pool = list(targets) if pool is None else pool
    losses = []
    for row, target in zip(hidden, targets, strict=True):
        scores = [float(np.dot(row, embeddings[token])) for token in pool]
        top = max(scores)
        total = sum(math.exp(score - top) for score in scores)
        losses.append(top + math.log(total) - float(np.dot(row, embeddings[target])))
    return np.array(losses)
