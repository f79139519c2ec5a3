"""The two hands of cross-entropy: how hard each token's output vector is pulled to hidden states, and pushed away."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import Cells
from headscan.statistics.push_pull import PushPull

__all__ = ["push_pull_bins"]


def push_pull_bins(sums: PushPull) -> list[Cells]:
    """Pull and push by frequency of the token to predict: bins of a factor of ten in count, rare first.

    Keys: `from`, `to` (counts), `tokens` (types), and means over the bin's rows, per position of the text:
        pull, push: the norms of pull_v/n and push_v/n, in the units of the states;
        ratio: Σ push norm / Σ (pull norm + push norm), in [0, 1]: 1 for tokens that are pushed only, as those are that
            never come next; at a minimum of the loss pull and push are equal vectors and the ratio is 1/2;
        cosine: mean cosine between pull_v and push_v where both are: 1 when a token is pushed out of the very direction
            it is pulled to, so that only their difference moves it;
        net_to_state: mean cosine of pull_v − push_v to the mean hidden state: negative when rows are driven away from
            the direction that all states share.
    """
    n = max(1, sums.tokens)
    pull, push = sums.pull.cpu().numpy() / n, sums.push.cpu().numpy() / n
    counts = sums.counts.cpu().numpy()
    lengths = np.linalg.norm(pull, axis=1), np.linalg.norm(push, axis=1)
    products, net = (pull * push).sum(1), pull - push
    axis = sums.state_sum.cpu().numpy()
    axis_length = float(np.linalg.norm(axis))
    net_length = np.linalg.norm(net, axis=1)
    found: list[Cells] = []
    low = 0
    while low <= counts.max(initial=0):
        high = 1 if low == 0 else 10 * low
        chosen = (counts >= low) & (counts < high)
        both = chosen & (lengths[0] > 0) & (lengths[1] > 0)
        moved = chosen & (net_length > 0)
        if chosen.any():
            total = float(lengths[0][chosen].sum() + lengths[1][chosen].sum())
            found.append(
                {
                    "from": low,
                    "to": high - 1,
                    "tokens": int(chosen.sum()),
                    "pull": float(lengths[0][chosen].mean()),
                    "push": float(lengths[1][chosen].mean()),
                    "ratio": float(lengths[1][chosen].sum()) / total if total else None,
                    "cosine": float((products[both] / lengths[0][both] / lengths[1][both]).mean())
                    if both.any()
                    else None,
                    "net_to_state": float((net[moved] @ axis / net_length[moved] / axis_length).mean())
                    if moved.any() and axis_length > 0
                    else None,
                }
            )
        low = high
    return found
